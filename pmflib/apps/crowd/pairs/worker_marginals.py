"""Pairwise marginals of workers' labels, including imputed ones for pairs without common tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.constraints import check_size
from pmflib.base.pseudo_counts import check_limits
from pmflib.papers.rotation import root_of

MAX_LEVELS = 6000
"""Maximum number of levels, workers times classes, for a dense matrix of all pairs: 288 MB."""


@dataclass(frozen=True, eq=False)
class WorkerPairs:
    """Pairwise marginals of workers, block-sparse.

    Parameters
    ----------
    first, second
        int64 of shape (n_pairs,): the workers of each pair, first < second, sorted.
    blocks
        float64 of shape (n_pairs, n_classes, n_classes): joint PMF of their labels.
    support
        int64 of shape (n_pairs,): number of tasks labelled by both.
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

    def take(self, kept: BoolArray) -> WorkerPairs:
        """Return some of the pairs, of the same workers."""
        if kept.all():
            return self
        names = ("first", "second", "blocks", "support")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

    def list_neighbours(self) -> list[tuple[IntArray, FloatArray]]:
        """List, for each worker, the workers with common tasks, and the blocks with its own labels as rows."""
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
        """Convert to a symmetric matrix of all pairs, (n_levels, n_levels); unobserved pairs are zero."""
        n_classes = self.n_classes
        _, labels, co_labels = np.indices(self.blocks.shape)
        rows = labels + self.first[:, None, None] * n_classes
        columns = co_labels + self.second[:, None, None] * n_classes
        size = self.n_workers * n_classes
        positions = (rows.ravel(), columns.ravel())
        upper = csr_array((self.blocks.ravel(), positions), shape=(size, size))
        return csr_array(upper + upper.T)

    def to_dense(self) -> tuple[FloatArray, IntArray, BoolArray]:
        """Convert to a matrix of all pairs, their support and an indicator of observed pairs, for the other solvers.

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
    hint = "their pairs fit in no dense matrix: choose a method without one, 'auto' or 'robust'"
    check_size(n_levels, MAX_LEVELS, f"levels of {n_workers} workers", hint)


@dataclass(frozen=True)
class RobustFactorisation:
    """Parameters of `factor_pairs`.

    Parameters
    ----------
    residual_floor
        Constant added to squared residuals before inversion: xi in equation (11).
    ridge
        Constant added to the diagonal of the normal equations of a factor, so that they can be solved.
    n_starts
        Number of starts; the one with the smallest residual is continued. Random starts can converge to solutions that
        do not fit some pairs; the best of five rarely does, even with 70 % of the pairs hidden.
    n_trial_sweeps
        Number of least-squares sweeps of every start before they are compared.
    largest_norm
        Maximum Frobenius norm of a factor; that of a confusion matrix times the square root of the prior is at most 1.
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
    """Impute the pairs of workers without common tasks, and the pair of each worker with itself, from all other pairs.

    The marginal of m and n is A_m A_l^{-1} times that of l and n, for any l. A_m A_l^{-1} is estimated from all workers
    observed together with both m and l, weighted by support; then all l are combined, weighted by how well A_l can be
    inverted. Imputed pairs are used to impute the others, until no more can be imputed.

    Parameters
    ----------
    marginals, support, observed
        As returned by `WorkerPairs.to_dense`.
    n_classes
        Number of classes.

    Returns
    -------
    The completed matrix, (n_levels, n_levels), nonnegative and symmetric, with observed pairs unchanged; and the pairs
    it contains, bool of shape (n_workers, n_workers). Pairs that cannot be imputed are zero.

    Notes
    -----
    Each round needs n_workers^2 eigendecompositions of size 2 n_classes and three products of the matrix with
    itself.

    References
    ----------
    Ibrahim, Fu (2021), ICML, equations (7) and (8), for a single pair (l, r).
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
        # imputed pairs have at most the weight of one common task
        weights += np.where(new, np.minimum(1.0, support[observed].min(initial=1)), 0.0)
    return filled, present


def _find_bridges(
    filled: FloatArray, weights: FloatArray, n_classes: int
) -> tuple[FloatArray, FloatArray]:
    """Estimate A_m A_l^{-1} for all pairs of workers, (n_levels, n_levels), and the reliability of each."""
    n = len(weights)
    blocks = filled.reshape(n, n_classes, n, n_classes).transpose(0, 2, 1, 3)
    own = blocks @ blocks.transpose(0, 1, 3, 2)
    # sums over workers with common tasks with both, weighted by the geometric mean of the roots of the two supports
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
    marginals: FloatArray,
    observed: BoolArray,
    *,
    n_classes: int,
    rng: np.random.Generator,
    annotators: tuple[int, int] | None = None,
) -> tuple[FloatArray, BoolArray]:
    """Impute each missing pair (m, n) from one pair (l, r), random or named, as in the published code.

    Parameters
    ----------
    marginals, observed, n_classes
        As for `impute_designated`.
    rng
        Random number generator for drawing l and r with (m, r), (l, r) and (l, n) observed.
    annotators
        Two designated workers: l and r for all pairs. The pairs of these two with themselves, for which they cannot
        serve, are the mean over all other l and r.

    Returns
    -------
    As for `impute_designated`; a pair stays missing if l and r do not allow its imputation.

    References
    ----------
    Ibrahim, Fu (2021), ICML, equations (7) and (8), as in the released code.
    """
    n = len(observed)
    blocks = marginals.reshape(n, n_classes, n, n_classes).transpose(0, 2, 1, 3)
    filled, present = marginals.copy(), observed.copy()
    for m in range(n):
        for k in range(m, n):
            if observed[m, k]:
                continue
            if annotators is not None and not (m == k and m in annotators):
                drawn = [
                    (near, far)
                    for near, far in (annotators, annotators[::-1])
                    if near != m and observed[m, far] and observed[near, far] and observed[near, k]
                ][:1]
            else:
                l_side, r_side = np.nonzero(
                    observed[:, observed[m]] & observed[k][:, None] & (np.arange(n) != m)[:, None]
                )
                r_side = np.flatnonzero(observed[m])[r_side]
                drawn = list(zip(l_side.tolist(), r_side.tolist(), strict=True))
                if annotators is None and drawn:
                    drawn = [drawn[rng.integers(len(drawn))]]
            cells = [_bridge(blocks, m, k, near, far) for near, far in drawn]
            cells = [cell for cell in cells if np.linalg.matrix_rank(cell) == n_classes]
            if not cells:
                continue
            cell = np.mean(cells, axis=0)
            rows = slice(m * n_classes, (m + 1) * n_classes)
            columns = slice(k * n_classes, (k + 1) * n_classes)
            if m == k and len(cells) > 1:
                cell = (cell + cell.T) / 2
            filled[rows, columns], filled[columns, rows] = cell, cell.T
            present[m, k] = present[k, m] = True
    return filled, present


def _bridge(blocks: FloatArray, m: int, k: int, near: int, far: int) -> FloatArray:
    """Impute the pair (m, k) through l = near and r = far; nonnegative, with sum 1."""
    n_classes = blocks.shape[-1]
    stacked = np.concatenate([blocks[m, far], blocks[near, far]])
    left = np.linalg.svd(stacked)[0][:, :n_classes]
    cell = np.abs(left[:n_classes] @ np.linalg.pinv(left[n_classes:]) @ blocks[near, k])
    return np.asarray(cell / max(cell.sum(), 1e-300))


def factor_pairs(
    pairs: WorkerPairs,
    *,
    rng: np.random.Generator,
    reweighted: bool = True,
    max_iter: int = 300,
    tol: float = 1e-6,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Factorise the observed pairs, R_mj = U_m U_j', without imputing the others.

    Parameters
    ----------
    pairs
        Pairwise marginals, at least one.
    rng
        Random number generator for all starts except one, the root of the matrix of all pairs with zeros for missing
        ones.
    reweighted
        Whether pairs are weighted by the inverse of their residuals, which limits the influence of a few bad ones;
        False uses least squares.
    max_iter, tol
        Maximum number of sweeps, and the relative change of the mean residual at which to stop.

    Returns
    -------
    Stacked factors, float64 of shape (n_workers * n_classes, n_classes), each with Frobenius norm at most 1, zero for
    workers without pairs; and the mean Frobenius residual after each sweep.

    References
    ----------
    Ibrahim, Fu (2021), ICML, problem (9) by the reweighted updates (11); supplement B takes gradient steps where
    each factor is solved for here.
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
            # residual weights of a start that does not fit would keep it from improving
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
    """Fit the factor of one worker after another given those of the others, in place."""
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
