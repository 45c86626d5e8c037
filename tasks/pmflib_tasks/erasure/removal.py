"""Erase samples from a store, and certify the erasure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.arrays import BoolArray
from pmflib.base.errors import ConfigError, StoreError
from pmflib.base.json_records import from_json
from pmflib.ingest.dataset.build_steps import ERASURES
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import hash_identifiers, make_keys, read_sample_hashes
from pmflib.ingest.dataset.quarantine import QUARANTINE, QUARANTINE_HASHES, read_part
from pmflib.ingest.dataset.spills import Spill, is_among
from pmflib.ingest.options import name_separator
from pmflib.store.artefacts import Entry, Reference, Store, refuse_unwritable
from pmflib.store.care.collection import drop_unfinished
from pmflib.store.dataset import SAMPLES, read_content
from pmflib.store.erasures import (
    PURPOSE,
    Erasure,
    ErasureList,
    Replacement,
    new_list,
    read_erasures,
    stay_alone,
    write_erasures,
)
from pmflib.store.file_digests import list_dropped
from pmflib.store.leases import hold_lease
from pmflib.store.lineage import order_by_need
from pmflib.store.run_environment import describe_environment
from pmflib.store.run_records import (
    KNOWN,
    RECORDS,
    RunRecord,
    append_record,
    find_last_run,
    find_live,
    find_run_of,
    list_histories,
    list_records,
    now,
)
from pmflib.store.sample_blocks import read_identifier_texts
from pmflib_tasks.erasure.certificates import Certificate, certify
from pmflib_tasks.features import list_offers
from pmflib_tasks.holdings import (
    ErasedRows,
    LookInto,
    RawFile,
    describe_rows,
    find_log,
    look_into_tables,
)
from pmflib_tasks.stages.order import list_steps

WITHOUT_ROWS = (
    *("source", "cuts", "spill-list", "dataset", "counts", "quality", "rank", "start", "model"),
    *("reference", "scores", "comparison", "tables", "marginals"),
)
"""Kinds of artefacts of the core without identifiers of samples."""
Rebuild: TypeAlias = Callable[[], Mapping[str, Reference]]
"""Function that runs the deterministic stages of a pipeline again, and returns its dataset and counts by stage."""


def erase_samples(
    store: Store, identifiers: Sequence[str], pipeline: str, rebuild: Rebuild
) -> Certificate:
    """Erase samples from everything in a store, and exclude them from future runs.

    The list of erased samples is written first, so that the next call finishes an interrupted erasure. Then the dataset
    and the counts of the pipeline are built again without the samples, and all artefacts that contained them are
    deleted.

    Parameters
    ----------
    store
        The store.
    identifiers
        Identifiers of the samples; without any, an interrupted erasure is finished.
    pipeline
        Name of the pipeline whose dataset is rebuilt; other pipelines rebuild theirs in their next run.
    rebuild
        Rebuilds the dataset.

    Returns
    -------
    The certificate.

    Raises
    ------
    ConfigError
        If an identifier is empty, or there is none and nothing to finish.
    StoreError
        If the store is in use, contains label logs, or is damaged; delete or restore the damaged part, then start the
        erasure again.
    """
    names = [identifier.strip().encode() for identifier in identifiers]
    if not all(names):
        raise ConfigError("an identifier is empty; pass identifiers as in the column of samples")
    if (log := find_log(store)) is not None:
        raise StoreError(f"store {store.name!r} {log.instead}")
    with stay_alone(store), hold_lease(store.objects, PURPOSE):
        erasures = read_erasures(store) or new_list()
        begin(store, erasures, names)
        erased = ErasedSamples.of_list(erasures)
        assert erased is not None
        act = erasures.unfinished[-1]
        drop_unfinished(store)
        found = find_holdings(store, erased)
        outdated = _list_outdated(store, pipeline)
        for identity, entry in found.entries.items():
            if entry.reference.kind == "spill" and identity not in found.erased_rows:
                # with the new option as part of the identity, raw files without erased samples are not read again
                options = {**entry.options, ERASURES: erased.digest}
                store.enter_again(replace(entry, options=options))
        new = rebuild()
        known = {each.old.identity for each in act.replaced}
        gone = {*found.erased_rows, *found.datasets, *found.counts}
        for identity in sorted({*gone, *outdated} - known):
            if identity not in found.entries:
                continue
            old = found.entries[identity].reference
            rows = found.erased_rows[identity].rows if identity in found.erased_rows else 0
            successor = new.get(outdated.get(identity, ""))
            if successor != old:
                act.replaced.append(Replacement(old, successor, rows, identity in gone))
        digests = frozenset().union(*(each.digests for each in found.erased_rows.values()))
        act.found = sorted({*act.found, *(digests & {*act.samples})})
        # from here on, the history refers to the new artefacts; nothing is deleted before
        write_erasures(store, erasures)
        return _conclude(store, erasures, act, found.entries, [name.decode() for name in names])


def _list_outdated(store: Store, pipeline: str) -> dict[str, str]:
    """Datasets and counts of the last run of a pipeline and of the run of its live model, by identity.

    Returns
    -------
    Stage of each artefact.
    """
    kept = (step.original for step in list_steps() if step.original)
    stages = (*kept, "dataset", "counts")
    live, runs = find_live(store, pipeline), [find_last_run(store, pipeline)]
    if live is not None:
        runs.append(find_run_of(store, pipeline, live))
    return {
        run.stages[stage].identity: stage
        for run in runs
        if run is not None
        for stage in stages
        if stage in run.stages
    }


@dataclass
class Holdings:
    """Artefacts of a store that contain or would reveal erased samples.

    Parameters
    ----------
    entries
        All manifest entries by identity.
    erased_rows
        Rows of erased samples in artefacts, by identity, without empty ones; and 0 rows of spills whose rows `pmf gc`
        has dropped, as their counts of levels may include them.
    datasets
        Identities of the datasets made of these artefacts.
    counts
        Identities of the counts of these datasets and of datasets that are gone, and of counts stored as differences to
        them.
    """

    entries: Mapping[str, Entry]
    erased_rows: dict[str, ErasedRows] = field(default_factory=dict)
    datasets: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)


def find_holdings(store: Store, erased: ErasedSamples) -> Holdings:
    """Find the artefacts of a store that contain erased samples.

    Raises
    ------
    StoreError
        If an artefact is damaged, or of a feature that this installation lacks, so that its content is unknown.
    """
    entries = {entry.reference.identity: entry for entry in store.entries()}
    found, read = Holdings(entries), list_kinds()
    if strange := sorted({entry.reference.kind for entry in entries.values()} - read.keys()):
        raise StoreError(
            f"store {store.name!r} has artefacts of kinds {strange}, which may hold samples, and this installation of "
            "pmflib does not know them; erase with the version and the features that made them"
        )
    for identity, entry in entries.items():
        if (look := read[entry.reference.kind]) is not None:
            rows_found = look(store.locate(entry.reference), entry, erased)
            # what cannot be searched any more may hold them
            if rows_found.rows or store.lacks_files(entry.reference):
                found.erased_rows[identity] = rows_found
    for identity, entry in entries.items():
        if entry.reference.kind == "dataset":
            parts = list_parts(store, entry.reference)
            if any(part.identity in found.erased_rows for part in parts):
                found.datasets.add(identity)
    if found.erased_rows:
        found.counts = _find_counts(found)
    return found


def list_kinds() -> dict[str, LookInto | None]:
    """List all kinds of artefacts, and how rows of erased samples are found in one: see `Holder.kinds`."""
    own: dict[str, LookInto | None] = dict.fromkeys(WITHOUT_ROWS)
    own |= {"spill": _look_into_spill, "samples": _look_into_partition}
    own["predictions"] = look_into_tables
    for holder in list_offers("erase"):
        own |= holder.kinds
    return own


def list_parts(store: Store, dataset: Reference) -> list[Reference]:
    """Partitions and artefacts of the files of a dataset."""
    content = read_content(store, dataset)
    parts = from_json(list[Reference], content["partitions"])
    return parts + [from_json(Reference, each["step"]) for each in content["files"]]


def find_rejected(folder: Path, index: int, delimiter: str, erased: ErasedSamples) -> BoolArray:
    """Whether each quarantined row of an artefact belongs to an erased sample: see `ErasedSamples.find_in_rows`."""
    found = [np.empty(0, np.bool_)]
    for batch in read_part(folder / QUARANTINE, None):
        ragged = pc.equal(batch["reason"], "ragged").to_pylist()
        found.append(erased.find_in_rows(batch["raw"].to_pylist(), ragged, index, delimiter))
    return np.concatenate(found)


def find_erased_rows(path: Path, erased: ErasedSamples) -> tuple[BoolArray, list[bytes]]:
    """Mask of the erased samples of a partition, and their identifiers."""
    found = is_among(read_sample_hashes(path), erased.hashes)
    rows = np.flatnonzero(found)
    texts, lengths = read_identifier_texts(path)
    ends = np.cumsum(lengths, dtype=np.int64)
    names = []
    for row in rows.tolist():
        name = texts[ends[row] - lengths[row] : ends[row]].tobytes()
        found[row] = erased.holds(name)
        names += [name] if found[row] else []
    return found, names


def _look_into_spill(folder: Path, entry: Entry, erased: ErasedSamples) -> ErasedRows:
    if list_dropped(folder):
        return ErasedRows()
    spill = Spill(folder, {})
    rows = spill.read_samples(np.unique(make_keys(erased.hashes, spill.n_buckets)))
    samples = rows["sample"].combine_chunks()
    mine = samples.filter(pa.array(erased.find(samples, hash_identifiers(samples))))
    index = int(spill.metadata["identifier"])
    delimiter = name_separator(entry.options["source"]["delimiter"])
    n_rejected = int(np.count_nonzero(find_rejected(folder, index, delimiter, erased)))
    return describe_rows(len(mine) + n_rejected, mine, erased)


def _look_into_partition(folder: Path, entry: Entry, erased: ErasedSamples) -> ErasedRows:
    if not (folder / QUARANTINE_HASHES).exists():
        # samples without identifiers cannot be erased
        return ErasedRows()
    gone, names = find_erased_rows(folder / SAMPLES, erased)
    # quarantined duplicates belong to samples of the partition
    return describe_rows(int(np.count_nonzero(gone)), pa.array(names, pa.binary()), erased)


def _find_counts(found: Holdings) -> set[str]:
    """Counts of datasets that contained erased samples or are gone, differences to them, and marginals of both."""
    kinds = {
        "counts",
        "marginals",
        *(kind for holder in list_offers("erase") for kind in holder.sums),
    }
    counts = {i: entry for i, entry in found.entries.items() if entry.reference.kind in kinds}
    clean = found.entries.keys() - found.datasets
    revealing = {
        i
        for i, entry in counts.items()
        if "dataset" in entry.inputs and entry.inputs["dataset"].identity not in clean
    }
    while (
        more := {
            identity
            for identity, entry in counts.items()
            if any(each.identity in revealing for each in entry.inputs.values())
        }
        - revealing
    ):
        revealing |= more
    return revealing


def erase_log(store: Store, tasks: Sequence[str], workers: Sequence[str]) -> Certificate:
    """Erase tasks and workers from everything in a store of a log, and exclude them from future runs.

    What is in use is rewritten without them by the feature of the log. Artefacts made of rows are deleted, and the next
    run reads the files again: see `pmflib_tasks.holdings.LogHolder`.

    Parameters
    ----------
    store
        The store.
    tasks, workers
        Identifiers; without any, an interrupted erasure is finished.

    Returns
    -------
    The certificate.

    Raises
    ------
    ConfigError
        If an identifier is empty, or there is none and nothing to finish.
    StoreError
        If the store is in use, contains no such log, or contains other data as well.
    """
    names = {
        "samples": [each.strip().encode() for each in tasks],
        "workers": [each.strip().encode() for each in workers],
    }
    if not all(map(all, names.values())):
        raise ConfigError("an identifier is empty; pass identifiers as in the columns of the log")
    if (log := find_log(store)) is None:
        raise StoreError(
            f"store {store.name!r} contains no label log, so neither tasks nor workers; give --sample"
        )
    log.check(store)
    with stay_alone(store), hold_lease(store.objects, PURPOSE):
        erasures = read_erasures(store) or new_list()
        begin(store, erasures, names["samples"], names["workers"])
        act = erasures.unfinished[-1]
        drop_unfinished(store)
        entries, raw_files = log.take_out(store, erasures, act)
        write_erasures(store, erasures)
        given = [name.decode() for each in names.values() for name in each]
        return _conclude(store, erasures, act, entries, given, raw_files)


def begin(
    store: Store, erasures: ErasureList, names: Sequence[bytes], workers: Sequence[bytes] = ()
) -> None:
    """Add identifiers to the list of a store, from when on runs skip their rows.

    Raises
    ------
    ConfigError
        If there are none, and no erasure is unfinished.
    """
    erased = ErasedSamples(bytes.fromhex(erasures.salt), frozenset(), np.empty(0, np.uint64))
    digests = [erased.digest_identifier(name) for name in [*names, *workers]]
    hashes = hash_identifiers(pa.array([*names, *workers], pa.binary())).tolist()
    erasures.add(digests[: len(names)], hashes[: len(names)])
    erasures.add(digests[len(names) :], hashes[len(names) :], "workers")
    if erasures.unfinished:
        last = erasures.unfinished[-1]
        last.samples = sorted({*last.samples, *digests})
    elif digests:
        number = len(erasures.erasures) + 1
        erasures.erasures.append(Erasure(number, now(), samples=sorted({*digests})))
    else:
        raise ConfigError(
            "nothing to erase; give --sample or --file, of a label log --task or --worker"
        )
    write_erasures(store, erasures)


def forget(store: Store, identifiers: Sequence[str]) -> int:
    """Remove identifiers from the list of a store, so that their rows are read again; return how many were on it."""
    with stay_alone(store), hold_lease(store.objects, PURPOSE):
        erasures = read_erasures(store)
        if erasures is None:
            return 0
        if erasures.unfinished:
            raise StoreError(
                "an erasure is unfinished; finish it with `pmf erase CONFIG`, then run this again"
            )
        erased = ErasedSamples(bytes.fromhex(erasures.salt), frozenset(), np.empty(0, np.uint64))
        digests = {erased.digest_identifier(each.strip().encode()) for each in identifiers}
        known = digests & (erasures.samples.keys() | erasures.workers.keys())
        for digest in known:
            erasures.samples.pop(digest, None)
            erasures.workers.pop(digest, None)
        write_erasures(store, erasures)
        return len(known)


def _conclude(
    store: Store,
    erasures: ErasureList,
    act: Erasure,
    entries: Mapping[str, Entry],
    identifiers: Sequence[str],
    raw_files: Sequence[RawFile] | None = None,
) -> Certificate:
    """Delete replaced artefacts and certify the erasure; every step can be repeated."""
    _delete(store, entries, act)
    certificate = certify(store, erasures, act, identifiers)
    if raw_files is not None:
        certificate = replace(certificate, raw_files=[*raw_files])
    for name in list_histories(store):
        _record(store, name, act, certificate)
    act.ended = now()
    write_erasures(store, erasures)
    return certificate


def _delete(store: Store, entries: Mapping[str, Entry], act: Erasure) -> None:
    """Delete the replaced artefacts, entries before their inputs and their content."""
    doomed = {each.old.identity: each.old for each in act.replaced if each.deleted}
    order = order_by_need(entries, doomed.keys() & entries.keys())
    with refuse_unwritable(store.root):
        for identity in [*order, *sorted(doomed.keys() - {*order})]:
            store.objects.delete([f"manifest/{identity}.json"])
        if store.is_bucket:
            store.objects.delete([f"{RECORDS}/{name}/{KNOWN}" for name in list_histories(store)])
        # counts without samples that had no answers may be unchanged
        used = {entry.reference.path for entry in store.entries()}
        for path in sorted({each.path for each in doomed.values()} - used):
            store.drop(path)


def _record(store: Store, name: str, act: Erasure, certificate: Certificate) -> None:
    """Record the certificate in the history of a pipeline, once."""
    for record in list_records(store, name):
        if record.action == "erase" and record.erasure == act.number:
            return
    n_rows = sum(each.rows for each in certificate.artefacts.values())
    text = f"{len(act.samples):,} samples erased, {n_rows:,} rows taken out"
    new = {each.old.identity: each.new for each in act.replaced}

    def keep_live(record: RunRecord, live: Reference | None) -> RunRecord:
        return replace(record, live=live if live is None else new.get(live.identity, live))

    record = RunRecord(
        "erase",
        "done",
        text,
        act.started,
        now(),
        "",
        {},
        facts=asdict(certificate),
        environment=describe_environment(),
    )
    append_record(store, name, record, keep_live)
