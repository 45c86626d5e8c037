"""Sums of a pass of EM under a trait model, additive, added in a fixed order; and the update from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, list_owners
from pmflib.core.blocks import Block, SparseBlock
from pmflib.model.traits.level_scores import EXTREMENESS, NOMINAL, VALUE, LevelScores

MOST_STEPS, TOLERANCE = 8, 1e-2
"""Newton steps of a sample within a pass, and the step, in any trait, that is the last: it need not be exact."""
PART_CELLS = 1 << 18
"""Cells of the rows that are turned into level indices at a time: some megabytes."""


class TraitLayout(NamedTuple):
    """Where the sums of each variable are: see `pmflib.kernels.trait_passes.add_trait_statistics`."""

    scores: FloatArray
    starts: IntArray
    n_directions: IntArray
    size: int
    """Length of the curvatures."""

    @classmethod
    def make(cls, scores: LevelScores, n_traits: int) -> TraitLayout:
        """Lay out the curvatures of all variables, one after another."""
        from pmflib.kernels.trait_cells import MOST_JOINT

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
        float64, flat: minus its second derivatives, packed as `TraitLayout` says.
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
    return 8 * (TraitLayout.make(scores, n_traits).size + n_gradients + (1 + n_traits) ** 2)


class PassModel(NamedTuple):
    """Parameters that a pass is made under; traits are standard normal a priori.

    Parameters
    ----------
    scores
        Directions of the variables.
    coefficients
        float64 of shape (n_all_directions, 1 + n_traits): intercepts, and slopes, as
        `pmflib.model.traits.level_scores.LevelScores.spread` takes them.
    """

    scores: LevelScores
    coefficients: FloatArray

    @property
    def n_traits(self) -> int:
        """Number of traits."""
        return len(self.coefficients.T) - 1


def sum_traits(blocks: Iterable[Block], model: PassModel) -> TraitSums:
    """Statistics of some samples.

    Newton's steps begin at the prior's mean for every person in every pass: nothing is kept of people, however many
    there are, and the sums do not depend on what was kept. The first step from there takes no exponential.

    Parameters
    ----------
    blocks
        Valid samples, of which one block is in memory at a time.
    model
        What the expectation is computed under.
    """
    from pmflib.kernels.trait_passes import add_trait_statistics, rest_cells

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
    """Rows of blocks as level indices, of which codes take many times the room: so many rows at a time."""
    n_rows = max(1, PART_CELLS // (offsets.size - 1))
    for block in blocks:
        for start in range(0, block.n_rows, n_rows):
            part = block.cut(start, min(start + n_rows, block.n_rows))
            yield part.to_sparse(offsets)


SLOPE_VARIANCE, INTERCEPT_VARIANCE = 0.1, 0.25
"""Variances of coefficients around what variables of their kind have in common, before anything is known."""
EXTREMENESS_SHARE = 0.5
"""Share of the shrinkage that slopes of extremeness have: what they find besides people's bias is mostly chance, and
with all of their variance they cost hidden ratings more than all other choices."""
PRIOR_WEIGHT = 2.0
"""Directions that these variances count for."""
PEOPLE_WEIGHT = 2.0
"""Samples of standard normal traits that are added to the moments of the posteriors: a trait never dies out."""
LARGEST_STEP = 1.0
START_SLOPE, START_BIAS = 0.3, 0.5


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Intercepts and slopes of all directions, and the normal prior of those of each kind.

    Parameters
    ----------
    values
        float64 of shape (n_all_directions, 1 + n_traits): intercept, then slopes on traits that are standard normal.
    centres
        float64 of shape (3, 1 + n_traits): mean of the prior by kind. Directions of values have a common slope, which
        is the bias of a person's level, those of extremeness another; nominal ones have none.
    variances
        float64 of shape (3, 1 + n_traits, 1 + n_traits): covariances of the prior by kind.
    """

    values: FloatArray
    centres: FloatArray
    variances: FloatArray

    @classmethod
    def draw(cls, scores: LevelScores, dimensions: int, rng: np.random.Generator) -> Coefficients:
        """Start: the biases, and small random slopes on the other dimensions."""
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
        """M-step: a Newton step of every variable, then the priors, then the moments of people.

        The prior of each kind is estimated as well (empirical Bayes): its covariance is the mean of what coefficients
        are off its centre, their uncertainty included, times the shrinkage, and for extremeness ``EXTREMENESS_SHARE``.
        What the posteriors say of the mean and covariance of people is taken into the coefficients (parameter
        expansion), so that traits are standard normal again: EM then needs a few tens of passes.

        Parameters
        ----------
        scores, sums
            Directions, and the sums of a pass under these coefficients.
        shrinkage
            In (0, 1]: 1 is the EM update of the priors; below, dimensions that explain little die out.

        References
        ----------
        Liu, Rubin and Wu (1998), Biometrika 85(4), for parameter expansion; MacKay (1992), Neural Computation 4(3), for
        the evidence framework; Bock and Aitkin (1981), Psychometrika 46(4), for EM of item responses.
        """
        n_traits = self.values.shape[1] - 1
        # without dimensions, slopes are common to all variables, and only people move them
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
        """Coefficients after a Newton step, and the posterior covariance of those of each direction."""
        from pmflib.kernels.trait_cells import MOST_JOINT

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
    """Kinds of directions that people have a bias in, of those that there are."""
    return [kind for kind in (VALUE, EXTREMENESS) if (scores.kinds == kind).any()]


def find_people(moments: FloatArray, n_traits: int) -> tuple[FloatArray, FloatArray]:
    """Mean of people's traits, and the Cholesky factor of their covariance."""
    n_people = max(float(moments[0]), 1.0)
    mean = moments[1 : 1 + n_traits] / n_people
    covariance = moments[1 + n_traits :].reshape(n_traits, n_traits) / n_people
    covariance = covariance - np.outer(mean, mean)
    both = (n_people * covariance + PEOPLE_WEIGHT * np.eye(n_traits)) / (n_people + PEOPLE_WEIGHT)
    return mean, np.asarray(np.linalg.cholesky((both + both.T) / 2), np.float64)


def unpack_curvatures(
    curvatures: FloatArray, begins: IntArray, n_each: int, size: int
) -> FloatArray:
    """Second derivatives of variables that have equally many directions: (n, n_each, size, n_each, size)."""
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
    """Product of matrices, column by column: the last bits of BLAS depend on its threads."""
    out = np.zeros((len(left), right.shape[1]))
    for k in range(len(right)):
        out += left[:, k, None] * right[k]
    return out


def sum_products(rows: FloatArray) -> FloatArray:
    """Sum of the outer products of rows with themselves."""
    return np.stack([(rows * rows[:, f, None]).sum(axis=0) for f in range(rows.shape[1])])
