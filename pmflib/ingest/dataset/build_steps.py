"""Tasks that build a dataset: one artefact per chunk of a file, or per group of buckets over all files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pmflib.base.hashing import HashArray
from pmflib.cluster.maps import report_count
from pmflib.ingest.dataset.accounts import StepSummary
from pmflib.ingest.dataset.assembly import assemble_samples
from pmflib.ingest.dataset.design_columns import name_unit
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.long import spill_long
from pmflib.ingest.dataset.sample_folds import seed_file
from pmflib.ingest.dataset.spills import read_spill_list, write_levels
from pmflib.ingest.dataset.wide import encode_wide, spill_wide
from pmflib.ingest.options import SchemaOptions, SourceOptions
from pmflib.ingest.sources import find_digest
from pmflib.ingest.splitting import FilePart
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, identify

R = TypeVar("R")

# 6: indexes of spills have sections; partitions hold groups of buckets
VERSION = 6
"""Version of the artefacts; increase it when the same files give other bytes."""
# 7: superseded rows name the row that supersedes them; 8: spills are Parquet
NAMED_VERSION = 8
"""Version of the artefacts of samples with identifiers."""


ERASURES = "erasures"
"""Option of artefacts that were made without erased samples: the digest of these samples."""


class FileSchemas(Protocol):
    """Schemas of single files: the parts of the schema of all files that they need; an instance travels to workers."""

    def find(
        self, store: Store, digest: str, schema: Schema, config: SourceOptions
    ) -> tuple[Schema, Mapping[str, Reference]] | None:
        """Return the schema of the file with a digest, and what it is made of: inputs of artefacts of the file.

        None encodes the file with the schema of all files.
        """
        ...


@dataclass(frozen=True)
class BuildJob:
    """Settings shared by all tasks of a build.

    Parameters
    ----------
    root
        Absolute path or URL of the store.
    schema
        Variables and levels of the dataset.
    source, policy
        Layout of the files, and policy for rows that do not fit.
    n_folds, n_buckets
        Numbers of folds, and of buckets for samples with identifiers.
    file_schemas
        Schemas of single files; None if all files are encoded with the schema of the dataset.
    since
        Start of the window: earlier rows are not used; minus infinity without a window.
    erased
        Samples with identifiers whose rows are skipped; None if there are none.
    erased_workers
        Workers of a label log whose rows are skipped; None if there are none.
    topic
        Topic for the progress of reading: see `report_count`.
    recalls
        Whether tasks only look up existing artefacts: see `recall`.
    """

    root: str
    schema: Schema
    source: SourceOptions
    policy: SchemaOptions
    n_folds: int
    n_buckets: int
    file_schemas: FileSchemas | None
    since: float = -math.inf
    erased: ErasedSamples | None = None
    erased_workers: ErasedSamples | None = None
    topic: str = ""
    recalls: bool = False

    @property
    def options(self) -> dict[str, object]:
        """Options that affect how a file is encoded, plain JSON types."""
        return {
            "schema": self.schema.digest,
            "left_out": self.schema.left_out_digest,
            "source": self.source.reading,
            "policy": self.policy.model_dump(mode="json", exclude={"file"}),
            **name_unit(self.schema, self.source),
            **({} if self.erased is None else {ERASURES: self.erased.digest}),
            **(
                {}
                if self.erased_workers is None
                else {f"{ERASURES} of workers": self.erased_workers.digest}
            ),
        }

    @property
    def window(self) -> dict[str, float]:
        """Option of assembled partitions: the start of the window, if there is one."""
        return {} if self.since == -math.inf else {"since": self.since}

    @property
    def version(self) -> int:
        """Version of the artefacts, with or without identifiers."""
        return VERSION if self.source.sample is None else NAMED_VERSION

    @property
    def origin(self) -> dict[str, object]:
        """Options that two datasets must share for one to be built upon the other, plain JSON types.

        With schemas of single files, the schema is not one of them: variables may be added, as workers of label logs.
        """
        common = {**self.options, "folds": self.n_folds, "version": self.version}
        if self.file_schemas is not None:
            del common["schema"]
        return common

    def build(
        self,
        kind: str,
        *,
        inputs: Mapping[str, Reference],
        options: Mapping[str, Any],
        write: Callable[[Path, Path], Mapping[str, Any]],
    ) -> Entry:
        """Build an artefact (see `Store.build`), or only look it up."""
        store = Store(self.root)
        if not self.recalls:
            return store.build(
                kind, inputs=inputs, options=options, version=self.version, write=write
            )
        entry = store.find_before(identify(kind, inputs, options, self.version))
        if entry is None:
            raise _NotBuiltError
        return entry


class _NotBuiltError(Exception):
    """An artefact to look up does not exist."""


def recall(item: Any, job: BuildJob, *shared: Any, build: Callable[..., R]) -> R | None:
    """Look up the artefact that a task would build; None if it does not exist."""
    try:
        return build(item, replace(job, recalls=True), *shared)
    except _NotBuiltError:
        return None


def assemble_increment(keys: HashArray, job: BuildJob, spills: Reference) -> Entry:
    """Build a partition of the samples with some keys from the listed spills."""
    digest = hashlib.sha256(keys.astype("<u8").tobytes()).hexdigest()
    return _build_samples(keys, {"keys": digest}, job, spills)


def encode_file(part: FilePart, job: BuildJob) -> Entry:
    """Build the partition of a chunk of a wide file without identifiers."""
    source = part.chunk.source

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        summary = encode_wide(
            source,
            job.schema,
            job.source,
            job.policy,
            n_folds=job.n_folds,
            seed=seed_file(source.name),
            folder=folder,
            on_rows=partial(report_count, job.topic),
            chunk=part.chunk,
        )
        _check_unchanged(part, job)
        return summary.to_json()

    return job.build(
        "samples",
        inputs=_list_inputs(part),
        options={
            **job.options,
            **part.chunk.options,
            "name": source.name,
            "folds": job.n_folds,
        },
        write=write,
    )


def spill_file(part: FilePart, job: BuildJob) -> Entry:
    """Build the spill of a chunk of a file: encoded rows in buckets by the hash of their sample."""
    source = part.chunk.source
    spill: Callable[..., StepSummary] = spill_wide
    if job.source.layout == "long":
        spill = partial(spill_long, erased_workers=job.erased_workers)
    schema, inputs, own = job.schema, _list_inputs(part), None
    if job.file_schemas is not None:
        own = job.file_schemas.find(Store(job.root), part.raw.digest, job.schema, job.source)
    if own is not None:
        schema, made_of = own
        inputs |= made_of

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        if own is not None:
            write_levels(folder, schema)
        summary = spill(
            source,
            schema,
            job.source,
            job.policy,
            n_buckets=job.n_buckets,
            folder=folder,
            on_rows=partial(report_count, job.topic),
            erased=job.erased,
            chunk=part.chunk,
        )
        _check_unchanged(part, job)
        return summary.to_json()

    return job.build(
        "spill",
        inputs=inputs,
        options={
            **job.options,
            **part.chunk.options,
            "schema": schema.digest,
            "name": source.name,
            "buckets": job.n_buckets,
        },
        write=write,
    )


def _list_inputs(part: FilePart) -> dict[str, Reference]:
    """Inputs of the artefact of a chunk."""
    return {"source": part.raw} | ({} if part.splits is None else {"cuts": part.splits})


def _check_unchanged(part: FilePart, job: BuildJob) -> None:
    """Check that a file has not changed while a chunk of it was read; whole files are checked by the reader."""
    if not part.chunk.is_whole:
        part.chunk.source.check(find_digest(part.chunk.source, job.root))


def assemble_partition(buckets: tuple[int, int], job: BuildJob, spills: Reference) -> Entry:
    """Build the partition of a range of buckets from the listed spills."""
    options = {"first": buckets[0], "stop": buckets[1]}
    return _build_samples(buckets, options, job, spills)


def _build_samples(
    chosen: tuple[int, int] | HashArray,
    options: Mapping[str, Any],
    job: BuildJob,
    spills: Reference,
) -> Entry:
    """Build a partition of chosen samples, which the options identify, from the listed spills."""

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return assemble_samples(
            *read_spill_list(Store(job.root), spills),
            chosen,
            job.schema,
            job.source,
            job.policy,
            n_folds=job.n_folds,
            folder=folder,
            since=job.since,
        ).to_json()

    return job.build(
        "samples",
        inputs={"spills": spills},
        options={
            **job.options,
            **job.window,
            "buckets": job.n_buckets,
            "folds": job.n_folds,
            **options,
        },
        write=write,
    )
