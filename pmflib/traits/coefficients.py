"""Parameters of a trait model in the directions of its levels, and their update from the sums of a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.traits.level_scores import EXTREMENESS, NOMINAL, VALUE, LevelScores
from pmflib.traits.trait_passes import Layout, TraitSums, count_packed

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
        for place, kind in enumerate(biases):
            centres[kind, 1 + place] = START_BIAS
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
        from pmflib.kernels.many_directions import MOST_JOINT

        size = free.size
        layout = Layout.make(scores, size - 1)
        precisions = np.zeros((3, size, size))
        for kind in range(3):
            own = np.ix_(free, free)
            precisions[kind][own] = np.linalg.inv(self.variances[kind][own])
        values = self.values.copy()
        spreads = np.zeros((scores.kinds.size, size, size))
        for n_each in np.unique(layout.n_directions[layout.n_directions > 0]).tolist():
            places = np.flatnonzero(layout.n_directions == n_each)
            own = layout.starts[places, 1][:, None] + np.arange(n_each)
            pull = sums.gradients[own] - np.einsum(
                "pdfg,pdg->pdf",
                precisions[scores.kinds[own]],
                values[own] - self.centres[scores.kinds[own]],
            )
            begins = layout.starts[places, 2]
            if n_each > MOST_JOINT:
                one = unpack(sums.curvatures, begins, 1, size)[:, 0, :, 0]
                matrix = (one + precisions[NOMINAL])[:, free][:, :, free]
                inverse = np.linalg.inv(matrix)
                step = np.einsum("pfg,pdg->pdf", inverse, pull[:, :, free])
                blocks = np.broadcast_to(inverse[:, None], (*own.shape, *inverse.shape[1:]))
            else:
                full = unpack(sums.curvatures, begins, n_each, size)
                for j in range(n_each):
                    full[:, j, :, j] += precisions[scores.kinds[own[:, j]]]
                kept = np.tile(free, n_each)
                matrix = full.reshape(len(places), n_each * size, -1)[:, kept][:, :, kept]
                inverse = np.linalg.inv(matrix)
                n_free = int(np.count_nonzero(free))
                step = np.einsum(
                    "pfg,pg->pf", inverse, pull[:, :, free].reshape(len(places), -1)
                ).reshape(len(places), n_each, n_free)
                grid = inverse.reshape(len(places), n_each, n_free, n_each, n_free)
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


def unpack(curvatures: FloatArray, begins: IntArray, n_each: int, size: int) -> FloatArray:
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
