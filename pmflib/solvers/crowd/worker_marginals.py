"""Pairwise marginals of workers' labels, and those of pairs that never met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from pmflib.core.arrays import BoolArray, FloatArray, IntArray
from pmflib.core.errors import MemoryPlanError
from pmflib.solvers import check_limits
from pmflib.solvers.numeric.rotation import root_of

MAX_LEVELS = 6000
"""Levels, workers times classes, up to which all pairs are put into one dense matrix: 288 MB."""


@dataclass(frozen=True, eq=False)
class WorkerPairs:
    """Pairwise marginals of workers, block-sparse.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): the workers of each pair, first < second, in order.
    blocks
        float64 of shape (n_pairs, n_classes, n_classes): joint PMF of their labels.
    support
        int64 of shape (n_pairs,): number of tasks that both have labelled.
    n_workers
        Number of workers.
    """

    first: IntArray
    second: IntArray
    blocks: FloatArray
    support: IntArray
    n_workers: int

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.blocks.shape[1])

    @property
    def offsets(self) -> IntArray:
        """First level of each worker, int64 of shape (n_workers + 1,)."""
        return np.arange(self.n_workers + 1, dtype=np.int64) * self.n_classes

    def list_neighbours(self) -> list[tuple[IntArray, FloatArray]]:
        """For each worker, those with common tasks, and the blocks with its own labels as rows."""
        mine = np.concatenate([self.first, self.second])
        others = np.concatenate([self.second, self.first])
        order = np.lexsort((others, mine))
        edges = np.searchsorted(mine[order], np.arange(self.n_workers + 1))
        n_pairs = self.first.size
        listed = []
        for start, stop in pairwise(edges):
            here = order[start:stop]
            transposed = (here >= n_pairs)[:, None, None]
            blocks = self.blocks[here % max(n_pairs, 1)]
            listed.append((others[here], np.where(transposed, blocks.transpose(0, 2, 1), blocks)))
        return listed

    def to_sparse(self) -> csr_array:
        """Matrix of all pairs, (n_levels, n_levels), symmetric; zero where nothing was observed."""
        n_classes = self.n_classes
        _, labels, co_labels = np.indices(self.blocks.shape)
        rows = labels + self.first[:, None, None] * n_classes
        columns = co_labels + self.second[:, None, None] * n_classes
        size = self.n_workers * n_classes
        positions = (rows.ravel(), columns.ravel())
        upper = csr_array((self.blocks.ravel(), positions), shape=(size, size))
        return csr_array(upper + upper.T)

    def to_dense(self) -> tuple[FloatArray, IntArray, BoolArray]:
        """Matrix of all pairs, their support and whether they were observed, as the other solvers take them.

        Raises
        ------
        MemoryPlanError
            If the workers have more than ``MAX_LEVELS`` levels.
        """
        check_levels(self.n_workers, self.n_classes)
        support = np.zeros((self.n_workers,) * 2, np.int64)
        support[self.first, self.second] = support[self.second, self.first] = self.support
        return self.to_sparse().toarray(), support, support > 0


def check_levels(n_workers: int, n_classes: int) -> None:
    """Check that all pairs fit in one dense matrix.

    Raises
    ------
    MemoryPlanError
        If the workers have more than ``MAX_LEVELS`` levels.
    """
    n_levels = n_workers * n_classes
    if n_levels > MAX_LEVELS:
        raise MemoryPlanError(
            f"{n_workers} workers have {n_levels} levels, above {MAX_LEVELS}, and their pairs do not "
            "fit in a dense matrix; choose a method that needs none: 'auto' or 'robust'"
        )


@dataclass(frozen=True)
class RobustFactorisation:
    """Parameters of `factor_pairs`.

    Parameters
    ----------
    residual_floor
        Added to squared residuals before they are inverted: xi of the paper's Algorithm 3.
    ridge
        Added to the diagonal of the normal equations of a factor, so that they can be solved.
    n_starts
        Starts, of which the one with the least residual goes on. Random starts may end where some pairs are not fitted;
        one of five rarely does where seven pairs in ten are hidden.
    n_trial_sweeps
        Sweeps of every start, by least squares, before they are compared.
    largest_norm
        Largest Frobenius norm of a factor: a confusion matrix times the square root of the prior has none above 1.
    """

    residual_floor: float = 1e-6
    ridge: float = 1e-6
    n_starts: int = 5
    n_trial_sweeps: int = 15
    largest_norm: float = 1.0


FACTORISATION = RobustFactorisation()


def impute_designated(
    marginals: FloatArray, support: IntArray, observed: BoolArray, *, n_classes: int
) -> tuple[FloatArray, BoolArray]:
    """Fill the pairs of workers that share no task, and each one's pair with itself, through all others.

    The marginal of m and n is A_m A_l^{-1} times that of l and n, for any l. A_m A_l^{-1} is found from all workers
    that both m and l were observed with, the better supported weighing more; then all l are combined, those from which
    A_l is inverted well weighing more. What was filled helps to fill the rest, until nothing more can be filled.

    Parameters
    ----------
    marginals, support, observed
        As `WorkerPairs.to_dense` gives them.
    n_classes
        Number of classes.

    Returns
    -------
    The completed matrix, (n_levels, n_levels), nonnegative and symmetric, observed pairs as they are; and the pairs
    that are in it, bool of shape (n_workers, n_workers). A pair that stays missing is zero.

    Notes
    -----
    Each round takes n_workers^2 eigendecompositions of size 2 n_classes and three products of the matrix with
    itself.

    References
    ----------
    Ibrahim, Fu (2021), ICML, section 3.1, where one pair (l, r) is taken.
    """
    filled, present = marginals.copy(), observed.copy()
    weights = support.astype(np.float64)
    while not present.all():
        bridges, merits = _find_bridges(filled, weights, n_classes)
        # A_m A_l^{-1} R_ln, over all l
        spread = np.kron(merits, np.ones((n_classes, n_classes)))
        cells = (bridges * spread) @ filled
        mass = merits @ present.astype(np.float64)
        sums = np.maximum(cells + cells.T, 0.0)
        total = _sum_blocks(sums, n_classes)
        reached = (mass + mass.T > 0) & (total > 0)
        new = reached & ~present
        if not new.any():
            break
        shares = np.where(new, 1.0 / np.where(total > 0, total, 1.0), 0.0)
        filled += sums * np.kron(shares, np.ones((n_classes, n_classes)))
        present |= new
        # what was filled counts as one common task at most
        weights += np.where(new, np.minimum(1.0, support[observed].min(initial=1)), 0.0)
    return filled, present


def _find_bridges(
    filled: FloatArray, weights: FloatArray, n_classes: int
) -> tuple[FloatArray, FloatArray]:
    """A_m A_l^{-1} of all pairs of workers, (n_levels, n_levels), and how far to trust each."""
    n = len(weights)
    blocks = filled.reshape(n, n_classes, n, n_classes).transpose(0, 2, 1, 3)
    own = blocks @ blocks.transpose(0, 1, 3, 2)
    # sums over the workers that both have met, each by the geometric mean of the two supports' roots
    quarter = weights**0.25
    weighted = filled * np.kron(quarter, np.ones((n_classes, n_classes)))
    cross = (weighted @ weighted.T).reshape(n, n_classes, n, n_classes).transpose(0, 2, 1, 3)
    scaled = (own * quarter[:, :, None, None]).reshape(n, n, -1)
    mine = np.matmul(quarter, scaled).reshape(n, n, n_classes, n_classes)
    gram = np.empty((n, n, 2 * n_classes, 2 * n_classes))
    gram[..., :n_classes, :n_classes] = mine
    gram[..., n_classes:, n_classes:] = mine.transpose(1, 0, 2, 3)
    gram[..., :n_classes, n_classes:] = cross
    gram[..., n_classes:, :n_classes] = cross.transpose(0, 1, 3, 2)
    vectors = np.linalg.eigh(gram)[1][..., n_classes:]
    upper, lower = vectors[..., :n_classes, :], vectors[..., n_classes:, :]
    left, values, right = np.linalg.svd(lower)
    least = values[..., -1]
    met = (weights @ weights > 0) & (least > 1e-6)
    np.fill_diagonal(met, False)
    inverse = np.where(met[..., None], 1.0 / np.where(met[..., None], values, 1.0), 0.0)
    bridges = (
        upper @ (right.transpose(0, 1, 3, 2) * inverse[..., None, :]) @ left.transpose(0, 1, 3, 2)
    )
    merits = np.where(met, least**2 * np.sqrt(weights @ weights), 0.0)
    return bridges.transpose(0, 2, 1, 3).reshape(filled.shape), merits


def _sum_blocks(matrix: FloatArray, n_classes: int) -> FloatArray:
    n = len(matrix) // n_classes
    return np.asarray(matrix.reshape(n, n_classes, n, n_classes).sum(axis=(1, 3)))


def impute_by_one_pair(
    marginals: FloatArray, observed: BoolArray, *, n_classes: int, rng: np.random.Generator
) -> tuple[FloatArray, BoolArray]:
    """Fill each missing pair (m, n) through one pair (l, r), drawn at random: what the published code does.

    Parameters
    ----------
    marginals, observed, n_classes
        As for `impute_designated`.
    rng
        Draws l and r with (m, r), (l, r) and (l, n) observed.

    Returns
    -------
    As `impute_designated`; a pair stays missing where the one drawn does not serve.

    References
    ----------
    Ibrahim, Fu (2021), ICML, equation (9), as in the released code.
    """
    n = len(observed)
    blocks = marginals.reshape(n, n_classes, n, n_classes).transpose(0, 2, 1, 3)
    filled, present = marginals.copy(), observed.copy()
    for m in range(n):
        for k in range(m, n):
            if observed[m, k]:
                continue
            l_side, r_side = np.nonzero(
                observed[:, observed[m]] & observed[k][:, None] & (np.arange(n) != m)[:, None]
            )
            if not l_side.size:
                continue
            pick = rng.integers(l_side.size)
            near, far = l_side[pick], np.flatnonzero(observed[m])[r_side[pick]]
            stacked = np.concatenate([blocks[m, far], blocks[near, far]])
            left = np.linalg.svd(stacked)[0][:, :n_classes]
            cell = left[:n_classes] @ np.linalg.pinv(left[n_classes:]) @ blocks[near, k]
            cell = np.abs(cell) / max(np.abs(cell).sum(), 1e-300)
            if np.linalg.matrix_rank(cell) < n_classes:
                continue
            rows = slice(m * n_classes, (m + 1) * n_classes)
            columns = slice(k * n_classes, (k + 1) * n_classes)
            filled[rows, columns], filled[columns, rows] = cell, cell.T
            present[m, k] = present[k, m] = True
    return filled, present


def factor_pairs(
    pairs: WorkerPairs,
    *,
    rng: np.random.Generator,
    reweighted: bool = True,
    max_iter: int = 300,
    tol: float = 1e-6,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Factorise the observed pairs, R_mj = U_m U_j', without filling the others.

    Parameters
    ----------
    pairs
        Pairwise marginals, at least one.
    rng
        Draws the starts, but for one: the root of all pairs with zeros for those that are missing.
    reweighted
        Whether a pair counts by the inverse of its residual, so that a few bad ones do little harm; False is least
        squares.
    max_iter, tol
        Limit of sweeps, and the relative change of the mean residual to stop at.

    Returns
    -------
    Stacked factors, float64 of shape (n_workers * n_classes, n_classes), each of Frobenius norm at most 1; zero for
    a worker without a pair. The mean Frobenius residual after each sweep.

    References
    ----------
    Ibrahim, Fu (2021), ICML, equation (12) and Algorithm 3 of its supplement.
    """
    check_limits(max_iter, tol)
    neighbours = pairs.list_neighbours()
    shape = (pairs.n_workers, pairs.n_classes, pairs.n_classes)
    starts = [root_of(pairs.to_sparse(), pairs.n_classes).reshape(shape)]
    starts += [rng.standard_normal(shape) for _ in range(FACTORISATION.n_starts - 1)]
    largest = FACTORISATION.largest_norm
    best: tuple[FloatArray, list[float]] | None = None
    for factors in starts:
        lengths = np.linalg.norm(factors, axis=(1, 2))
        factors *= (largest / np.maximum(lengths, largest))[:, None, None]
        factors[[not others.size for others, _ in neighbours]] = 0.0
        history: list[float] = []
        while len(history) < min(FACTORISATION.n_trial_sweeps, max_iter):
            # weights by residuals of a start that fits nothing would hold it where it is
            _sweep(factors, neighbours, reweighted=False)
            history.append(_mean_residual(pairs, factors))
        if best is None or (history and history[-1] < best[1][-1]):
            best = factors, history
    assert best is not None
    factors, history = best
    while len(history) < max_iter:
        _sweep(factors, neighbours, reweighted)
        history.append(_mean_residual(pairs, factors))
        if abs(history[-2] - history[-1]) <= tol * history[-2]:
            break
    return factors.reshape(-1, pairs.n_classes), tuple(history)


def _sweep(
    factors: FloatArray, neighbours: Sequence[tuple[IntArray, FloatArray]], reweighted: bool
) -> None:
    """Fit the factor of one worker after the other to those of the others, in place."""
    largest = FACTORISATION.largest_norm
    ridge = FACTORISATION.ridge * np.eye(factors.shape[1])
    for m, (others, blocks) in enumerate(neighbours):
        if not others.size:
            continue
        near = factors[others]
        weights = np.ones(others.size)
        if reweighted:
            residuals = blocks - factors[m] @ near.transpose(0, 2, 1)
            weights = 1.0 / np.sqrt((residuals**2).sum(axis=(1, 2)) + FACTORISATION.residual_floor)
        weighted = near * weights[:, None, None]
        gram = np.einsum("jab,jac->bc", weighted, near) + ridge
        pull = np.einsum("jab,jbc->ac", blocks, weighted)
        factors[m] = np.linalg.solve(gram, pull.T).T
        factors[m] *= min(1.0, largest / max(float(np.linalg.norm(factors[m])), 1e-300))


def _mean_residual(pairs: WorkerPairs, factors: FloatArray) -> float:
    if not pairs.first.size:
        return 0.0
    model = factors[pairs.first] @ factors[pairs.second].transpose(0, 2, 1)
    return float(np.linalg.norm(pairs.blocks - model, axis=(1, 2)).mean())
