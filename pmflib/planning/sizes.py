"""Sizes that a plan is made of: of the log, of the fit, of the cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from pmflib.blocks import SPARSE_BELOW
from pmflib.running.memory_limits import USED_SHARE
from pmflib.schema import Schema


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
        Bytes that they would have as plain CSV: see `pmflib.ingest.buckets.estimate_csv_bytes`.
    layout
        Wide: a row is a sample. Long: a row is one answer.
    identified
        Whether samples have identifiers, and are dealt to buckets by these.
    identifier_bytes
        Mean length of an identifier.
    code_bytes
        Bytes of a code in a dense block: 1, 2 or 4.
    cut
        How a large file is cut to pieces: plain CSV by bytes, Parquet by row groups, a packed file not at all.
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
    cut: Literal["bytes", "row groups", "not"] = "bytes"

    @property
    def observed_cells(self) -> float:
        """Observed cells of all samples."""
        return self.samples * self.variables * self.observed

    @property
    def is_sparse(self) -> bool:
        """Whether blocks hold the levels of observed cells in place of codes."""
        return self.layout == "long" and self.observed < SPARSE_BELOW

    @property
    def row_bytes(self) -> float:
        """Bytes of a sample in memory."""
        if self.is_sparse:
            return 4 * self.variables * self.observed + 8
        return float(self.variables * self.code_bytes)

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
        Whether latent classes are fitted as well, and the validation samples say which model is taken.
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
    tries_ranks
        Whether lower ranks are tried as well.
    """

    is_forced: bool
    tries_ranks: bool = False


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

    def to_json(self) -> dict[str, Any]:
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
    """

    workers: int
    threads: int = 1
    memory: int = 16 << 30
    client_memory: int = 16 << 30

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
