"""Ledger of answers by file: what files of the last run have lost, and what new files lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import IntArray
from pmflib.base.display.summary import percent
from pmflib.base.hashing import HashArray
from pmflib.ingest.dataset.assembly import SpilledRows, read_spilled_rows
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib.ingest.dataset.identifiers import (
    find_respelled,
    hash_identifiers,
    may_respell,
    spell_plainly,
)
from pmflib.ingest.dataset.quarantine import QUARANTINE, read_part
from pmflib.ingest.dataset.repeated_rows import (
    describe_repeated,
    find_repeated,
    hash_codes,
    limit_rows,
)
from pmflib.ingest.dataset.spills import Spill, is_among
from pmflib.schema import Schema
from pmflib.store.array_groups import read_arrays
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import SAMPLES, FileStep, list_file_steps, list_sources
from pmflib.store.sample_blocks import list_blocks, read_block
from pmflib_tasks.guards.findings import Measurement
from pmflib_tasks.guards.identity_guards import measure_respelled
from pmflib_tasks.guards.row_guards import Changes, bound_share

ODD = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier that spreads levels over 64 bits (Knuth 1998, The Art of Computer Programming 3, section 6.4)."""
MOST_NAMES = 1 << 22
"""Largest number of rows whose identifiers are all compared as numbers."""
SECTOR = "\0" * 512
"""Zeros of a sector that a disk has lost."""
LONG_ROW = 3.0
"""Multiple of the mean length beyond which a quarantined row has swallowed others."""
MEASURED_SUFFIXES = (".csv", ".tsv", ".txt")
"""Suffixes of files whose number of bytes is that of their rows: neither compressed nor Parquet."""


def measure_losses(
    store: Store, dataset: Reference, last: Reference, changes: Changes, schema: Schema, layout: str
) -> Iterator[Measurement]:
    """Count the answers that files of the last run had and that no changed or new file has: guard ``lost_answers``.

    Parameters
    ----------
    store, dataset, last
        Datasets of this run and of the last run, encoded with one schema.
    changes
        Differences of the files.
    schema, layout
        Variables and levels, and layout of the sources.

    Notes
    -----
    Only the parts of files that have changed are read. Without identifiers, an answer is lost if neither the row of the
    same number nor a whole row like it is left, whichever loses less.
    """
    now, before = list_file_steps(store, dataset), list_file_steps(store, last)
    known, current = ({step.step.identity for step in steps} for steps in (before, now))
    digests = {step.source.digest for step in now}
    changed = {
        change.former.name: change.former
        for change in changes.new
        if change.former and change.former.digest not in digests
    }
    if not changed:
        yield Measurement(
            "lost_answers", "all files", 0, "no file of the last run has lost answers"
        )
        return
    new = [step for step in now if step.step.identity not in known]
    has_names = all(step.step.kind == "spill" for step in new)
    nothing = np.empty(0, np.uint64)
    held = np.unique(
        np.concatenate([nothing, *(_read_keys(store, [step], schema, layout) for step in new)])
        if has_names
        else nothing
    )
    for name, former in changed.items():
        gone = [s for s in before if s.name == name and s.step.identity not in current]
        if has_names and all(step.step.kind == "spill" for step in gone):
            answers = (_read_keys(store, [step], schema, layout) for step in gone)
            lost = sum(int(np.count_nonzero(~is_among(each, held))) for each in answers)
        else:
            own = [step for step in new if step.name == name]
            parts = (_read_codes(store, steps, schema) for steps in (gone, own, new))
            lost = _count_lost_answers(*parts)
        total = int(former.level_counts.sum())
        share = percent(lost / max(total, 1))
        said = f"{name}: {lost:,} of {total:,} answers of the last run are gone or changed: {share}"
        yield Measurement("lost_answers", name, bound_share(lost, total), said)


def _count_lost_answers(former: IntArray, own: IntArray, new: IntArray) -> int:
    """Count the answers of rows without identifiers that are lost, by the number of the row or by whole rows.

    Parameters
    ----------
    former, own
        Codes of the changed parts of a file in the last run, and now.
    new
        Codes of all new parts of files.
    """
    n_rows = min(len(former), len(own))
    kept = former[:n_rows] == own[:n_rows]
    in_place = np.count_nonzero((former[:n_rows] >= 0) & ~kept) + np.count_nonzero(
        former[n_rows:] >= 0
    )
    rows, index = np.unique(np.concatenate([former, new]), axis=0, return_inverse=True)
    sides = (index.ravel()[: len(former)], index.ravel()[len(former) :])
    n_former, n_new = (np.bincount(side, minlength=len(rows)) for side in sides)
    whole = np.maximum(n_former - n_new, 0) @ (rows >= 0).sum(axis=1)
    return int(min(in_place, whole))


def _read_codes(store: Store, steps: Sequence[FileStep], schema: Schema) -> IntArray:
    """Read the codes of partitions of rows without identifiers, in the order of the file; spills have none."""
    found = [np.empty((0, schema.n_variables), np.int64)]
    for step in steps:
        if step.step.kind == "spill":
            continue
        path = store.locate(step.step) / SAMPLES
        blocks = list(list_blocks(path))
        if blocks:
            rows = np.concatenate([block.rows for block in blocks])
            codes = np.concatenate([read_block(block).to_codes(schema.offsets) for block in blocks])
            numbers = read_arrays(path, ["row"])[0]["row"]
            found.append(codes[np.argsort(numbers[rows])].astype(np.int64))
    return np.concatenate(found)


def _read_keys(store: Store, steps: Sequence[FileStep], schema: Schema, layout: str) -> HashArray:
    """Read a key of the sample and the level of each answer of some spills."""
    rows = read_answers(store, steps, schema, layout)
    answered, levels = list_levels(rows.values, schema)
    keys: HashArray = hash_identifiers(rows.samples)[answered] + ODD * levels.astype(np.uint64)
    return keys


def list_levels(values: IntArray, schema: Schema) -> tuple[IntArray, IntArray]:
    """List the row and the level of each answer of spilled rows: levels of long rows, codes of wide ones."""
    if values.ndim == 1:
        answered = np.flatnonzero(values >= 0)
        return answered, values[answered].astype(np.int64)
    answered, variables = np.nonzero(values >= 0)
    return answered, schema.offsets[variables] + values[answered, variables]


def read_answers(
    store: Store, steps: Sequence[FileStep], schema: Schema, layout: str
) -> SpilledRows:
    """Read all rows of some spills, in their order."""
    return read_spilled_rows(
        [store.locate(step.step) for step in steps],
        [step.name for step in steps],
        schema,
        layout,
        -np.inf,
        lambda spill: spill.read_buckets(0, spill.n_buckets),
    )


def measure_spellings(store: Store, dataset: Reference, changes: Changes) -> Iterator[Measurement]:
    """Measure how many identifiers of new files are one number in two spellings: guard ``identifier_spelling``.

    Identifiers are read only if their forms leave this open, and of very many a part.

    Yields
    ------
    A measurement if new files have identifiers.
    """
    subject = "identifiers of new files"
    new = {change.file.name for change in changes.new if change.file.forms}
    if not new:
        return
    if not may_respell({form for change in changes.new for form in change.file.forms}):
        yield measure_respelled([], 0, subject)
        return
    n_rows = sum(change.file.rows.rows_encoded for change in changes.new)
    part = np.uint64(n_rows // MOST_NAMES + 1)
    names = pa.array([], pa.binary())
    for step in list_file_steps(store, dataset):
        if step.name not in new or step.step.kind != "spill":
            continue
        for batch in Spill(store.locate(step.step), {}).read_names():
            if part > 1:
                # spellings of one number are kept together
                plain = hash_identifiers(spell_plainly(batch).cast(pa.binary()))
                batch = batch.filter(pa.array(plain % part == 0))
            names = pa.concat_arrays([names, batch]).unique()
    yield measure_respelled(find_respelled(names), len(names), subject)


def measure_repeated(
    store: Store,
    dataset: Reference,
    files: Sequence[FileAccount],
    changes: Changes,
    schema: Schema,
) -> Iterator[Measurement]:
    """Measure the share of new rows without identifiers that come again: guard ``repeated_rows``.

    New files are read first, then the latest of the others, up to `limit_rows` in all. What earlier files repeat of
    each other was accepted, and is subtracted.

    Parameters
    ----------
    store, dataset, schema
        The dataset, and its variables.
    files, changes
        All files, and the new ones.

    Yields
    ------
    A measurement if there are new rows, and rows have no identifiers.
    """
    steps = list_file_steps(store, dataset)
    new = {change.file.name: change.file.rows.rows_encoded for change in changes.new}
    if not sum(new.values()) or any(step.step.kind == "spill" for step in steps):
        return
    left, hashed = limit_rows(schema.n_variables), dict[str, HashArray]()
    # new files first, then the latest of the others
    for name in (*new, *(file.name for file in reversed(files) if file.name not in new)):
        parts = [np.empty(0, np.uint64)]
        for step in (each for each in steps if each.name == name and left > 0):
            parts.append(_hash_rows(store, step, schema))
            left -= parts[-1].size
        hashed[name] = np.concatenate(parts)
    names = [file.name for file in files if hashed[file.name].size]
    names.sort(key=lambda name: name in new)
    rows = [hashed[name] for name in names]
    repeated = find_repeated(rows)
    if repeated is None:
        reason = "rows have so few levels that equal ones are no evidence"
        yield Measurement("repeated_rows", "new rows", None, reason)
        return
    # of a file that has grown, the last rows are new
    added = {
        name: each[-n:] for name, each in zip(names, repeated, strict=True) if (n := new.get(name))
    }
    if not added:
        return
    before = [each for name, each in zip(names, repeated, strict=True) if name not in new]
    usual = float(np.mean(np.concatenate(before))) if before else 0.0
    share = float(np.mean(np.concatenate([*added.values()])))
    said = describe_repeated([*added], [*added.values()]) or "no new rows come again"
    yield Measurement("repeated_rows", "new rows", max(share - usual, 0.0), said)


def _hash_rows(store: Store, step: FileStep, schema: Schema) -> HashArray:
    """Hash the rows of a partition without identifiers, in the order of the file."""
    path = store.locate(step.step) / SAMPLES
    blocks = list(list_blocks(path))
    if not blocks:
        return np.empty(0, np.uint64)
    rows = np.concatenate([block.rows for block in blocks])
    parts = [hash_codes(read_block(block).to_codes(schema.offsets)) for block in blocks]
    numbers = read_arrays(path, ["row"])[0]["row"]
    hashes: HashArray = np.concatenate(parts)[np.argsort(numbers[rows])]
    return hashes


def measure_empty(
    changes: Changes, last: Sequence[FileAccount], schema: Schema, layout: str
) -> Iterator[Measurement]:
    """Compare the share of empty values of each new file, by column, with the largest of an earlier file.

    Parameters
    ----------
    changes
        Differences of the files.
    last
        Files of the last run.
    schema, layout
        Variables and levels, and layout of the sources. The values of a long file are one column.

    Yields
    ------
    For each new file the measurement of the guard ``empty_values`` of the column whose share has grown most; none
    without earlier files.
    """
    comparable = [file for file in last if file.level_counts.size == schema.n_levels]
    comparable = [file for file in comparable if file.rows.rows_encoded]
    if not comparable:
        return
    long = layout == "long"
    starts = np.zeros(1, np.int64) if long else schema.offsets[:-1]
    names = ("the value",) if long else schema.names

    def count_empty(file: FileAccount) -> IntArray:
        empty: IntArray = file.rows.rows_encoded - np.add.reduceat(file.level_counts, starts)
        return np.maximum(empty, 0)

    usual = np.max([count_empty(file) / file.rows.rows_encoded for file in comparable], axis=0)
    for change in changes.new:
        if not (rows := change.file.rows.rows_encoded):
            continue
        empty = count_empty(change.file)
        more = [bound_share(n, rows) for n in empty.tolist()] - usual
        column = int(np.argmax(more))
        said = (
            f"{change.subject}: {names[column]} is empty in {empty[column]:,} of {rows:,} rows, "
            f"{percent(empty[column] / rows)}; in earlier files in at most {percent(usual[column])}"
        )
        yield Measurement("empty_values", change.subject, max(float(more[column]), 0.0), said)


def measure_damage(
    store: Store, dataset: Reference, files: Sequence[FileAccount], changes: Changes
) -> Iterator[Measurement]:
    """Estimate the share of rows that quarantined rows of each new file have swallowed: guard ``damaged_rows``.

    A block of zeros, or a lost quotation mark, makes one long row of many. A sector of zeros counts as all rows.
    """
    import pyarrow.compute as pc

    n_bytes = {file.name: file.bytes or 0 for file in list_sources(store, dataset)}
    new = {change.file.name for change in changes.new}
    subjects = {file.name: file for file in files if file.name in new and file.rows.rows_unfit}
    raw: dict[str, list[pa.Array]] = {name: [] for name in subjects}
    for step in list_file_steps(store, dataset):
        if step.name in subjects:
            for batch in read_part(store.locate(step.step) / QUARANTINE, None):
                raw[step.name].append(batch["raw"])
    for name, file in subjects.items():
        texts = pa.chunked_array(raw[name], pa.string())
        rows = file.rows.rows_in
        lengths = pc.binary_length(texts).to_numpy().astype(np.float64)
        swallowed = 0.0
        if PurePath(name).suffix.lower() in MEASURED_SUFFIXES and rows > lengths.size:
            mean = max((n_bytes[name] - float(lengths.sum())) / (rows - lengths.size), 1.0)
            swallowed = float((lengths[lengths > LONG_ROW * mean] / mean - 1).sum())
        zeros = bool(pc.any(pc.match_substring(texts, SECTOR)).as_py())
        share = 1.0 if zeros else swallowed / (rows + swallowed)
        said = f"{name}: rows in quarantine are as long as {swallowed:,.0f} rows more"
        said += ", and hold a block of zeros" if zeros else ""
        yield Measurement("damaged_rows", name, share, said)
