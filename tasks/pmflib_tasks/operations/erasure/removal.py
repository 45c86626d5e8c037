"""Erase samples from a store, and certify it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from pmflib.core.errors import ConfigError, StoreError
from pmflib.ingest.dataset.build_steps import ERASURES
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import hash_identifiers
from pmflib.store.artefacts import Entry, Reference, Store, refuse_unwritable
from pmflib.store.collection import drop_unfinished
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
from pmflib.store.leases import hold_lease
from pmflib.store.lineage import order_by_need
from pmflib.store.run_records import (
    KNOWN,
    RECORDS,
    RunRecord,
    append_record,
    describe_environment,
    find_last_run,
    find_live,
    find_run_of,
    list_histories,
    list_records,
    now,
)
from pmflib_tasks.operations.erasure.certificates import Certificate, RawFile, certify
from pmflib_tasks.operations.erasure.holdings import find_holdings
from pmflib_tasks.operations.erasure.label_logs import (
    check_label_store,
    find_label_holdings,
    holds_labels,
    rewrite_label_logs,
)

Rebuild: TypeAlias = Callable[[], Mapping[str, Reference]]
"""Runs the deterministic stages of a pipeline again; gives its dataset and counts, by stage."""


def erase_samples(
    store: Store, identifiers: Sequence[str], pipeline: str, rebuild: Rebuild
) -> Certificate:
    """Erase samples from everything that a store holds, and keep them out from now on.

    The list of erased samples is written first: an erasure that was stopped is finished by the next call. The dataset
    and the counts of the pipeline are then built again without the samples, and every artefact that held them is
    deleted.

    Parameters
    ----------
    store
        The store.
    identifiers
        Identifiers of the samples; without any, an erasure that was stopped is finished.
    pipeline
        Name of the pipeline whose dataset is built again. Other pipelines of the store build theirs in their next run.
    rebuild
        Builds it.

    Returns
    -------
    The certificate.

    Raises
    ------
    ConfigError
        If an identifier is empty, or there is none and nothing to finish.
    StoreError
        If the store is in use, it holds label logs, or a part of it is damaged. Delete or restore the damaged part,
        then start the erasure again.
    """
    names = [identifier.strip().encode() for identifier in identifiers]
    if not all(names):
        raise ConfigError("an identifier is empty; give the texts that the column of samples has")
    if holds_labels(store):
        raise StoreError(
            f"store {store.name!r} holds label logs, whose samples are tasks: give --task or --worker"
        )
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
                # the option is part of the identity: raw files without erased samples need not be read again
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
        act.found = sorted({*act.found, *(found.list_samples() & {*act.samples})})
        # the history refers to the new artefacts from here on; only then is anything deleted
        write_erasures(store, erasures)
        return _conclude(store, erasures, act, found.entries, [name.decode() for name in names])


def _list_outdated(store: Store, pipeline: str) -> dict[str, str]:
    """Datasets and counts that a pipeline refers to: of its last run, and of the run of its live model.

    Returns
    -------
    Stage of each, by identity.
    """
    live, runs = find_live(store, pipeline), [find_last_run(store, pipeline)]
    if live is not None:
        runs.append(find_run_of(store, pipeline, live))
    return {
        run.stages[stage].identity: stage
        for run in runs
        if run is not None
        for stage in ("dataset", "counts")
        if stage in run.stages
    }


def erase_labels(store: Store, tasks: Sequence[str], workers: Sequence[str]) -> Certificate:
    """Take tasks and workers out of everything that a store of label logs holds, and keep them out from now on.

    Labels and the live model of the workers are written again without them; what was made of rows is deleted, and the
    next run reads the files again: see `pmflib_tasks.operations.erasure.label_logs`.

    Parameters
    ----------
    store
        The store.
    tasks, workers
        Identifiers; without any, an erasure that was stopped is finished.

    Returns
    -------
    The certificate.

    Raises
    ------
    ConfigError
        If an identifier is empty, or there is none and nothing to finish.
    StoreError
        If something else is under way in the store, it holds no label log, or other data as well.
    """
    names = {
        "samples": [each.strip().encode() for each in tasks],
        "workers": [each.strip().encode() for each in workers],
    }
    if not all(map(all, names.values())):
        raise ConfigError("an identifier is empty; give the texts that the columns of the log have")
    check_label_store(store)
    with stay_alone(store), hold_lease(store.objects, PURPOSE):
        erasures = read_erasures(store) or new_list()
        begin(store, erasures, names["samples"], names["workers"])
        act = erasures.unfinished[-1]
        drop_unfinished(store)
        found = find_label_holdings(store, erasures)
        rewrite_label_logs(store, erasures, act, found)
        write_erasures(store, erasures)
        given = [name.decode() for each in names.values() for name in each]
        return _conclude(store, erasures, act, found.entries, given, found.raw_files)


def begin(
    store: Store, erasures: ErasureList, names: Sequence[bytes], workers: Sequence[bytes] = ()
) -> None:
    """Enter identifiers in the list of a store; from then on no run reads their rows.

    Raises
    ------
    ConfigError
        If there are none, and nothing is unfinished.
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
    """Take identifiers off the list of a store, so that their rows are read again; return how many were on it."""
    with stay_alone(store), hold_lease(store.objects, PURPOSE):
        erasures = read_erasures(store)
        if erasures is None:
            return 0
        if erasures.unfinished:
            raise StoreError(
                "an erasure has not been finished; `pmf erase CONFIG` finishes it, then run this again"
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
    """Delete what was replaced, and certify: every step can be repeated."""
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
    """Delete what an erasure has replaced: entries before what they need, and before their folders."""
    doomed = {each.old.identity: each.old for each in act.replaced if each.deleted}
    order = order_by_need(entries, doomed.keys() & entries.keys())
    with refuse_unwritable(store.root):
        for identity in [*order, *sorted(doomed.keys() - {*order})]:
            store.objects.delete([f"manifest/{identity}.json"])
        if store.is_bucket:
            store.objects.delete([f"{RECORDS}/{name}/{KNOWN}" for name in list_histories(store)])
        # counts may be the same without samples that had no answers
        used = {entry.reference.path for entry in store.entries()}
        for path in sorted({each.path for each in doomed.values()} - used):
            store.drop(path)


def _record(store: Store, name: str, act: Erasure, certificate: Certificate) -> None:
    """Write the certificate into the history of a pipeline, once."""
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
