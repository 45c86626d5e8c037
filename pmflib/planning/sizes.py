"""Sizes that a plan is made of: of the log, of the fit, of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pmflib.blocks import SPARSE_BELOW


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
        Whether continuous traits are fitted as well, "compared" with latent classes, or in their place, "alone"; "" not
        at all.
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
    traits: str = ""

    @property
    def folds(self) -> int:
        """Folds of the store."""
        return self.train + self.validation + self.test


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
