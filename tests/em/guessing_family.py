"""A family of models that the library does not have: variables are independent, but some samples guess at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray, list_owners, normalise_blocks
from pmflib.core.blocks import Block, weigh_rows
from pmflib.core.defaults import LIMITS, Limits
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.driver import is_near_limit, run_em
from pmflib.model.statistics import sum_fields
from pmflib.store.sample_blocks import BlockGroup


@dataclass(frozen=True, eq=False)
class Sums:
    """Statistics of some samples: expected answers of those who know, and expected number of those who guess."""

    answers: FloatArray
    guessing: float
    log_likelihood: float
    n_rows: float


@dataclass(frozen=True, eq=False)
class Guessing:
    """A model: the share of samples that guess and the PMFs of the others, and the passes that led to it."""

    share: float
    pmfs: FloatArray
    log_likelihoods: tuple[float, ...] = ()

    @property
    def parameters(self) -> tuple[float, FloatArray]:
        return self.share, self.pmfs

    @property
    def n_passes(self) -> int:
        return len(self.log_likelihoods)

    def to_arrays(self) -> Arrays:
        history = np.array(self.log_likelihoods)
        return {"share": np.array(self.share), "pmfs": self.pmfs, "log_likelihoods": history}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Guessing:
        history = tuple(arrays["log_likelihoods"].tolist())
        return cls(float(arrays["share"]), arrays["pmfs"], history)


def weigh_both(
    block: Block, offsets: IntArray, parameters: tuple[float, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the probabilities of every row with guessing and with knowing."""
    share, pmfs = parameters
    levels = block.to_sparse(offsets)
    rows = np.repeat(np.arange(levels.n_rows), np.diff(levels.indptr))
    uniform = np.log(1.0 / np.diff(offsets))[list_owners(offsets)]
    guessed, known = (
        np.bincount(rows, table[levels.indices], levels.n_rows) for table in (uniform, np.log(pmfs))
    )
    return np.log(share) + guessed, np.log1p(-share) + known


def add_up(group: BlockGroup, offsets: IntArray, parameters: tuple[float, FloatArray]) -> Sums:
    """E-step over a group of blocks."""
    parts = [Sums(np.zeros(int(offsets[-1])), 0.0, 0.0, 0.0)]
    for block in iterate_distinct(group):
        guessed, known = weigh_both(block, offsets, parameters)
        total, weights, levels = (
            np.logaddexp(guessed, known),
            weigh_rows(block),
            block.to_sparse(offsets),
        )
        knowing = np.repeat(weights * np.exp(known - total), np.diff(levels.indptr))
        answers = np.bincount(levels.indices, knowing, int(offsets[-1])).astype(np.float64)
        guessing = float(weights @ np.exp(guessed - total))
        parts.append(Sums(answers, guessing, float(weights @ total), block.n_samples))
    return sum_fields(parts)


def score_under(
    parameters: tuple[float, FloatArray], offsets: IntArray
) -> Callable[[Block], FloatArray]:
    """Log-probability of every row of a block."""
    return lambda block: np.logaddexp(*weigh_both(block, offsets, parameters))


def fit_guessing(
    source: BlockSource,
    limits: Limits = LIMITS,
    checkpoint: Path | None = None,
    on_pass: Callable[[Guessing], None] | None = None,
) -> Guessing:
    """Fit by EM, from the evens."""
    offsets = source.offsets
    start = Guessing(0.5, normalise_blocks(np.arange(1.0, offsets[-1] + 1), offsets, np.ones(1)))
    kept = None
    if checkpoint is not None:
        fit = digest_fit(source.digest(), start.share, start.pmfs)
        path = checkpoint / "guessing.npz"
        kept = Checkpoint(path, fit, Guessing.to_arrays, Guessing.from_arrays)

    def evaluate(parameters: tuple[float, FloatArray]) -> Sums:
        return source.map_blocks(add_up, sum_fields, offsets, parameters, name="pass")

    def update(state: Guessing, sums: Sums) -> Guessing:
        pmfs = normalise_blocks(sums.answers + 1e-6, offsets, state.pmfs)
        history = (*state.log_likelihoods, sums.log_likelihood / sums.n_rows)
        return Guessing(sums.guessing / sums.n_rows, pmfs, history)

    return run_em(
        evaluate,
        update,
        start,
        has_converged=lambda state: is_near_limit(
            [-each for each in state.log_likelihoods], limits.tol
        ),
        max_passes=limits.max_passes,
        checkpoint=kept,
        on_pass=on_pass,
    )
