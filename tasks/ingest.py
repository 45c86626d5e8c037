"""Stage: raw files to partitions of sample blocks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.ingest import (
    Source,
    assemble_bucket,
    choose_buckets,
    combine_accounts,
    digest_source,
    encode_wide,
    estimate_csv_bytes,
    find_sources,
    merge_quarantines,
    spill_long,
    spill_wide,
    write_levels,
)
from pmflib.running.clients import Client, check_workers_see
from pmflib.running.maps import map_items
from pmflib.running.worker_messages import listen_to_counts, report_count
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import QUARANTINE, write_dataset
from tasks.stage import load_schema, open_store, open_workers, publish_facts, report, stage

VERSION = 1


@dataclass(frozen=True)
class _Job:
    """What a worker needs to build a partition, or a spill, by itself."""

    root: str
    config: PipelineConfig
    schema: Schema
    n_buckets: int
    censuses: Mapping[str, Reference]
    topic: str = ""
    """Where rows are told of while files are read."""

    @property
    def options(self) -> dict[str, Any]:
        """Options that change the content."""
        source = self.config.source.model_dump(mode="json", exclude={"path", "missing"})
        policy = self.config.schema_.model_dump(mode="json", exclude={"file"})
        return {"schema": self.schema.digest, "source": source, "policy": policy}


@stage(name="ingest")
def ingest(
    config: PipelineConfig, address: str = "", censuses: Mapping[str, Reference] | None = None
) -> Reference:
    """Encode all sources, quarantine what does not fit, and cut samples into partitions.

    Parameters
    ----------
    config
        The pipeline.
    address
        Dask scheduler of the run; empty starts workers for this stage.
    censuses
        Of label logs, the census of each file, as `tasks.crowd.census` gives them: a file is encoded by its own workers
        and labels, and not again when there are others. The result is the same.

    Returns
    -------
    Reference to the dataset; the entry's summary is the account of rows.

    Raises
    ------
    SourceError
        If a file is missing, empty, cut short or of another format.
    SchemaError
        If the data do not fit the schema, and the policy is to stop.
    """
    store, schema = open_store(config), load_schema(config)
    store.drop_leftovers()
    sources = find_sources(_resolve_all(config))
    n_buckets = config.store.buckets or choose_buckets(
        estimate_csv_bytes(sources), config.store.folds
    )
    job = _Job(str(store.root.resolve()), config, schema, n_buckets, censuses or {})
    started = time.monotonic()
    with open_workers(config, address) as (client, _):
        check_workers_see(client, job.root)
        digests = map_items(client, digest_source, sources)
        raw = [
            store.record_source(source.name, digest, {"bytes": source.size}).reference
            for source, digest in zip(sources, digests, strict=True)
        ]
        work = list(zip(sources, raw, strict=True))
        if config.source.sample is None:
            steps = partitions = _run(client, "encode files", _encode_file, work, job)
        else:
            spills = _run(client, "read files", _spill_file, work, job)
            names = [source.name for source in sources]
            buckets = [(b, [spill.reference for spill in spills], names) for b in range(n_buckets)]
            partitions = _run(client, "sort partitions", _assemble, buckets, job)
            steps = [*spills, *partitions]
        entry = _publish(store, job, steps, partitions)
        publish_facts(entry, time.monotonic() - started)
    return entry.reference


def _run(client: Client, name: str, build: Any, items: Sequence[Any], job: _Job) -> list[Entry]:
    """Build artefacts on the workers, one per item, and report how many there are and the rows read for them."""
    n_items, n_done, n_rows = len(items), 0, 0

    def show() -> None:
        if n_done < n_items:
            report(name, n_done, n_items, f"{n_rows:,} rows" if n_rows else "")

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
    # of all items: what an earlier run had done was not read again
    n_rows = sum(entry.summary["rows_in"] for entry in entries)
    report(name, n_items, n_items, f"{n_rows:,} rows")
    return entries


def _resolve_all(config: PipelineConfig) -> str | tuple[str, ...]:
    path = config.source.path
    if isinstance(path, str):
        return config.resolve(path)
    return tuple(config.resolve(one) for one in path)


def _encode_file(item: tuple[Source, Reference], job: _Job) -> Entry:
    """Partition of one wide file without sample identifiers."""
    source, raw = item
    n_folds = job.config.store.folds

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return encode_wide(
            source,
            job.schema,
            job.config.source,
            job.config.schema_,
            n_folds=n_folds,
            # folds of equal rows of different files are unrelated
            seed=int(raw.digest[:16], 16),
            folder=folder,
            on_rows=partial(report_count, job.topic),
        )

    options = {**job.options, "name": source.name, "folds": n_folds}
    return Store(job.root).build(
        "samples", inputs={"source": raw}, options=options, version=VERSION, write=write
    )


def _spill_file(item: tuple[Source, Reference], job: _Job) -> Entry:
    """Rows of one file, encoded and dealt to buckets by their sample's hash."""
    source, raw = item
    store, census = Store(job.root), job.censuses.get(raw.digest)
    spill = spill_long if job.config.source.layout == "long" else spill_wide
    part, inputs = job.schema, {"source": raw}
    if census is not None:
        # of label logs alone: other pipelines do without these modules
        from pmflib.crowd.pipeline.census import CENSUS, Census, narrow_schema

        names = Census.load(store.locate(census) / CENSUS)
        part = narrow_schema(job.schema, names, job.config.source)
        inputs["census"] = census

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        if census is not None:
            write_levels(folder, part)
        return spill(
            source,
            part,
            job.config.source,
            job.config.schema_,
            n_buckets=job.n_buckets,
            folder=folder,
            on_rows=partial(report_count, job.topic),
        )

    options = {**job.options, "schema": part.digest, "name": source.name, "buckets": job.n_buckets}
    return store.build("spill", inputs=inputs, options=options, version=VERSION, write=write)


def _assemble(item: tuple[int, Sequence[Reference], Sequence[str]], job: _Job) -> Entry:
    """Partition of one bucket, from the spills of all files."""
    bucket, spills, names = item
    store = Store(job.root)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return assemble_bucket(
            [store.locate(spill) for spill in spills],
            names,
            bucket,
            job.schema,
            job.config.source,
            job.config.schema_,
            fold=bucket % job.config.store.folds,
            folder=folder,
        )

    options = {**job.options, "bucket": bucket, "fold": bucket % job.config.store.folds}
    return store.build(
        "samples",
        inputs={f"spill {place:05}": spill for place, spill in enumerate(spills)},
        options=options,
        version=VERSION,
        write=write,
    )


def _publish(store: Store, job: _Job, steps: Sequence[Entry], partitions: Sequence[Entry]) -> Entry:
    """Check the account of rows over the whole dataset, and publish it with one quarantine."""
    spills = [entry.summary for entry in steps if entry.reference.kind == "spill"]
    made = [entry.summary for entry in partitions]
    account = combine_accounts(spills, made)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        rejected = [store.locate(entry.reference) / QUARANTINE for entry in steps]
        merge_quarantines([path for path in rejected if path.exists()], folder / QUARANTINE)
        write_dataset(folder, store, [entry.reference for entry in partitions], account)
        return account

    inputs = {f"{e.reference.kind} {place:05}": e.reference for place, e in enumerate(steps)}
    return store.build(
        "dataset",
        inputs=inputs,
        options={"schema": job.schema.digest},
        version=VERSION,
        write=write,
    )
