"""From raw files to a dataset in a store: rows are encoded or put in quarantine, samples dealt to partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pmflib.config import PipelineConfig
from pmflib.ingest.accounts import combine_accounts
from pmflib.ingest.buckets import choose_buckets, estimate_csv_bytes
from pmflib.ingest.build_steps import (
    VERSION,
    BuildJob,
    assemble_partition,
    encode_file,
    spill_file,
)
from pmflib.ingest.quarantine import merge_quarantines
from pmflib.ingest.sources import digest_source, find_sources
from pmflib.running.clients import Client, check_workers_see
from pmflib.running.maps import map_items
from pmflib.running.worker_messages import listen_to_counts
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import QUARANTINE, write_dataset

OnStep: TypeAlias = Callable[[str, int, int, int], None]
"""Called with the name of a step, how many of its items are done, how many there are, and the rows read so far."""


def build_dataset(
    client: Client,
    store: Store,
    config: PipelineConfig,
    schema: Schema,
    *,
    censuses: Mapping[str, Reference] | None = None,
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
    n_folds = config.store.folds
    n_buckets = config.store.buckets or choose_buckets(estimate_csv_bytes(sources), n_folds)
    root = str(store.root.resolve())
    job = BuildJob(root, schema, config.source, config.schema_, n_folds, n_buckets, censuses or {})
    check_workers_see(client, root)
    digests = map_items(client, digest_source, sources)
    raw = [
        store.record_source(source.name, digest, {"bytes": source.size}).reference
        for source, digest in zip(sources, digests, strict=True)
    ]
    files = list(zip(sources, raw, strict=True))
    if config.source.sample is None:
        partitions = _build_all(client, "encode files", encode_file, files, job, on_step)
        return _publish(store, schema, partitions, partitions)
    spills = _build_all(client, "read files", spill_file, files, job, on_step)
    references, names = [spill.reference for spill in spills], [source.name for source in sources]
    buckets = [(bucket, references, names) for bucket in range(n_buckets)]
    partitions = _build_all(client, "sort partitions", assemble_partition, buckets, job, on_step)
    return _publish(store, schema, [*spills, *partitions], partitions)


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


def _publish(
    store: Store, schema: Schema, steps: Sequence[Entry], partitions: Sequence[Entry]
) -> Entry:
    """Check the account of rows over the whole dataset, and publish it with one quarantine."""
    spills = [entry.summary for entry in steps if entry.reference.kind == "spill"]
    account = combine_accounts(spills, [entry.summary for entry in partitions])

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        rejected = [store.locate(entry.reference) / QUARANTINE for entry in steps]
        merge_quarantines([path for path in rejected if path.exists()], folder / QUARANTINE)
        write_dataset(folder, store, [entry.reference for entry in partitions], account)
        return account

    return store.build(
        "dataset",
        inputs={
            f"{entry.reference.kind} {place:05}": entry.reference
            for place, entry in enumerate(steps)
        },
        options={"schema": schema.digest},
        version=VERSION,
        write=write,
    )
