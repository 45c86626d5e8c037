"""Sizes that a plan is made of: of the log, in memory and in a store, of the fit, of the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from pmflib.cluster.workers import ClusterOptions
from pmflib.core.blocks import SPARSE_BELOW
from pmflib.core.machine import USED_SHARE, count_processors
from pmflib.counting.stored_pairs import measure_saved_table
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    COLUMN_ROWS,
    BlockReference,
    choose_block_rows,
    choose_replicate_rows,
)
from pmflib_tasks.operations.planning.speeds import ROW_BYTES

PARTITION_FILES = 7 + 1 + 3
"""Files of a partition besides the chunks of its columns: descriptions of a group and of six arrays, the table of
blocks, quarantined rows, their hashes or the counts of levels of a raw file, and the list of digests."""
SPILL_FILES = 7
"""Files of a spill: rows, keys, index of pages, fields, quarantined rows, level counts, list of digests."""


@dataclass(frozen=True)
class LogSize:
    """Size of a log.

    Parameters
    ----------
    rows
        Rows of the raw files.
    samples
        Samples that they make: as many in a wide layout without duplicates, fewer in a long one.
    variables, levels
        Variables, and levels of all of them.
    observed
        Share of the cells that are observed, in [0, 1].
    files
        Raw files.
    raw_bytes
        Bytes of the raw files as they are stored, packed or not.
    csv_bytes
        Bytes that they would have as plain CSV: see `pmflib.ingest.dataset.identifiers.estimate_csv_bytes`.
    layout
        Wide: a row is a sample. Long: a row is one answer.
    identified
        Whether samples have identifiers, and are assigned to buckets by these.
    identifier_bytes
        Mean length of an identifier.
    code_bytes
        Bytes of a code in a dense block: 1, 2 or 4.
    design_columns
        Integers of 8 bytes that say how a sample was drawn: 1 for its weight, 3 with its stratum and unit.
    replicates
        Replicate weights of a sample, of 8 bytes each, which are read where errors are found.
    cut
        How a large file is split into chunks: plain CSV by bytes, Parquet by row groups, a packed file not at all.
    """

    rows: int
    samples: int
    variables: int
    levels: int
    observed: float
    files: int
    raw_bytes: int
    csv_bytes: int
    layout: Literal["wide", "long"] = "wide"
    identified: bool = False
    identifier_bytes: float = 0.0
    code_bytes: int = 1
    design_columns: int = 0
    replicates: int = 0
    cut: Literal["bytes", "row groups", "not"] = "bytes"

    @property
    def observed_cells(self) -> float:
        """Observed cells of all samples."""
        return self.samples * self.variables * self.observed

    @property
    def design_bytes(self) -> int:
        """Bytes that say how a sample was drawn."""
        return 8 * (self.design_columns + self.replicates)

    @property
    def is_sparse(self) -> bool:
        """Whether blocks hold the levels of observed cells instead of codes."""
        return self.layout == "long" and self.observed < SPARSE_BELOW

    @property
    def row_bytes(self) -> float:
        """Bytes of a sample in memory."""
        weight = 8 if self.design_columns else 0
        if self.is_sparse:
            return 4 * self.variables * self.observed + 8 + weight
        return float(self.variables * self.code_bytes + weight)

    def scale_to(self, rows: int) -> LogSize:
        """The same log with other rows, of the same kind: files keep their number and grow."""
        factor = rows / max(self.rows, 1)
        return replace(
            self,
            rows=rows,
            samples=max(1, round(self.samples * factor)),
            raw_bytes=round(self.raw_bytes * factor),
            csv_bytes=round(self.csv_bytes * factor),
        )


@dataclass(frozen=True)
class TraitSize:
    """Size of a fit of traits.

    Parameters
    ----------
    is_compared
        Whether latent classes are fitted as well, and the validation samples say which model is chosen.
    dimensions, passes
        Least and most of what may be chosen: dimensions besides the biases of people, and passes over all samples.
    n_states
        Latent states that the traits are compiled into.
    hide
        Share of the answers that are hidden at a time to compare the models, in (0, 1).
    """

    is_compared: bool
    dimensions: tuple[int, int]
    passes: tuple[int, int]
    n_states: int | Literal["auto"] = "auto"
    hide: float = 0.2


@dataclass(frozen=True)
class ForestSize:
    """Size of the fits with forests that stand next to one without.

    Parameters
    ----------
    is_forced
        Whether they are fitted whatever the pairs say; else they may not be.
    """

    is_forced: bool


@dataclass(frozen=True)
class FitSize:
    """Size of a fit.

    Parameters
    ----------
    rank
        Latent states.
    passes
        Passes of a run of EM: at its end it has converged, or stopped early.
    runs
        Runs of EM: of several pseudo-counts and starts that held-out samples compare.
    members
        Models that are averaged.
    train, validation, test
        Numbers of folds.
    buckets
        As ``[store] buckets``; 0 is by the size of the sources.
    start
        Method of the first model, as ``[model] method``; "random" takes no time.
    traits
        The fit of continuous traits; None for latent classes alone.
    forests
        The fits with forests; None where variables are independent within a state.
    schema
        Variables: traits and forests depend on more of them than their number. None where there are neither.
    """

    rank: int
    passes: int = 50
    runs: int = 4
    members: int = 1
    train: int = 14
    validation: int = 1
    test: int = 1
    buckets: int = 0
    start: str = "auto"
    traits: TraitSize | None = None
    forests: ForestSize | None = None
    schema: Schema | None = field(default=None, repr=False)

    @property
    def folds(self) -> int:
        """Folds of the store."""
        return self.train + self.validation + self.test

    @property
    def has_classes(self) -> bool:
        """Whether latent classes are fitted."""
        return self.traits is None or self.traits.is_compared

    def with_rank(self, rank: int) -> FitSize:
        """The same fit with so many latent states; of traits alone, compiled into so many."""
        if self.traits is None or self.has_classes:
            return replace(self, rank=rank)
        return replace(self, rank=rank, traits=replace(self.traits, n_states=rank))

    def to_json(self) -> dict[str, object]:
        """The size as plain JSON types, without the schema."""
        content = asdict(replace(self, schema=None))
        del content["schema"]
        return content


@dataclass(frozen=True)
class ClusterSize:
    """Size of a cluster.

    Parameters
    ----------
    workers
        Worker processes.
    threads
        Threads of a worker.
    memory
        Bytes that a worker may use.
    client_memory
        Bytes that the client, which plans and updates models, may use.
    is_shared
        Whether the workers are threads of the client, in one process.
    """

    workers: int
    threads: int = 1
    memory: int = 16 << 30
    client_memory: int = 16 << 30
    is_shared: bool = False

    @classmethod
    def of_run(cls, cluster: ClusterOptions) -> ClusterSize:
        """Size of the workers that a run starts on this machine, as its section ``cluster`` has it."""
        n_workers = cluster.workers or count_processors()
        return cls(n_workers) if cluster.processes else cls(1, n_workers, is_shared=True)

    @property
    def n_threads(self) -> int:
        """Threads of all workers."""
        return self.workers * self.threads

    @property
    def worker_room(self) -> int:
        """Bytes that a run lets a worker take."""
        return int(USED_SHARE * self.memory)

    @property
    def client_room(self) -> int:
        """Bytes that it lets the client take."""
        return int(USED_SHARE * self.client_memory)


def code_bits(log: LogSize) -> float:
    """Bits of a cell, compressed: of the levels, if all were as frequent, and of whether it is observed."""
    p, size = log.observed, max(log.levels / log.variables, 1.0)
    missing = sum(-q * math.log2(q) for q in (p, 1 - p) if 0 < q < 1)
    return p * math.log2(size) + missing


def block_disk_bytes(log: LogSize) -> float:
    """Bytes of a sample's codes on disk."""
    if log.is_sparse:
        return log.variables * log.observed * math.log2(max(log.levels, 2)) / 8 + 1
    return log.variables * code_bits(log) / 8


def sample_disk_bytes(log: LogSize) -> float:
    """Bytes of a sample on disk: codes, row, counts and identifier, and, at most, how it was drawn."""
    return block_disk_bytes(log) + ROW_BYTES + 0.6 * log.identifier_bytes + log.design_bytes


def table_disk_bytes(log: LogSize, samples: float) -> float:
    """Bytes of a saved table of the pairs of some samples, at most: all cells, or those that can have been seen."""
    seen = samples * (log.variables * log.observed) ** 2
    return measure_saved_table(log.levels, seen)


def spill_row_bytes(log: LogSize, *, timed: bool = True) -> float:
    """Bytes of an encoded row in a spill, in pages."""
    values = 4 if log.layout == "long" else log.variables * log.code_bytes
    times = 8 if timed and log.layout == "long" else 0
    # beside the rows, the key of each sample of a page
    keys = 8 * min(1.0, log.samples / max(log.rows, 1))
    return 1.01 * (log.identifier_bytes + 4 + values + times + 8 + log.design_bytes) + keys


def count_partition_files(log: LogSize, blocks: Sequence[BlockReference]) -> int:
    """Count the files of one partition, from its blocks."""
    n_rows = blocks[-1].stop if blocks else 0
    by_rows = -(-n_rows // COLUMN_ROWS)
    if log.is_sparse:
        cells = round(n_rows * log.variables * log.observed)
        codes, described = -(-cells // COLUMN_ROWS) + by_rows, 1
    else:
        codes, described = -(-n_rows // choose_block_rows(log.variables)), 0
    texts = -(-round(n_rows * log.identifier_bytes) // COLUMN_ROWS)
    # an array of weights, and one of strata and units
    arrays = -(-log.design_columns // 2)
    design = arrays * (1 + by_rows)
    if log.replicates:
        design += 1 + -(-n_rows // choose_replicate_rows(log.replicates))
    return PARTITION_FILES + described + codes + 3 * by_rows + texts + design
