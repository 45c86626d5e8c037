"""The guards of a dataset in a store, compared with the last run and with the run of the live model."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.errors import StoreError
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import from_json
from pmflib.counts.cell_changes import merge_changes
from pmflib.counts.pair_counts import PairCounts, load_fold_singles, load_shape
from pmflib.counts.zarr_tables import StoredTables
from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.file_accounts import find_summary, read_files
from pmflib.ingest.dataset.layering import join_keys
from pmflib.ingest.dataset.quarantine import read_quarantine
from pmflib.ingest.dataset.spills import Spill, is_among
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import FileStep, list_file_steps, read_content
from pmflib.store.file_digests import holds, read_checked
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.dependence_guards import can_compare, count_inside, measure_young
from pmflib_tasks.guards.drift import (
    MOST_LEVELS,
    DriftTests,
    LiveData,
    find_added,
    find_file_drift,
    find_pair_drift,
    measure_dependence,
    measure_drift,
)
from pmflib_tasks.guards.file_ledger import (
    list_levels,
    measure_damage,
    measure_empty,
    measure_losses,
    measure_repeated,
    measure_spellings,
    read_answers,
)
from pmflib_tasks.guards.findings import Finding, Measurement, assess
from pmflib_tasks.guards.identity_guards import (
    NIGHTS_KEPT,
    Night,
    find_twins,
    is_young,
    measure_forms,
    measure_night,
)
from pmflib_tasks.guards.row_guards import (
    Changes,
    find_file_changes,
    find_new_columns,
    measure_rows,
    measure_sizes,
    measure_superseded,
)
from pmflib_tasks.guards.time_guards import Clock, measure_times

PAIRS = "pairs"
"""Group of the pair counts in the folder of an artefact of counts."""
FILE_GUARDS = ("variable_drift", "scale_drift", "answer_drift")
"""Guards that compare level counts of files."""
PAIR_GUARDS = ("pair_drift", "dependence_drift")
"""Guards that compare pair counts of samples."""


def check_dataset(
    store: Store,
    schema: Schema,
    layout: str,
    config: QualityConfig,
    *,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference] | None,
    live: Mapping[str, Reference] | None,
    history: Sequence[Night] = (),
) -> tuple[list[Finding], list[Night]]:
    """Run all guards except those of times.

    Parameters
    ----------
    store
        Store that holds the artefacts.
    schema
        Variables and levels.
    layout
        Layout of the sources: "wide" or "long".
    config
        Limits.
    now, last, live
        Stages "dataset" and "counts" of this run, of the last run that reached its end, and of the run that made the
        live model; None if there is none.
    history
        Nights up to the last run, from `read_nights`.

    Returns
    -------
    All findings, and the nights up to this one, which is added if it has new files.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    measured, changes = measure_files(
        store,
        config,
        now["dataset"],
        None if last is None else last["dataset"],
        None if last is None else _schema_of(store, last),
        samples=(schema, layout),
    )
    night, superseded = (None, []) if last is None else _measure_night(store, now, last, changes)
    measured += superseded
    compared, tests, dependence = _compare_with_live(
        store, schema, layout, changes, now=now, last=last, live=live, is_young=is_young(history)
    )
    measured += [*compared, *measure_drift(tests, config)]
    nights = list(history)
    if night is not None:
        night = replace(night, dependence=dependence)
        # the guards of a young pipeline have measured the dependence already
        done = {each.guard for each in compared}
        measured += [each for each in measure_night(night, history) if each.guard not in done]
        nights = [*history, night][-NIGHTS_KEPT:]
    return assess(measured, config), nights


def measure_files(
    store: Store,
    config: QualityConfig,
    dataset: Reference,
    last: Reference | None,
    last_schema: Schema | None = None,
    *,
    samples: tuple[Schema, str] | None = None,
) -> tuple[list[Measurement], Changes]:
    """Measure rows, files and columns, for the guards that apply to every layout.

    Parameters
    ----------
    store, config
        Store that holds the artefacts, and limits.
    dataset, last
        Datasets of this run and of the last run that reached its end; None if there is none.
    last_schema
        Variables of the last run, which may have left the schema since; None for label logs.
    samples
        Schema and layout of rows that belong to samples, which may return; None for the tasks of a label log.

    Returns
    -------
    Measurements, and the differences of the files.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    files = read_files(store, dataset)
    last_files = [] if last is None else files if last == dataset else read_files(store, last)
    changes = find_file_changes(files, last_files)
    measured = [
        *measure_rows(
            Account.from_json(find_summary(store, dataset)),
            files,
            None if last is None else Account.from_json(find_summary(store, last)),
            changes,
            config,
        ),
        *measure_sizes(changes, last_files),
        *measure_damage(store, dataset, files, changes),
    ]
    known = None
    if last is not None:
        columns = () if last_schema is None else last_schema.columns
        known = {*columns, *(name for file in last_files for name in file.ignored_columns)}
    measured += find_new_columns(files, changes, known)
    measured += measure_forms(changes, last_files)
    measured += measure_spellings(store, dataset, changes)
    if samples is not None:
        measured += find_twins(files, changes)
        measured += measure_empty(changes, last_files, *samples)
        measured += measure_repeated(store, dataset, files, changes, samples[0])
        is_same = last_schema is not None and last_schema.digest == samples[0].digest
        is_same &= last is not None and _are_alike(store, dataset, last)
        if last is not None and is_same and not config.removals_expected:
            measured += measure_losses(store, dataset, last, changes, *samples)
    return measured, changes


def _compare_with_live(
    store: Store,
    schema: Schema,
    layout: str,
    changes: Changes,
    *,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference] | None,
    live: Mapping[str, Reference] | None,
    is_young: bool,
) -> tuple[list[Measurement], list[DriftTests], float | None]:
    """Compare new rows with the data of the live model.

    Returns
    -------
    Measurements of guards that do not apply, and those of a young pipeline; tests; dependence of pairs.
    """
    if live is None or last is None:
        reason = "there is no live model to compare with"
        return _skip(FILE_GUARDS + PAIR_GUARDS, reason), [], None
    if any(_schema_of(store, each).digest != schema.digest for each in (live, last)):
        reason = "the schema has changed since the live model was made"
        return _skip(FILE_GUARDS + PAIR_GUARDS, reason), [], None
    measured: list[Measurement] = []
    tests: list[DriftTests] = []
    dependence = None
    if any(change.file.rows.rows_encoded for change in changes.new):
        singles = load_fold_singles(store.locate(live["counts"]) / PAIRS)
        data = LiveData(read_files(store, live["dataset"]), singles)
        tests += find_file_drift(schema, layout, data, changes.new)
    else:
        measured += _skip(FILE_GUARDS, "no new rows to compare")
    if now["counts"].digest == last["counts"].digest:
        measured += _skip(PAIR_GUARDS, "no new samples to compare")
    elif any("raking" in read_content(store, each["dataset"]) for each in (now, last, live)):
        measured += _skip(
            PAIR_GUARDS, "weights were raked again, and counts of all samples changed"
        )
    elif not all(_count_all_pairs(store, each) for each in (now, last, live)):
        measured += _skip(PAIR_GUARDS, "the pairs of some variables are not counted")
    elif schema.n_levels > MOST_LEVELS:
        reason = f"{schema.n_levels:,} levels; pairs of at most {MOST_LEVELS:,} are compared"
        measured += _skip(PAIR_GUARDS, reason)
    else:
        added, reference, before = _load_pairs(store, now, last, live)
        if added.min(initial=0) < 0:
            # old and new answers of one sample have neither the old nor the new dependence
            measured += _skip(PAIR_GUARDS, "samples were removed or changed")
        else:
            tests += find_pair_drift(schema, added, reference)
        # compared with all earlier nights, whether or not they made a model
        if (new := find_added(added)) is not None:
            dependence = measure_dependence(schema, new, before)
        if is_young and new is not None and can_compare(schema):
            inside = _count_inside(store, schema, layout, changes, now=now, last=last)
            stored = StoredTables(store.locate(last["counts"]) / PAIRS)
            folds = _count_effective(stored, [stored.read(fold) for fold in range(stored.n_folds)])
            measured += measure_young(schema, folds, new if inside is None else inside, new)
    return measured, tests, dependence


def _count_inside(
    store: Store,
    schema: Schema,
    layout: str,
    changes: Changes,
    *,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference],
) -> IntArray | None:
    """Count the pairs of new answers of the same samples; None if samples have no identifiers: none return."""
    starts, new = _list_new(store, now, last, changes)
    # of a file that comes again with corrections, most answers are not new
    added = {each.file.name for each in changes.new if each.grown or each.former is None}
    new = [step for step in new if step.name in added]
    if not new:
        return None
    rows = read_answers(store, new, schema, layout)
    later = rows.numbers > np.array([starts[step.name] for step in new])[rows.files]
    samples = rows.samples.dictionary_encode().indices.to_numpy()[later].astype(np.int64)
    answered, levels = list_levels(rows.values[later], schema)
    return count_inside(samples[answered], levels, schema)


def _count_effective(stored: StoredTables, tables: list[IntArray]) -> list[IntArray]:
    """Scale weighted pair counts: significance depends on the effective number of samples, not on their weights."""
    if stored.weights is None:
        return tables
    scale = stored.weights.n_effective / sum(stored.weights.totals)
    return [np.rint(table * scale).astype(np.int64) for table in tables]


def _skip(guards: Sequence[str], reason: str) -> list[Measurement]:
    return [Measurement(guard, "all", None, reason) for guard in guards]


def _measure_night(
    store: Store, now: Mapping[str, Reference], last: Mapping[str, Reference], changes: Changes
) -> tuple[Night | None, list[Measurement]]:
    """Count the known samples and the repeated rows of new files, and measure those that earlier rows supersede.

    The night is None if no row is new. Without identifiers, neither samples nor repeated rows can be counted.
    """
    starts, new = _list_new(store, now, last, changes)
    if not starts:
        return None, []
    rows = sum(change.file.rows.rows_encoded for change in changes.new)
    before = [file.step for file in list_file_steps(store, last["dataset"])]
    if not new or not _are_alike(store, now["dataset"], last["dataset"]):
        return Night(rows=rows), []
    keys = join_keys(
        [Spill(store.locate(file.step), {}).read_keys(starts[file.name]) for file in new]
    )
    seen = np.zeros(keys.size, np.bool_)
    for step in before:
        if store.find_before(step.identity) is not None:
            seen |= is_among(keys, Spill(store.locate(step), {}).read_keys())
    repeated, agreeing, superseded = _count_repeated(store, now["dataset"], starts)
    night = Night(keys.size, int(np.count_nonzero(seen)), rows, repeated, agreeing)
    return night, [measure_superseded(rows, superseded)]


def _are_alike(store: Store, *datasets: Reference) -> bool:
    """Whether one version has written the rows of two datasets: rows of an earlier one cannot be read."""
    one, other = (read_content(store, each)["origin"].get("version") for each in datasets)
    return bool(one == other)


def _list_new(
    store: Store, now: Mapping[str, Reference], last: Mapping[str, Reference], changes: Changes
) -> tuple[dict[str, int], list[FileStep]]:
    """List the spills of new files, and the number of leading rows of each file that the last run had already."""
    starts = {
        change.file.name: change.former.rows.rows_in if change.grown and change.former else 0
        for change in changes.new
        if change.file.rows.rows_encoded
    }
    known = {file.step.identity for file in list_file_steps(store, last["dataset"])}
    new = [file for file in list_file_steps(store, now["dataset"]) if file.name in starts]
    new = [file for file in new if file.step.identity not in known and file.step.kind == "spill"]
    return starts, new


def _count_repeated(
    store: Store, dataset: Reference, starts: Mapping[str, int]
) -> tuple[int, int, Counter[bool]]:
    """Count the rows of new files that other files repeat.

    Parameters
    ----------
    store, dataset
        The dataset.
    starts
        Number of leading rows of each new file that are not new.

    Returns
    -------
    Repeated rows; those of them that agree; and those that earlier rows supersede, by whether they agree.
    """
    import pyarrow.compute as pc

    agrees: dict[tuple[str, int], bool] = {}
    superseded = Counter[bool]()
    sides = [("file", "row"), ("winner_file", "winner_row")]
    for batch in read_quarantine(store, dataset):
        found = batch.filter(pc.equal(batch["reason"], "duplicate"))
        are_new = [_are_new(found[file], found[row], starts) for file, row in sides]
        lost = found.filter(pa.array(are_new[0] & ~are_new[1]))
        superseded.update(lost["winner_agrees"].to_pylist())
        for side, is_new in zip(sides, are_new, strict=True):
            chosen = found.filter(pa.array(is_new & (are_new[0] != are_new[1])))
            names, rows, same = (chosen[name].to_pylist() for name in (*side, "winner_agrees"))
            for name, row, agreeing in zip(names, rows, same, strict=True):
                agrees[name, row] = agrees.get((name, row), False) or agreeing
    return len(agrees), sum(agrees.values()), superseded


def _are_new(files: pa.StringArray, rows: pa.Int64Array, starts: Mapping[str, int]) -> BoolArray:
    coded = files.dictionary_encode()
    names = coded.dictionary.to_pylist()
    first = np.array([starts.get(name, np.iinfo(np.int64).max) for name in names], np.int64)
    new: BoolArray = rows.to_numpy() > first[coded.indices.to_numpy()]
    return new


def check_dataset_times(
    store: Store,
    config: QualityConfig,
    clock: Clock,
    *,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference] | None,
) -> list[Finding]:
    """Run the guards of times if files are new: see `measure_times`.

    Only the accounts of files are read, and the rows of files with impossible times.

    Raises
    ------
    StoreError
        If an artefact is missing or damaged.
    """
    if last is not None and last["dataset"] == now["dataset"]:
        return []
    steps = list_file_steps(store, now["dataset"])
    files = read_files(store, now["dataset"], counted=False)
    before = [] if last is None else read_files(store, last["dataset"], counted=False)
    changes = find_file_changes(files, before)

    def count_later(name: str, time: float) -> int:
        spills = [Spill(store.locate(each.step), {}) for each in steps if each.name == name]
        n_rows = sum(file.rows.rows_encoded for file in files if file.name == name)
        return n_rows - sum(spill.count_rows(math.nextafter(time, math.inf)) for spill in spills)

    return assess(
        measure_times(files, changes.new, clock, count_later, config.future_hours), config
    )


FINDINGS, NIGHTS = "findings.json", "nights.json"
"""Files of an artefact of quality: all findings of a run, and the nights up to it."""


def write_checks(folder: Path, findings: Sequence[Finding], nights: Sequence[Night]) -> None:
    """Write the findings of a run, and the nights up to it."""
    for name, content in (
        (FINDINGS, [asdict(each) for each in findings]),
        (NIGHTS, [asdict(each) for each in nights]),
    ):
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")


def read_nights(store: Store, quality: Reference | None) -> list[Night]:
    """Read the nights up to a run; none if the store no longer has its findings.

    Raises
    ------
    StoreError
        If they are damaged.
    """
    if quality is None or store.find(quality.identity) is None:
        return []
    path = store.locate(quality) / NIGHTS
    if not holds(path):
        return []
    try:
        return from_json(list[Night], parse_json(read_checked(path)))
    except StoreError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"quality {quality.digest[:12]} is damaged ({error}); delete folder {quality.path!r} of the store"
        ) from error


def _load_pairs(
    store: Store,
    now: Mapping[str, Reference],
    last: Mapping[str, Reference],
    live: Mapping[str, Reference],
) -> list[IntArray]:
    """Load the changes of pair counts since the last run, and the pair counts of the live model and of the last run."""
    before = _load_table(store, last["counts"])
    same = last["counts"].digest == live["counts"].digest
    reference = before if same else _load_table(store, live["counts"])
    stored = StoredTables(store.locate(now["counts"]) / PAIRS)
    if stored.base == last["counts"].digest:
        # reading the changes of one night takes a fraction of the time of reading all tables
        changes = np.zeros_like(before)
        folds = [stored.read_changes(fold) for fold in range(stored.n_folds)]
        merge_changes(folds).add_to(changes)
    else:
        changes = _load_table(store, now["counts"]) - before
    return _count_effective(stored, [changes, reference, before])


def _load_table(store: Store, counts: Reference) -> IntArray:
    table: IntArray = PairCounts.load_total(store.locate(counts) / PAIRS).tables[0]
    return table


def _count_all_pairs(store: Store, stages: Mapping[str, Reference]) -> bool:
    return StoredTables(store.locate(stages["counts"]) / PAIRS).is_complete


def _schema_of(store: Store, stages: Mapping[str, Reference]) -> Schema:
    return load_shape(store.locate(stages["counts"]) / PAIRS)[0]
