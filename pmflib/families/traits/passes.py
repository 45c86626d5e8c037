"""Sufficient statistics of trait models, summed in a fixed order, and the M-step that uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray, list_owners
from pmflib.base.blocks import Block, SparseBlock
from pmflib.families.traits.level_scores import EXTREMENESS, NOMINAL, VALUE, LevelScores

MOST_STEPS, TOLERANCE = 8, 1e-2
"""Maximum number of Newton steps per sample and pass, and the step size (in any trait) that ends them early; the mode
need not be exact.
"""
PART_CELLS = 1 << 18
"""Number of cells converted to level indices at a time: a few megabytes."""


class TraitLayout(NamedTuple):
    """Positions of each variable's sums; see `pmflib.families.traits.kernels.trait_passes.add_trait_statistics`."""

    scores: FloatArray
    starts: IntArray
    n_directions: IntArray
    size: int
    """Total length of the curvatures."""

    @classmethod
    def make(cls, scores: LevelScores, n_traits: int) -> TraitLayout:
        """Lay out the curvatures of all variables consecutively."""
        from pmflib.families.traits.kernels.trait_cells import MOST_JOINT

        n_each = scores.n_directions
        # variables with many directions share one upper bound
        n_pairs = np.where(n_each > MOST_JOINT, 1, n_each * (n_each + 1) // 2)
        ends = np.concatenate([[0], np.cumsum(n_pairs * count_packed(n_traits))])
        starts = np.column_stack([scores.starts[:-1], ends[:-1]])
        return cls(scores.scores, np.ascontiguousarray(starts), n_each, int(ends[-1]))


@dataclass(frozen=True, eq=False)
class TraitSums:
    """Sufficient statistics of samples under a trait model; additive over samples.

    Parameters
    ----------
    gradients
        float64 of shape (n_all_directions, 1 + n_traits): gradient of the expected log-likelihood in the coefficients.
    curvatures
        float64, flat: negative second derivatives, packed as described by `TraitLayout`.
    moments
        float64 of shape (1 + n_traits + n_traits**2,): number of samples with at least one observed cell, then sums of
        the posterior means and second moments of their traits.
    log_likelihood
        Nats, by Laplace's approximation.
    """

    gradients: FloatArray
    curvatures: FloatArray
    moments: FloatArray
    log_likelihood: float

    @staticmethod
    def merge(parts: Sequence[TraitSums]) -> TraitSums:
        """Sum statistics, at least one, in the given order; equal order gives equal bits."""
        gradients, curvatures, moments = (
            sum((getattr(part, name) for part in parts[1:]), getattr(parts[0], name))
            for name in ("gradients", "curvatures", "moments")
        )
        return TraitSums(gradients, curvatures, moments, sum(part.log_likelihood for part in parts))


def count_packed(n_traits: int) -> int:
    """Return the length of a packed lower triangle for one intercept and its slopes."""
    return (n_traits + 1) * (n_traits + 2) // 2


def count_sum_bytes(scores: LevelScores, n_traits: int) -> int:
    """Return the size of the statistics of a pass in bytes."""
    n_gradients = scores.kinds.size * (1 + n_traits)
    return 8 * (TraitLayout.make(scores, n_traits).size + n_gradients + (1 + n_traits) ** 2)


class PassModel(NamedTuple):
    """Parameters for a pass; the prior of the traits is standard normal.

    Parameters
    ----------
    scores
        Directions of the variables.
    coefficients
        float64 of shape (n_all_directions, 1 + n_traits): intercepts and slopes, as taken by
        `pmflib.families.traits.level_scores.LevelScores.spread`.
    """

    scores: LevelScores
    coefficients: FloatArray

    @property
    def n_traits(self) -> int:
        """Return the number of traits."""
        return len(self.coefficients.T) - 1


def sum_traits(blocks: Iterable[Block], model: PassModel) -> TraitSums:
    """Compute the sufficient statistics of samples.

    Newton's method starts at the prior mean for every person in every pass. No per-person state is stored, however many
    people there are, and the sums do not depend on earlier passes. The first step requires no exponentials.

    Parameters
    ----------
    blocks
        Valid samples; one block is in memory at a time.
    model
        Parameters of the E-step.
    """
    from pmflib.families.traits.kernels.trait_passes import add_trait_statistics, rest_cells

    scores, n_traits = model.scores, model.n_traits
    n_levels, n_variables = scores.log_marginals.size, scores.n_directions.size
    most = int(np.diff(scores.offsets).max())
    layout = TraitLayout.make(scores, n_traits)
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
    for part in split_level_indices(blocks, scores.offsets):
        weights = np.ones(part.n_rows) if part.weights is None else part.weights
        log_likelihood += add_trait_statistics(
            (np.asarray(part.indptr, np.int64), np.asarray(part.indices, np.int32), weights),
            *(arrays, (MOST_STEPS, TOLERANCE), of_kernel, resting, sums, work),
        )
    return TraitSums(*sums, float(log_likelihood))


def split_level_indices(blocks: Iterable[Block], offsets: IntArray) -> Iterator[SparseBlock]:
    """Yield rows of blocks as level indices in small batches, since codes take much more memory in that form."""
    n_rows = max(1, PART_CELLS // (offsets.size - 1))
    for block in blocks:
        for start in range(0, block.n_rows, n_rows):
            part = block.cut(start, min(start + n_rows, block.n_rows))
            yield part.to_sparse(offsets)


SLOPE_VARIANCE, INTERCEPT_VARIANCE = 0.1, 0.25
"""Initial prior variances of slopes and intercepts around their common value."""
EXTREMENESS_SHARE = 0.5
"""Shrinkage factor for extremeness slopes. Beyond each person's bias they mostly fit noise; with their full variance
they reduced the accuracy of hidden ratings more than any other choice.
"""
PRIOR_WEIGHT = 2.0
"""Weight of these initial variances, in directions."""
PEOPLE_WEIGHT = 2.0
"""Pseudo-samples with standard normal traits added to the posterior moments, so that no trait degenerates."""
LARGEST_STEP = 1.0
START_SLOPE, START_BIAS = 0.3, 0.5


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Intercepts and slopes of all directions, with a normal prior for each kind of direction.

    Parameters
    ----------
    values
        float64 of shape (n_all_directions, 1 + n_traits): intercept, then slopes on standard normal traits.
    centres
        float64 of shape (3, 1 + n_traits): prior mean by kind. Value directions share a slope, a person's level bias;
        extremeness directions share another; nominal directions share none.
    variances
        float64 of shape (3, 1 + n_traits, 1 + n_traits): prior covariances by kind.
    """

    values: FloatArray
    centres: FloatArray
    variances: FloatArray

    @classmethod
    def draw(cls, scores: LevelScores, dimensions: int, rng: np.random.Generator) -> Coefficients:
        """Draw starting values: the biases, and small random slopes on the other dimensions."""
        kinds = scores.kinds
        biases = list_biases(scores)
        n_traits = dimensions + len(biases)
        centres = np.zeros((3, 1 + n_traits))
        for position, kind in enumerate(biases):
            centres[kind, 1 + position] = START_BIAS
        values = centres[kinds]
        slopes = rng.normal(0, START_SLOPE, (kinds.size, dimensions))
        slopes[kinds == EXTREMENESS] *= 0.1
        values[:, 1 + len(biases) :] += slopes
        variances = np.zeros((3, 1 + n_traits, 1 + n_traits))
        variances[:, 0, 0] = INTERCEPT_VARIANCE
        if dimensions:
            variances[:, 1:, 1:] = SLOPE_VARIANCE * np.eye(n_traits)
        return cls(values, centres, variances)

    def update(self, scores: LevelScores, sums: TraitSums, shrinkage: float) -> Coefficients:
        """M-step: a Newton step for every variable, then the priors, then the moments of the traits.

        The prior of each kind is estimated by empirical Bayes: its covariance is the mean squared deviation of the
        coefficients from their centre, including their uncertainty, times the shrinkage (and ``EXTREMENESS_SHARE`` for
        extremeness). The posterior mean and covariance of the traits are absorbed into the coefficients (parameter
        expansion), so that traits are standard normal again. EM then converges in a few tens of passes.

        Parameters
        ----------
        scores, sums
            Directions, and the statistics of a pass under these coefficients.
        shrinkage
            In (0, 1]: 1 gives the EM update of the priors; smaller values eliminate dimensions that explain little.

        References
        ----------
        Liu, Rubin and Wu (1998), Biometrika 85(4), for parameter expansion; MacKay (1992), Neural Computation 4(3), for
        the evidence framework; Bock and Aitkin (1981), Psychometrika 46(4), for EM of item responses.
        """
        n_traits = self.values.shape[1] - 1
        # without dimensions, all variables share their slopes, and only the trait moments change them
        free = np.ones(1 + n_traits, bool)
        free[1:] = self.variances[VALUE, 1:, 1:].any()
        values, spreads = self._step(scores, sums, free)
        centres, variances = self.centres.copy(), self.variances.copy()
        least = np.diag([INTERCEPT_VARIANCE, *[SLOPE_VARIANCE] * n_traits])
        for kind in range(3):
            own = scores.kinds == kind
            if not own.any():
                continue
            if kind != NOMINAL and free[1:].any():
                centres[kind, 1:] = values[own, 1:].mean(axis=0)
            off = values[own] - centres[kind]
            squares = sum_products(off) + spreads[own].sum(axis=0)
            mean = (squares + PRIOR_WEIGHT * least) / (np.count_nonzero(own) + PRIOR_WEIGHT)
            variances[kind, 0, 0] = mean[0, 0]
            if free[1:].any():
                share = EXTREMENESS_SHARE if kind == EXTREMENESS else 1.0
                variances[kind, 1:, 1:] = share * shrinkage * mean[1:, 1:]
        mean_traits, root = find_people(sums.moments, n_traits)
        turn = np.eye(1 + n_traits)
        turn[1:, 0], turn[1:, 1:] = mean_traits, root
        centres = multiply(centres, turn)
        centres[:, 0] = 0.0
        for kind in range(3):
            variances[kind, 1:, 1:] = multiply(multiply(root.T, variances[kind, 1:, 1:]), root)
        return Coefficients(multiply(values, turn), centres, variances)

    def _step(
        self, scores: LevelScores, sums: TraitSums, free: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return coefficients after a Newton step, and the posterior covariance for each direction."""
        from pmflib.families.traits.kernels.trait_cells import MOST_JOINT

        size = free.size
        layout = TraitLayout.make(scores, size - 1)
        precisions = np.zeros((3, size, size))
        for kind in range(3):
            own = np.ix_(free, free)
            precisions[kind][own] = np.linalg.inv(self.variances[kind][own])
        values = self.values.copy()
        spreads = np.zeros((scores.kinds.size, size, size))
        for n_each in np.unique(layout.n_directions[layout.n_directions > 0]).tolist():
            positions = np.flatnonzero(layout.n_directions == n_each)
            own = layout.starts[positions, 1][:, None] + np.arange(n_each)
            pull = sums.gradients[own] - np.einsum(
                "pdfg,pdg->pdf",
                precisions[scores.kinds[own]],
                values[own] - self.centres[scores.kinds[own]],
            )
            begins = layout.starts[positions, 2]
            if n_each > MOST_JOINT:
                one = unpack_curvatures(sums.curvatures, begins, 1, size)[:, 0, :, 0]
                matrix = (one + precisions[NOMINAL])[:, free][:, :, free]
                inverse = np.linalg.inv(matrix)
                step = np.einsum("pfg,pdg->pdf", inverse, pull[:, :, free])
                blocks = np.broadcast_to(inverse[:, None], (*own.shape, *inverse.shape[1:]))
            else:
                full = unpack_curvatures(sums.curvatures, begins, n_each, size)
                for j in range(n_each):
                    full[:, j, :, j] += precisions[scores.kinds[own[:, j]]]
                kept = np.tile(free, n_each)
                matrix = full.reshape(len(positions), n_each * size, -1)[:, kept][:, :, kept]
                inverse = np.linalg.inv(matrix)
                n_free = int(np.count_nonzero(free))
                step = np.einsum(
                    "pfg,pg->pf", inverse, pull[:, :, free].reshape(len(positions), -1)
                ).reshape(len(positions), n_each, n_free)
                grid = inverse.reshape(len(positions), n_each, n_free, n_each, n_free)
                blocks = np.einsum("pjfjg->pjfg", grid)
            moved = values[own]
            moved[:, :, free] += np.clip(step, -LARGEST_STEP, LARGEST_STEP)
            values[own] = moved
            spread = np.zeros((*own.shape, size, size))
            spread[:, :, np.outer(free, free)] = blocks.reshape(*own.shape, -1)
            spreads[own] = spread
        return values, spreads


def list_biases(scores: LevelScores) -> list[int]:
    """List the kinds of directions that are present and for which people have a bias."""
    return [kind for kind in (VALUE, EXTREMENESS) if (scores.kinds == kind).any()]


def find_people(moments: FloatArray, n_traits: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of the traits and the Cholesky factor of their covariance."""
    n_people = max(float(moments[0]), 1.0)
    mean = moments[1 : 1 + n_traits] / n_people
    covariance = moments[1 + n_traits :].reshape(n_traits, n_traits) / n_people
    covariance = covariance - np.outer(mean, mean)
    both = (n_people * covariance + PEOPLE_WEIGHT * np.eye(n_traits)) / (n_people + PEOPLE_WEIGHT)
    return mean, np.asarray(np.linalg.cholesky((both + both.T) / 2), np.float64)


def unpack_curvatures(
    curvatures: FloatArray, begins: IntArray, n_each: int, size: int
) -> FloatArray:
    """Unpack second derivatives of variables with equally many directions: (n, n_each, size, n_each, size)."""
    packed, n_pairs = count_packed(size - 1), n_each * (n_each + 1) // 2
    lower = curvatures[begins[:, None] + np.arange(n_pairs * packed)].reshape(-1, n_pairs, packed)
    rows, columns = np.tril_indices(size)
    full = np.zeros((len(begins), n_each, size, n_each, size))
    for pair, (j, i) in enumerate(zip(*np.tril_indices(n_each), strict=True)):
        square = np.zeros((len(begins), size, size))
        square[:, rows, columns] = lower[:, pair]
        square[:, columns, rows] = lower[:, pair]
        full[:, j, :, i] = square
        full[:, i, :, j] = square
    return full


def multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply matrices column by column: the last bits of BLAS results depend on its threads."""
    out = np.zeros((len(left), right.shape[1]))
    for k in range(len(right)):
        out += left[:, k, None] * right[k]
    return out


def sum_products(rows: FloatArray) -> FloatArray:
    """Sum the outer products of rows with themselves."""
    return np.stack([(rows * rows[:, f, None]).sum(axis=0) for f in range(rows.shape[1])])
