"""From raw files to a dataset in a store: rows are encoded or put in quarantine, samples dealt to partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pmflib.config import PipelineConfig
from pmflib.ingest.accounts import carry_account, combine_accounts
from pmflib.ingest.buckets import choose_buckets, estimate_csv_bytes, list_keys
from pmflib.ingest.build_steps import (
    VERSION,
    BuildJob,
    assemble_increment,
    assemble_partition,
    encode_file,
    number_inputs,
    spill_file,
)
from pmflib.ingest.layering import (
    Base,
    cut_keys,
    find_touched,
    open_base,
    supersede_samples,
)
from pmflib.ingest.sources import Source, digest_source, find_sources
from pmflib.running.clients import Client, check_workers_see
from pmflib.running.maps import map_items
from pmflib.running.worker_messages import listen_to_counts
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import FileStep, open_layer, write_dataset, write_layers

OnStep: TypeAlias = Callable[[str, int, int, int], None]
"""Called with the name of a step, how many of its items are done, how many there are, and the rows read so far."""


def build_dataset(
    client: Client,
    store: Store,
    config: PipelineConfig,
    schema: Schema,
    *,
    censuses: Mapping[str, Reference] | None = None,
    base: Reference | None = None,
    on_step: OnStep = lambda *_: None,
) -> Entry:
    """Build a dataset from raw files. Artefacts of an earlier call on the same bytes are not built again.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the dataset is the same bytes.
    store
        Store for the artefacts, on storage that all workers share.
    config
        Sections ``source``, ``schema`` and ``store``: the files, their layout, the policy for rows that do not fit,
        numbers of folds and buckets.
    schema
        Variables and levels.
    censuses
        For label logs, the census of each file, by the file's digest: a file is encoded with its own workers and
        labels, and not again when other files bring others. The samples are the same.
    base
        Dataset to build upon, of the same store: only samples with rows in files that are new, changed or removed are
        assembled again, from the spills, and its other samples are referred to. The samples are those of a dataset
        built afresh, whose partitions are others. One that differs in schema, layout, folds or buckets is passed over.
    on_step
        Progress.

    Returns
    -------
    Entry of the dataset; its summary is the account of rows, as `combine_accounts` gives it.

    Raises
    ------
    ConfigError
        If a worker does not see the store.
    SourceError
        If a file is missing, empty, cut short or of another format.
    SchemaError
        If the data do not fit the schema, and the policy is to stop.
    """
    sources = find_sources(config.source_paths)
    n_folds, root = config.store.folds, str(store.root.resolve())
    job = BuildJob(root, schema, config.source, config.schema_, n_folds, 0, censuses or {})
    check_workers_see(client, root)
    digests = map_items(client, digest_source, sources)
    raw = [
        store.record_source(source.name, digest, {"bytes": source.size}).reference
        for source, digest in zip(sources, digests, strict=True)
    ]
    files = list(zip(sources, raw, strict=True))
    if config.source.sample is None:
        partitions = _build_all(client, "encode files", encode_file, files, job, on_step)
        steps = _list_steps(files, partitions)
        account = combine_accounts([], [entry.summary for entry in partitions])
        return _publish_fresh(store, job, steps, partitions, None, account)
    # a row number means something where there is one file, and then it is stored
    origin = {**job.origin, "single": len(files) == 1}
    earlier = open_base(store, base, origin, config.store.buckets)
    n_buckets = config.store.buckets or (
        earlier.n_buckets if earlier else choose_buckets(estimate_csv_bytes(sources), n_folds)
    )
    job = replace(job, n_buckets=n_buckets)
    spills = _build_all(client, "read files", spill_file, files, job, on_step)
    steps = _list_steps(files, spills)
    if earlier is not None:
        return _build_upon(client, store, earlier, job, steps, spills, on_step)
    references, names = [spill.reference for spill in spills], [source.name for source in sources]
    buckets = [(bucket, references, names) for bucket in range(n_buckets)]
    partitions = _build_all(client, "sort partitions", assemble_partition, buckets, job, on_step)
    summaries = ([entry.summary for entry in entries] for entries in (spills, partitions))
    keys = [list_keys(bucket) for bucket in range(n_buckets)]
    return _publish_fresh(store, job, steps, partitions, keys, combine_accounts(*summaries))


def _build_upon(
    client: Client,
    store: Store,
    base: Base,
    job: BuildJob,
    steps: Sequence[FileStep],
    spills: Sequence[Entry],
    on_step: OnStep,
) -> Entry:
    """Build a dataset upon another: assemble the samples whose rows have changed, and refer to the others."""
    references, names = [step.step for step in steps], [step.name for step in steps]
    if list(steps) == list(base.files):
        return base.entry
    touched = find_touched(client, store, base, references)
    left = supersede_samples(client, base, touched)
    carried = carry_account(base.account, left.lost)
    n_rows = sum(spill.summary["rows_encoded"] for spill in spills) - carried["rows_in"]
    items = [(keys, references, names) for keys in cut_keys(left.keys, n_rows)]
    built = _build_all(client, "sort partitions", assemble_increment, items, job, on_step)
    account = combine_accounts(
        [spill.summary for spill in spills], [carried, *(entry.summary for entry in built)]
    )
    layers = list(left.layers)
    for entry, (keys, *_) in zip(built, items, strict=True):
        if entry.summary["samples"]:
            layers.append(open_layer(store, entry.reference, (int(keys[0]), int(keys[-1]))))
    account["blocks"] = sum(len(layer.blocks) for layer in layers)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        write_layers(folder, layers, account, steps, _describe(job, steps))
        return account

    return store.build(
        "dataset",
        inputs={
            "base": base.entry.reference,
            **number_inputs("spill", references),
            **number_inputs("samples", [layer.partition for layer in layers]),
        },
        options={"schema": job.schema.digest},
        version=VERSION,
        write=write,
    )


def _list_steps(
    files: Sequence[tuple[Source, Reference]], entries: Sequence[Entry]
) -> list[FileStep]:
    return [
        FileStep(source.name, raw, entry.reference)
        for (source, raw), entry in zip(files, entries, strict=True)
    ]


def _describe(job: BuildJob, steps: Sequence[FileStep]) -> dict[str, Any]:
    """What the next dataset must have in common with this one to be built upon it."""
    return {**job.origin, "single": len(steps) == 1, "buckets": job.n_buckets}


def _build_all(
    client: Client,
    name: str,
    build: Callable[[Any, BuildJob], Entry],
    items: Sequence[Any],
    job: BuildJob,
    on_step: OnStep,
) -> list[Entry]:
    """Build artefacts on the workers, one per item, and report how many there are and the rows read for them."""
    n_items, n_done, n_rows = len(items), 0, 0

    def show() -> None:
        # the last report is below, with the rows of all items
        if n_done < n_items:
            on_step(name, n_done, n_items, n_rows)

    def on_rows(count: int) -> None:
        nonlocal n_rows
        n_rows += count
        show()

    def on_result(done: int) -> None:
        nonlocal n_done
        n_done = done
        show()

    show()
    with listen_to_counts(client, on_rows) as topic:
        entries = map_items(client, build, items, replace(job, topic=topic), on_result=on_result)
    # items that an earlier run built were not read again, but their rows count
    on_step(name, n_items, n_items, sum(entry.summary["rows_in"] for entry in entries))
    return entries


def _publish_fresh(
    store: Store,
    job: BuildJob,
    steps: Sequence[FileStep],
    partitions: Sequence[Entry],
    keys: Sequence[tuple[int, int]] | None,
    account: Mapping[str, Any],
) -> Entry:
    """Publish a dataset of whole partitions."""
    references = [entry.reference for entry in partitions]
    spills = [step.step for step in steps if step.step.kind == "spill"]

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        origin = _describe(job, steps)
        write_dataset(folder, store, references, account, keys=keys, files=steps, origin=origin)
        return account

    return store.build(
        "dataset",
        inputs=number_inputs("spill", spills) | number_inputs("samples", references),
        options={"schema": job.schema.digest},
        version=VERSION,
        write=write,
    )
