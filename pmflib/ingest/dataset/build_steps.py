"""Steps that build a dataset on the workers: one artefact per chunk of a file, or per group of buckets of all files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pmflib.cluster.maps import report_count
from pmflib.core.hashing import HashArray
from pmflib.ingest.dataset.accounts import StepSummary
from pmflib.ingest.dataset.assembly import assemble_buckets, assemble_samples
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.log_names import NAMES_FILE, LogNames, narrow_schema
from pmflib.ingest.dataset.long import spill_long
from pmflib.ingest.dataset.sample_weights import name_unit
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
"""Version of the artefacts that are made here; raise it when the same files give other bytes."""
# 7: rows that are superseded name the row that did
NAMED_VERSION = 7
"""The same where samples have identifiers."""


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
        Folds of the dataset, and buckets that samples with identifiers are assigned to.
    label_names
        For label logs, the names in each file, by the file's digest: a file is encoded with the part of the schema
        that it needs. Empty otherwise.
    since
        Samples are made of rows with this time or a later one; minus infinity without a window.
    erased
        Samples with identifiers whose rows are skipped; None if there are none.
    erased_workers
        Workers of a label log whose rows are skipped; None if there are none.
    topic
        Topic for the numbers of rows while files are read: see `report_count`.
    recalls
        Whether an artefact is only looked for: see `recall`.
    """

    root: str
    schema: Schema
    source: SourceOptions
    policy: SchemaOptions
    n_folds: int
    n_buckets: int
    label_names: Mapping[str, Reference]
    since: float = -math.inf
    erased: ErasedSamples | None = None
    erased_workers: ErasedSamples | None = None
    topic: str = ""
    recalls: bool = False

    @property
    def options(self) -> dict[str, object]:
        """Options that change what a file is encoded to, plain JSON types."""
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
        """Option of what is assembled: the beginning of the window, if there is one."""
        return {} if self.since == -math.inf else {"since": self.since}

    @property
    def version(self) -> int:
        """Version of what is made: of samples with identifiers, or without."""
        return VERSION if self.source.sample is None else NAMED_VERSION

    @property
    def origin(self) -> dict[str, object]:
        """What two datasets must have in common for one to be built upon the other, plain JSON types.

        Of label logs not the schema: files and partitions are encoded with a part of it, and more workers may come.
        """
        common = {**self.options, "folds": self.n_folds, "version": self.version}
        if self.label_names:
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
        """Build an artefact of a step as `Store.build` does."""
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
    """An artefact that is only looked for is not there."""


def recall(item: Any, job: BuildJob, *shared: Any, build: Callable[..., R]) -> R | None:
    """Artefact that a step would build, if it is there already; None otherwise."""
    try:
        return build(item, replace(job, recalls=True), *shared)
    except _NotBuiltError:
        return None


def assemble_increment(keys: HashArray, job: BuildJob, spills: Reference) -> Entry:
    """Build a partition of the samples of some keys, from the listed spills of all files."""
    digest = hashlib.sha256(keys.astype("<u8").tobytes()).hexdigest()
    return _build_samples(assemble_samples, keys, {"keys": digest}, job, spills)


def encode_file(part: FilePart, job: BuildJob) -> Entry:
    """Build the partition of a chunk of a wide file without sample identifiers."""
    source = part.chunk.source

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        summary = encode_wide(
            source,
            job.schema,
            job.source,
            job.policy,
            n_folds=job.n_folds,
            # folds of equal rows of different files are unrelated, and those of a file that has grown are as they were:
            # no model may be evaluated on rows that another was fitted to
            seed=int.from_bytes(hashlib.sha256(source.name.encode()).digest()[:8]),
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
    """Build the spill of a chunk of a file: its rows, encoded and assigned to buckets by the hash of their sample."""
    source = part.chunk.source
    store, reference = Store(job.root), job.label_names.get(part.raw.digest)
    spill: Callable[..., StepSummary] = spill_wide
    if job.source.layout == "long":
        spill = partial(spill_long, erased_workers=job.erased_workers)
    schema, inputs = job.schema, _list_inputs(part)
    if reference is not None:
        names = LogNames.load(store.locate(reference) / NAMES_FILE)
        schema = narrow_schema(job.schema, names, job.source)
        inputs["census"] = reference

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        if reference is not None:
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
    """Artefacts that a chunk of a file is read by."""
    return {"source": part.raw} | ({} if part.splits is None else {"cuts": part.splits})


def _check_unchanged(part: FilePart, job: BuildJob) -> None:
    """Check that a file is what it was: of a chunk, the bytes that were read have no digest of their own."""
    if not part.chunk.is_whole:
        part.chunk.source.check(find_digest(part.chunk.source, job.root))


def assemble_partition(buckets: tuple[int, int], job: BuildJob, spills: Reference) -> Entry:
    """Build the partition of the buckets from one up to another, from the listed spills of all files."""
    options = {"first": buckets[0], "stop": buckets[1]}
    return _build_samples(assemble_buckets, buckets, options, job, spills)


def _build_samples(
    assemble: Callable[..., StepSummary],
    chosen: Any,
    options: Mapping[str, Any],
    job: BuildJob,
    spills: Reference,
) -> Entry:
    """Build a partition of the samples that are chosen, which the options name, from the listed spills."""

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        return assemble(
            *read_spill_list(Store(job.root), spills),
            chosen,
            job.schema,
            job.source,
            job.policy,
            n_buckets=job.n_buckets,
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
