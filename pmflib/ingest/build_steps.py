"""Steps that build a dataset on the workers: one artefact per file, or per bucket of all files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pmflib.config import SchemaConfig, SourceConfig
from pmflib.hashing import HashArray
from pmflib.ingest.assembly import assemble_bucket, assemble_samples
from pmflib.ingest.erased_samples import ErasedSamples
from pmflib.ingest.label_census import CENSUS, Census, narrow_schema
from pmflib.ingest.long import spill_long
from pmflib.ingest.sources import Source
from pmflib.ingest.spill_levels import write_levels
from pmflib.ingest.wide import encode_wide, spill_wide
from pmflib.running.worker_messages import report_count
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, identify

R = TypeVar("R")

# 4: spills name the place of identifiers, accounts count rows of erased samples
VERSION = 5
"""Version of the artefacts that are made here; raise it when the same files give other bytes."""


ERASURES = "erasures"
"""Option of what was made of raw rows without those of erased samples: the digest of these."""


@dataclass(frozen=True)
class BuildJob:
    """Settings that all steps share; they are sent to the workers.

    Parameters
    ----------
    root
        Absolute path of the store, on storage that all workers share.
    schema
        Variables and levels of the dataset.
    source, policy
        Layout of the files, and the policy for rows that do not fit.
    n_folds, n_buckets
        Folds of the dataset, and buckets that samples with identifiers are dealt to.
    censuses
        For label logs, the census of each file, by the file's digest: a file is encoded with the part of the schema
        that it needs. Empty otherwise.
    since
        Samples are made of rows with this time or a later one; minus infinity without a window.
    erased
        Samples with identifiers whose rows are passed over; None if there are none.
    topic
        Topic for the numbers of rows while files are read: see `report_count`.
    recalls
        Whether an artefact is only looked for: see `recall`.
    """

    root: str
    schema: Schema
    source: SourceConfig
    policy: SchemaConfig
    n_folds: int
    n_buckets: int
    censuses: Mapping[str, Reference]
    since: float = -math.inf
    erased: ErasedSamples | None = None
    topic: str = ""
    recalls: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Options that change what a file is encoded to, plain JSON types."""
        return {
            "schema": self.schema.digest,
            "left_out": self.schema.left_out_digest,
            "source": self.source.reading,
            "policy": self.policy.model_dump(mode="json", exclude={"file"}),
            **({} if self.erased is None else {ERASURES: self.erased.digest}),
        }

    @property
    def window(self) -> dict[str, float]:
        """Option of what is assembled: the beginning of the window, if there is one."""
        return {} if self.since == -math.inf else {"since": self.since}

    @property
    def origin(self) -> dict[str, Any]:
        """What two datasets must have in common for one to be built upon the other, plain JSON types."""
        return {**self.options, "folds": self.n_folds, "version": VERSION}

    def build(
        self,
        kind: str,
        *,
        inputs: Mapping[str, Reference],
        options: Mapping[str, Any],
        write: Callable[[Path, Path], Mapping[str, Any]],
    ) -> Entry:
        """Build an artefact of a step as `Store.build` does."""
        store = Store(self.root)
        if not self.recalls:
            return store.build(kind, inputs=inputs, options=options, version=VERSION, write=write)
        entry = store.find(identify(kind, inputs, options, VERSION))
        if entry is None:
            raise _NotBuiltError
        return entry


class _NotBuiltError(Exception):
    """An artefact that is only looked for is not there."""


def recall(item: Any, job: BuildJob, *, build: Callable[[Any, BuildJob], R]) -> R | None:
    """Artefact that a step would build, if it is there already; None otherwise."""
    try:
        return build(item, replace(job, recalls=True))
    except _NotBuiltError:
        return None


def assemble_increment(
    item: tuple[HashArray, Sequence[Reference], Sequence[str]], job: BuildJob
) -> Entry:
    """Build a partition of the samples of some keys, from the spills of all files and the files' names."""
    keys, spills, names = item
    store = Store(job.root)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return assemble_samples(
            [store.locate(spill) for spill in spills],
            names,
            keys,
            job.schema,
            job.source,
            job.policy,
            n_buckets=job.n_buckets,
            n_folds=job.n_folds,
            folder=folder,
            since=job.since,
        )

    return job.build(
        "samples",
        inputs=number_inputs("spill", spills),
        options={
            **job.options,
            **job.window,
            "buckets": job.n_buckets,
            "folds": job.n_folds,
            "keys": hashlib.sha256(keys.astype("<u8").tobytes()).hexdigest(),
        },
        write=write,
    )


def number_inputs(role: str, references: Sequence[Reference]) -> dict[str, Reference]:
    """References by role and place."""
    return {f"{role} {place:05}": reference for place, reference in enumerate(references)}


def encode_file(item: tuple[Source, Reference], job: BuildJob) -> Entry:
    """Build the partition of one wide file without sample identifiers."""
    source, raw = item

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return encode_wide(
            source,
            job.schema,
            job.source,
            job.policy,
            n_folds=job.n_folds,
            # folds of equal rows of different files are unrelated, and those of a file that has grown are as they were:
            # no model may be judged by rows that another was fitted to
            seed=int.from_bytes(hashlib.sha256(source.name.encode()).digest()[:8]),
            folder=folder,
            on_rows=partial(report_count, job.topic),
        )

    return job.build(
        "samples",
        inputs={"source": raw},
        options={**job.options, "name": source.name, "folds": job.n_folds},
        write=write,
    )


def spill_file(item: tuple[Source, Reference], job: BuildJob) -> Entry:
    """Build the spill of one file: its rows, encoded and dealt to buckets by the hash of their sample."""
    source, raw = item
    store, census = Store(job.root), job.censuses.get(raw.digest)
    spill = spill_long if job.source.layout == "long" else spill_wide
    part, inputs = job.schema, {"source": raw}
    if census is not None:
        names = Census.load(store.locate(census) / CENSUS)
        part = narrow_schema(job.schema, names, job.source)
        inputs["census"] = census

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        if census is not None:
            write_levels(folder, part)
        return spill(
            source,
            part,
            job.source,
            job.policy,
            n_buckets=job.n_buckets,
            folder=folder,
            on_rows=partial(report_count, job.topic),
            erased=job.erased,
        )

    return job.build(
        "spill",
        inputs=inputs,
        options={
            **job.options,
            "schema": part.digest,
            "name": source.name,
            "buckets": job.n_buckets,
        },
        write=write,
    )


def assemble_partition(
    item: tuple[int, Sequence[Reference], Sequence[str]], job: BuildJob
) -> Entry:
    """Build the partition of one bucket, from the spills of all files and the files' names."""
    bucket, spills, names = item
    store, fold = Store(job.root), bucket % job.n_folds

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return assemble_bucket(
            [store.locate(spill) for spill in spills],
            names,
            bucket,
            job.schema,
            job.source,
            job.policy,
            fold=fold,
            folder=folder,
            since=job.since,
        )

    return job.build(
        "samples",
        inputs=number_inputs("spill", spills),
        options={**job.options, **job.window, "bucket": bucket, "fold": fold},
        write=write,
    )
