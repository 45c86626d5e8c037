"""Sums of a pass of EM over samples under a trait model: additive, and added in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import Block, SparseBlock
from pmflib.level_blocks import list_owners
from pmflib.traits.level_scores import LevelScores

MOST_STEPS, TOLERANCE = 8, 1e-2
"""Newton steps of a sample within a pass, and the step, in any trait, that is the last: it need not be exact."""
PART_CELLS = 1 << 18
"""Cells of the rows that are turned into level indices at a time: some megabytes."""


class Layout(NamedTuple):
    """Where the sums of each variable are: see `pmflib.kernels.trait_statistics.add_trait_statistics`."""

    scores: FloatArray
    starts: IntArray
    n_directions: IntArray
    size: int
    """Length of the curvatures."""

    @classmethod
    def make(cls, scores: LevelScores, n_traits: int) -> Layout:
        """Lay out the curvatures of all variables, one after another."""
        from pmflib.kernels.many_directions import MOST_JOINT

        n_each = scores.n_directions
        # of many directions one bound stands for all
        n_pairs = np.where(n_each > MOST_JOINT, 1, n_each * (n_each + 1) // 2)
        ends = np.concatenate([[0], np.cumsum(n_pairs * count_packed(n_traits))])
        starts = np.column_stack([scores.starts[:-1], ends[:-1]])
        return cls(scores.scores, np.ascontiguousarray(starts), n_each, int(ends[-1]))


@dataclass(frozen=True, eq=False)
class TraitSums:
    """Sufficient statistics of some samples under one trait model; additive over samples.

    Parameters
    ----------
    gradients
        float64 of shape (n_all_directions, 1 + n_traits): of the expected log-likelihood by the coefficients.
    curvatures
        float64, flat: minus its second derivatives, packed as `Layout` says.
    moments
        float64 of shape (1 + n_traits + n_traits**2,): number of samples with anything observed, and the sums of their
        traits' posterior means and second moments.
    log_likelihood
        Nats, by Laplace's approximation.
    """

    gradients: FloatArray
    curvatures: FloatArray
    moments: FloatArray
    log_likelihood: float

    @staticmethod
    def merge(parts: Sequence[TraitSums]) -> TraitSums:
        """Sum of statistics, at least one, added in the order given: equal order, equal bits."""
        gradients, curvatures, moments = (
            sum((getattr(part, name) for part in parts[1:]), getattr(parts[0], name))
            for name in ("gradients", "curvatures", "moments")
        )
        return TraitSums(gradients, curvatures, moments, sum(part.log_likelihood for part in parts))


def count_packed(n_traits: int) -> int:
    """Numbers in the lower triangle of a second derivative by an intercept and its slopes."""
    return (n_traits + 1) * (n_traits + 2) // 2


def count_sum_bytes(scores: LevelScores, n_traits: int) -> int:
    """Size of the sums of a pass, bytes."""
    n_gradients = scores.kinds.size * (1 + n_traits)
    return 8 * (Layout.make(scores, n_traits).size + n_gradients + (1 + n_traits) ** 2)


class PassModel(NamedTuple):
    """Parameters that a pass is made under; traits are standard normal a priori.

    Parameters
    ----------
    scores
        Directions of the variables.
    coefficients
        float64 of shape (n_all_directions, 1 + n_traits): intercepts, and slopes, as
        `pmflib.traits.level_scores.LevelScores.spread` takes them.
    """

    scores: LevelScores
    coefficients: FloatArray

    @property
    def n_traits(self) -> int:
        """Number of traits."""
        return len(self.coefficients.T) - 1


def add_blocks(blocks: Iterable[Block], model: PassModel) -> TraitSums:
    """Statistics of some samples.

    Newton's steps begin at the prior's mean for every person in every pass: nothing is kept of people, however many
    there are, and the sums do not depend on what was kept. The first step from there takes no exponential.

    Parameters
    ----------
    blocks
        Valid samples, of which one block is in memory at a time.
    model
        What the expectation is taken under.
    """
    from pmflib.kernels.trait_posteriors import rest_cells
    from pmflib.kernels.trait_statistics import add_trait_statistics

    scores, n_traits = model.scores, model.n_traits
    n_levels, n_variables = scores.log_marginals.size, scores.n_directions.size
    most = int(np.diff(scores.offsets).max())
    layout = Layout.make(scores, n_traits)
    sums = (
        np.zeros((scores.kinds.size, 1 + n_traits)),
        np.zeros(layout.size),
        np.zeros(1 + n_traits + n_traits**2),
    )
    arrays = (list_owners(scores.offsets), scores.offsets, *scores.spread(model.coefficients))
    of_kernel = (*layout[:3], np.ascontiguousarray(model.coefficients[:, 1:]))
    resting = np.empty((n_levels, n_traits)), np.empty((n_variables, n_traits, n_traits))
    rest_cells(arrays, *resting, (np.empty((2, n_traits)), np.empty(most)))
    shapes: list[tuple[int, ...]] = [
        *[(4, n_traits), (n_traits, n_traits), (n_levels,)],
        *[(n_variables + 1, 5), (n_variables, 2, n_traits), (n_variables, 3)],
        *[(n_traits, n_traits), (count_packed(n_traits),), (3, n_traits), (most,)],
    ]
    work = tuple(np.zeros(shape) for shape in shapes)
    log_likelihood = 0.0
    for part in cut_blocks(blocks, scores.offsets):
        weights = np.ones(part.n_rows) if part.weights is None else part.weights
        log_likelihood += add_trait_statistics(
            (np.asarray(part.indptr, np.int64), np.asarray(part.indices, np.int32), weights),
            *(arrays, (MOST_STEPS, TOLERANCE), of_kernel, resting, sums, work),
        )
    return TraitSums(*sums, float(log_likelihood))


def cut_blocks(blocks: Iterable[Block], offsets: IntArray) -> Iterator[SparseBlock]:
    """Rows of blocks as level indices, of which codes take many times the room: so many rows at a time."""
    n_rows = max(1, PART_CELLS // (offsets.size - 1))
    for block in blocks:
        for start in range(0, block.n_rows, n_rows):
            part = block.cut(start, min(start + n_rows, block.n_rows))
            yield part.to_sparse(offsets)
