"""Erase tasks and workers from a store of label logs.

A worker has labels in most partitions and contributes to every count. Artefacts made of rows are therefore deleted, and
the next run reads the files again. The labels and the live model of the workers, which are in use until then, are
rewritten without the erased tasks and workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.errors import StoreError
from pmflib.base.json_files import parse_json
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import hash_identifiers, make_keys
from pmflib.ingest.dataset.spills import LEVELS_FILE, Spill
from pmflib.store.array_groups import read_arrays
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import LEVEL_COUNTS
from pmflib.store.erasures import Erasure, ErasureList, Replacement
from pmflib.store.file_digests import check_file, read_checked
from pmflib.store.run_records import find_last_run, find_live, list_histories
from pmflib.store.zarr_arrays import write_arrays
from pmflib_tasks.holdings import Holder, LogHolder, RawFile

OF_ROWS = (
    "census",
    "spill",
    "spill-list",
    "samples",
    "dataset",
    "known-labels",
    "classifier",
    "worker-pairs",
    "crowd-model",
    "comparison",
    "quality",
)
"""Kinds of artefacts made of rows, directly or indirectly, which are deleted and rebuilt."""
MODEL = "worker-model"
"""Kind of models of workers, and name of their Zarr group."""
WORKER_AXES = {"mass": 0, "held_out_mass": 1}
"""Arrays of models of workers with an axis of workers, and this axis."""


@dataclass
class LabelHoldings:
    """Rows of erased tasks and workers in a store of label logs.

    Parameters
    ----------
    entries
        All manifest entries by identity.
    tasks, workers
        Erased tasks and workers; None if there are none.
    rows
        Number of their rows by identity of the artefact.
    digests
        Salted digests of those found.
    raw_files
        Raw files of the last runs that contain rows of them.
    """

    entries: Mapping[str, Entry]
    tasks: ErasedSamples | None
    workers: ErasedSamples | None
    rows: dict[str, int] = field(default_factory=dict)
    digests: set[str] = field(default_factory=set)
    raw_files: list[RawFile] = field(default_factory=list)

    def note(self, identity: str, rows: int, names: list[str], erased: ErasedSamples) -> None:
        """Add the rows of an artefact."""
        self.rows[identity] = self.rows.get(identity, 0) + rows
        self.digests |= {erased.digest_identifier(name.encode()) for name in names}


def holds_labels(store: Store) -> bool:
    """Whether a store contains label logs."""
    return any(entry.reference.kind in ("census", "labels") for entry in store.entries())


def check_label_store(store: Store) -> None:
    """Check that a store of label logs contains no other data.

    Raises
    ------
    StoreError
        If it contains other data, whose samples may have the same names.
    """
    if any(entry.reference.kind == "counts" for entry in store.entries()):
        raise StoreError(
            f"store {store.name!r} contains a label log and other data, which have no workers; give each its own "
            "store (store.path), and delete this one"
        )


def take_out(
    store: Store, erasures: ErasureList, act: Erasure
) -> tuple[Mapping[str, Entry], list[RawFile]]:
    """Rewrite the labels and models in use without erased tasks and workers: see `LogHolder.take_out`."""
    found = find_label_holdings(store, erasures)
    rewrite_label_logs(store, erasures, act, found)
    return found.entries, found.raw_files


def find_label_holdings(store: Store, erasures: ErasureList) -> LabelHoldings:
    """Find the rows of erased tasks and workers in a store of label logs.

    Raises
    ------
    StoreError
        If an artefact is damaged, so that its content is unknown.
    """
    entries = {entry.reference.identity: entry for entry in store.entries()}
    both = (ErasedSamples.of_list(erasures), ErasedSamples.of_list(erasures, "workers"))
    found = LabelHoldings(entries, *both)
    current = _list_current(store, "dataset")
    inputs = {part.identity for each in current for part in _list_spills(entries, each)}
    for identity, entry in entries.items():
        if entry.reference.kind == "spill" and not store.lacks_files(entry.reference):
            rows = _look_into_spill(store.locate(entry.reference), identity, found)
            if rows and identity in inputs:
                name, source = str(entry.options["name"]), entry.inputs["source"].digest
                found.raw_files.append(RawFile(name, source, rows))
        elif entry.reference.kind == "labels":
            _look_into_labels(store.locate(entry.reference), identity, found)
    return found


def rewrite_label_logs(
    store: Store, erasures: ErasureList, act: Erasure, found: LabelHoldings
) -> None:
    """Rewrite the labels and models in use, and record the artefacts to replace and delete in the erasure."""
    new: dict[str, Reference] = {}
    gone = {i for i, entry in found.entries.items() if entry.reference.kind in OF_ROWS}
    digest = {
        f"erasures of {what}": each.digest
        for what, each in (("tasks", found.tasks), ("workers", found.workers))
        if each is not None
    }
    for kind, rewrite in ((MODEL, _rewrite_model), ("labels", _rewrite_labels)):
        current = {each.identity for each in _list_current(store, kind)}
        for identity, entry in found.entries.items():
            if entry.reference.kind != kind or not _holds(store, entry, found):
                continue
            gone.add(identity)
            if identity in current:
                new[identity] = rewrite(store, entry, found, digest, new).reference
    known = {each.old.identity for each in act.replaced}
    act.replaced += [
        Replacement(
            found.entries[identity].reference, new.get(identity), found.rows.get(identity, 0), True
        )
        for identity in sorted(gone - known)
    ]
    act.found = sorted({*act.found, *(found.digests & {*act.samples})})


def _list_current(store: Store, kind: str) -> list[Reference]:
    """Artefacts of a kind in use: those of the last runs, and live models."""
    stage = {"dataset": "dataset", "labels": "labels", MODEL: "worker_model"}[kind]
    current = []
    for name in list_histories(store):
        run, live = find_last_run(store, name), find_live(store, name)
        current += [run.stages[stage]] if run is not None and stage in run.stages else []
        current += [live] if live is not None and live.kind == kind else []
    return current


def _list_spills(entries: Mapping[str, Entry], dataset: Reference) -> list[Reference]:
    """Spills of a dataset; empty if it is gone."""
    entry = entries.get(dataset.identity)
    listed = None if entry is None else entries.get(entry.inputs["spills"].identity)
    return [] if listed is None else [*listed.inputs.values()]


def _look_into_spill(folder: Path, identity: str, found: LabelHoldings) -> int:
    """Count the rows of erased tasks and workers in a spill."""
    total, spill = 0, Spill(folder, {})
    if (tasks := found.tasks) is not None:
        rows = spill.read_samples(np.unique(make_keys(tasks.hashes, spill.n_buckets)))
        samples = rows["sample"].combine_chunks()
        mine = samples.filter(pa.array(tasks.find(samples, hash_identifiers(samples))))
        names = [name.decode() for name in mine.unique().to_pylist()]
        found.note(identity, len(mine), names, tasks)
        total += len(mine)
    if (workers := found.workers) is not None:
        # each level is a JSON list of worker and label
        levels = [
            parse_json(each.encode()) for each in parse_json(read_checked(folder / LEVELS_FILE))
        ]
        owners = [worker for worker, _ in levels]
        counts = np.load(folder / LEVEL_COUNTS, allow_pickle=False)
        mine = workers.find_texts(owners)
        n_rows = int(counts[mine].sum())
        names = sorted({owners[row] for row in np.flatnonzero(mine).tolist()})
        found.note(identity, n_rows, names, workers)
        total += n_rows
    return total


def _look_into_labels(folder: Path, identity: str, found: LabelHoldings) -> None:
    """Count the rows of erased tasks and workers in the tables of labels and workers."""
    for path, column, erased in _list_tables(folder, found):
        if erased is not None:
            check_file(path)
            names = pq.read_table(path, columns=[column])[column].to_pylist()
            mine = erased.find_texts(names)
            found.note(
                identity, int(mine.sum()), [names[row] for row in np.flatnonzero(mine)], erased
            )


def _list_tables(
    folder: Path, found: LabelHoldings
) -> list[tuple[Path, str, ErasedSamples | None]]:
    """Tables of an artefact of labels, with the column of identifiers and the erased ones of this kind."""
    labels = [(path, "task", found.tasks) for path in sorted((folder / "labels").glob("*.parquet"))]
    return [*labels, (folder / "workers.parquet", "worker", found.workers)]


def _holds(store: Store, entry: Entry, found: LabelHoldings) -> bool:
    """Whether labels or a model contain erased tasks or workers."""
    if entry.reference.kind == "labels":
        return bool(found.rows.get(entry.reference.identity)) or entry.summary != _clean_summary(
            entry.summary, found
        )
    if found.workers is None:
        return False
    _, attributes = read_arrays(store.locate(entry.reference) / MODEL, [])
    return bool(found.workers.find_texts(attributes["workers"]).any())


def _rewrite_model(
    store: Store,
    entry: Entry,
    found: LabelHoldings,
    digest: Mapping[str, str],
    new: Mapping[str, Reference],
) -> Entry:
    """Rewrite a model of workers without the erased ones."""
    arrays, attributes = read_arrays(store.locate(entry.reference) / MODEL)
    assert found.workers is not None
    kept = ~found.workers.find_texts(attributes["workers"])
    dims = attributes["dimensions"]
    for name, axis in WORKER_AXES.items():
        arrays[name] = np.compress(kept, arrays[name], axis=axis)
    names = [name for name, is_kept in zip(attributes["workers"], kept, strict=True) if is_kept]
    known = set(names)
    copiers = [[each for each in group if each[0] in known] for group in attributes["copiers"]]

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        content = {name: (values, dims[name]) for name, values in arrays.items()}
        write_arrays(folder / MODEL, content, {**attributes, "workers": names, "copiers": copiers})
        return {**entry.summary, "workers": len(names)}

    return _build(store, entry, digest, {}, write)


def _rewrite_labels(
    store: Store,
    entry: Entry,
    found: LabelHoldings,
    digest: Mapping[str, str],
    new: Mapping[str, Reference],
) -> Entry:
    """Rewrite labels without the rows of erased tasks and workers."""
    old = store.locate(entry.reference)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        (folder / "labels").mkdir()
        for path, column, erased in _list_tables(old, found):
            table = pq.read_table(path)
            if erased is not None:
                mine = erased.find_texts(table[column].to_pylist())
                table = table.filter(pa.array(~mine))
            pq.write_table(table, folder / path.relative_to(old), compression="zstd")
        return _clean_summary(entry.summary, found)

    return _build(store, entry, digest, new, write)


def _build(
    store: Store,
    entry: Entry,
    digest: Mapping[str, str],
    new: Mapping[str, Reference],
    write: Callable[[Path, Path], Mapping[str, Any]],
) -> Entry:
    """Build the replacement of an artefact."""
    return store.build(
        entry.reference.kind,
        inputs={role: new.get(each.identity, each) for role, each in entry.inputs.items()},
        options={**entry.options, **digest},
        version=entry.version,
        write=write,
    )


def _clean_summary(summary: Mapping[str, Any], found: LabelHoldings) -> dict[str, Any]:
    """Remove items that mention an erased task or worker from the summary of labels."""
    erased = [each for each in (found.tasks, found.workers) if each is not None]

    def is_clean(item: Mapping[str, Any]) -> bool:
        texts = [value for value in item.values() if isinstance(value, str)]
        parts = [part.strip(",.;:()'") for text in texts for part in [text, *text.split()]]
        return not any(each.find_texts(parts).any() for each in erased)

    return {
        key: [item for item in value if is_clean(item)]
        if key in ("ask_again", "suspicious_workers")
        else value
        for key, value in summary.items()
    }


HOLDER = Holder(
    dict.fromkeys(
        (*("census", "known-labels", "classifier", "worker-pairs", "crowd-model"), MODEL, "labels")
    ),
    log=LogHolder(
        holds_labels,
        "holds label logs, whose samples are tasks: give --task or --worker",
        check_label_store,
        take_out,
    ),
)
"""What label logs hold of tasks and workers."""
