"""CNMF-SPA: factors read off the most extreme columns of one large nonnegative matrix.

The variables are split in two sides; the pairwise marginals across make the matrix
X = W H' with W the factors of the first side, stacked, and H' = D(prior) times those of the second.
Where every latent state has a level that (nearly) gives it away, W stands among X's columns.
"""

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.errors import PmfError, RankError, SchemaError
from pmflib.solvers.numeric.nnls import solve_nnls
from pmflib.solvers.numeric.simplex import solve_simplex_least_squares
from pmflib.solvers.pairs.splits import list_splits
from pmflib.solvers.result import SolverResult

# A residual below this share of the largest column is rounding: the columns span no more.
_SPAN = 1e-10
# After this fall of the largest squared norm, updates have too few digits left: measure again.
_REFRESH = 1e-6
# Squared norms this close, relatively, are a tie.
_TIE = 1e-6
# How far a block's sum may be from 1.
_SUM_TOLERANCE = 1e-6
# Model cells below count as this much in the divergence: anchors of few samples hold zeros that
# say nothing about the fit elsewhere.
_FLOOR = 1e-6


def select_anchors(matrix: FloatArray, rank: int) -> IntArray:
    """Pick the columns whose l1-scaled hull holds all others, by successive projection.

    Parameters
    ----------
    matrix
        float64 of shape (n_rows, n_columns), nonnegative and finite.
    rank
        Columns to pick, at least 1.

    Returns
    -------
    int64 of shape (rank,), column indices in the order of choice. A column without mass is never
    chosen. Of residual norms within 1e-6 (squared, relative) the column of larger original norm
    wins, then the first.

    Raises
    ------
    PmfError
        If ``matrix`` is not two-dimensional or holds a negative or not finite entry.
    RankError
        If ``rank`` is below 1 or above the numerical rank of the columns.

    Notes
    -----
    Time n_rows * n_columns * rank, memory one copy of the matrix.

    References
    ----------
    Araújo et al. (2001), Chemometrics and Intelligent Laboratory Systems 57; Gillis and Vavasis
    (2014), IEEE PAMI 36.
    """
    if matrix.ndim != 2 or not np.isfinite(matrix).all() or (matrix < 0).any():
        raise PmfError(
            f"matrix of shape {matrix.shape} must be two-dimensional, finite and nonnegative"
        )
    _check_rank(rank)
    anchors = _project_successively(matrix, rank)
    if anchors.size < rank:
        raise RankError(
            f"rank is {rank}, above {anchors.size}, the numerical rank of the matrix of shape "
            f"{matrix.shape}; lower rank to {anchors.size}"
        )
    return anchors


def fit_spa(
    marginals: FloatArray,
    offsets: IntArray,
    observed: BoolArray,
    *,
    rank: int,
    split: BoolArray | None = None,
) -> SolverResult:
    """Fit the model to pairwise marginals without iterating, from anchor columns.

    Parameters
    ----------
    marginals
        float64 of shape (n_levels, n_levels), symmetric. Block (j, k) is a joint probability table
        (sum 1) where ``observed[j, k]`` and 0 elsewhere; diagonal blocks are diagonal matrices of
        the single marginals, 0 for a variable never observed. They are never used as a pair.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    observed
        bool of shape (n_variables, n_variables), symmetric, False on the diagonal.
    rank
        Latent states, at least 1 and at most the levels of the smaller side. Rank 1 needs no split
        and is the single marginals.
    split
        bool of shape (n_variables,), True for the first side. By default the first half,
        every other variable, a greedy cut through many observed pairs, and the same with the sides
        exchanged are all fitted, and the best is returned; where none of them has ``rank``
        levels on both sides, the most even split is taken.

    Returns
    -------
    The fit, always finite. ``loss_history`` holds one number, the mean over the observed pairs
    j < k of KL(marginals[j, k] || model), in nats, with model cells below 1e-6 counted as 1e-6,
    and 0 when no pair is observed; the default split minimises it. ``n_iter`` is 0. ``notes``
    tells the split and the repairs.

    Raises
    ------
    SchemaError
        If the arrays do not fit each other, or there is one variable only.
    RankError
        If ``rank`` is below 1, above the levels of the smaller side, or above the numerical rank
        of the matrix across the split (of every split tried).

    Notes
    -----
    A pair in the matrix that was never observed is filled as if
    its variables were independent. A variable never observed gets uniform columns; a state that
    has no mass in a variable gets that variable's single marginal; a level never seen gets 0.

    References
    ----------
    Ibrahim and Fu (2021), IEEE Transactions on Signal Processing 69, Algorithm 2. There the natural
    order decides the split and the prior comes from the Khatri-Rao product's pseudo-inverse.
    """
    cardinalities = _check_marginals(marginals, offsets, observed)
    _check_rank(rank)
    even = np.repeat(1.0 / cardinalities, cardinalities)
    singles = _normalise_blocks(np.diagonal(marginals)[:, None], cardinalities, even)[:, 0]
    across_pairs = np.repeat(np.repeat(observed, cardinalities, axis=0), cardinalities, axis=1)
    pairs = np.where(across_pairs, marginals, 0.0)
    n_pairs = int(observed.sum())
    notes = _describe_gaps(marginals, offsets, observed)
    if rank == 1:
        prior, factors = np.ones(1), singles[:, None].copy()
        loss = _mean_divergence(pairs, prior, factors, n_pairs)
        return SolverResult(prior, factors, (loss,), 0, True, notes)
    if split is None:
        splits = list_splits(cardinalities, observed, rank)
    else:
        splits = [("given", _check_split(split, cardinalities, rank))]
    filled = marginals
    if n_pairs < observed.size - cardinalities.size:
        filled = np.where(across_pairs, marginals, np.outer(singles, singles))
    fits, spans = [], {}
    for name, first in splits:
        rows = np.repeat(first, cardinalities)
        anchors = _project_successively(filled[np.ix_(rows, ~rows)], rank)
        spans[name] = anchors.size
        if anchors.size == rank:
            prior, factors = _fit_split(filled, cardinalities, singles, first, anchors)
            loss = _mean_divergence(pairs, prior, factors, n_pairs)
            fits.append((loss, name, prior, factors))
    if not fits:
        raise RankError(_explain_rank(rank, spans))
    loss, best, prior, factors = min(fits, key=lambda fit: fit[0])
    losses = ", ".join(f"{name} {value:.4g}" for value, name, _, _ in fits)
    notes += (f"split: {best}; divergences: {losses}",)
    return SolverResult(prior, factors, (loss,), 0, True, notes)


def _project_successively(matrix: FloatArray, rank: int) -> IntArray:
    """Return the anchors in order, fewer than ``rank`` when the columns span no more."""
    mass = matrix.sum(axis=0)
    residual = matrix / np.where(mass > 0, mass, 1.0)
    original = np.einsum("ij,ij->j", residual, residual)
    norms = original.copy()
    largest = fresh = float(norms.max(initial=0.0))
    basis = np.empty((rank, matrix.shape[0]))
    anchors = np.empty(rank, np.int64)
    for step in range(rank):
        if norms.max(initial=0.0) <= _REFRESH * fresh:
            residual -= basis[:step].T @ (basis[:step] @ residual)
            norms = np.einsum("ij,ij->j", residual, residual)
            fresh = float(norms.max(initial=0.0))
        top = norms.max(initial=0.0)
        if top <= _SPAN**2 * largest:
            return anchors[:step]
        tied = np.flatnonzero(norms >= (1.0 - _TIE) * top)
        anchors[step] = tied[np.argmax(original[tied])]
        direction = residual[:, anchors[step]].copy()
        for _ in range(2):
            direction -= (basis[:step] @ direction) @ basis[:step]
        basis[step] = direction / np.linalg.norm(direction)
        # ||(I - uu')v||^2 = ||v||^2 - (u'v)^2: the projector is never formed.
        norms -= (basis[step] @ residual) ** 2
        norms[anchors[: step + 1]] = 0.0
    return anchors


def _fit_split(
    filled: FloatArray,
    cardinalities: IntArray,
    singles: FloatArray,
    first: BoolArray,
    anchors: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the prior and the factors that the anchors of one split lead to."""
    rows = np.repeat(first, cardinalities)
    across = filled[np.ix_(rows, ~rows)]
    left = _normalise_blocks(across[:, anchors], cardinalities[first], singles[rows])
    gram, cross = left.T @ left, left.T @ across
    right = solve_nnls(gram, cross).T
    right = _normalise_blocks(right, cardinalities[~first], singles[~rows])
    # Normal equations of the Khatri-Rao product, which is never formed.
    prior = solve_simplex_least_squares(
        gram * (right.T @ right), np.einsum("fb,bf->f", cross, right)
    )
    factors = np.empty((singles.size, anchors.size))
    factors[rows], factors[~rows] = left, right
    return prior, factors


def _normalise_blocks(
    stacked: FloatArray, cardinalities: IntArray, instead: FloatArray
) -> FloatArray:
    """Scale each variable's rows to sum 1 by column; a column without mass becomes ``instead``."""
    starts = np.cumsum(cardinalities) - cardinalities
    mass = np.repeat(np.add.reduceat(stacked, starts, axis=0), cardinalities, axis=0)
    # Denormal sums would not divide to 1.
    full = mass > 1e-200
    return np.where(full, stacked / np.where(full, mass, 1.0), instead[:, None])


def _mean_divergence(
    pairs: FloatArray, prior: FloatArray, factors: FloatArray, n_pairs: int
) -> float:
    """Return the mean divergence of the model from the pairs, whose other cells are all 0."""
    model = np.maximum((factors * prior) @ factors.T, _FLOOR)
    # The least divergence is 0; rounding and the floor may leave it a hair below.
    held = pairs > 0
    divergence = float(pairs[held] @ np.log(pairs[held] / model[held]))
    return max(0.0, divergence) / max(n_pairs, 1)


def _describe_gaps(
    marginals: FloatArray, offsets: IntArray, observed: BoolArray
) -> tuple[str, ...]:
    """Say what had to be filled in."""
    n_variables = observed.shape[0]
    missing = (n_variables * (n_variables - 1) - int(observed.sum())) // 2
    unseen = np.flatnonzero(np.add.reduceat(np.diagonal(marginals), offsets[:-1]) == 0)
    notes = []
    if missing:
        notes.append(f"unobserved pairs taken as independent: {missing}")
    if unseen.size:
        listed = ", ".join(map(str, unseen[:5])) + (", ..." if unseen.size > 5 else "")
        notes.append(f"never observed, uniform: {unseen.size} variables ({listed})")
    return tuple(notes)


def _explain_rank(rank: int, spans: dict[str, int]) -> str:
    """Word the refusal of a rank that no split's matrix carries."""
    limit = max(spans.values())
    tried = ", ".join(f"{name}: {span}" for name, span in spans.items())
    return (
        f"rank is {rank}, above {limit}, the numerical rank of the marginals across the "
        f"variables' split ({tried}); lower rank to {limit} or pass another split"
    )


def _check_rank(rank: int) -> None:
    """Refuse a rank without a latent state."""
    if rank < 1:
        raise RankError(f"rank is {rank}, below 1; ask for at least one latent state")


def _check_split(split: BoolArray, cardinalities: IntArray, rank: int) -> BoolArray:
    """Refuse a split of another shape, or with a side that cannot carry the rank."""
    if split.shape != cardinalities.shape or split.dtype != np.bool_:
        raise SchemaError(
            f"split has shape {split.shape} and dtype {split.dtype}, not {cardinalities.shape} "
            "and bool; pass True for each variable of the first side"
        )
    limit = int(min(cardinalities[split].sum(), cardinalities[~split].sum()))
    if rank > limit:
        raise RankError(
            f"rank is {rank}, above {limit}, the levels on the smaller side of split; lower rank "
            f"to {limit} or pass a more even split"
        )
    return split


def _check_marginals(marginals: FloatArray, offsets: IntArray, observed: BoolArray) -> IntArray:
    """Return the cardinalities of marginals that are what ``fit_spa`` describes."""
    cardinalities = np.diff(offsets)
    n_variables = cardinalities.size
    if n_variables < 2 or offsets[0] != 0 or (cardinalities < 1).any():
        raise SchemaError(
            f"offsets is {offsets.tolist()}; must rise from 0 and hold at least two variables"
        )
    n_levels = int(offsets[-1])
    if marginals.shape != (n_levels, n_levels) or observed.shape != (n_variables, n_variables):
        raise SchemaError(
            f"marginals has shape {marginals.shape} and observed {observed.shape}, not "
            f"{(n_levels, n_levels)} and {(n_variables, n_variables)} as offsets tells"
        )
    if np.diagonal(observed).any() or not np.array_equal(observed, observed.T):
        raise SchemaError("observed must be symmetric and False on its diagonal")
    # NaN fails the comparison too.
    if not ((marginals >= 0) & (marginals < np.inf)).all():
        raise SchemaError("marginals holds a negative or not finite entry; pass probabilities")
    if np.abs(marginals - marginals.T).max() > _SUM_TOLERANCE:
        raise SchemaError("marginals is not symmetric; block (k, j) is block (j, k) transposed")
    sums = np.add.reduceat(np.add.reduceat(marginals, offsets[:-1]), offsets[:-1], axis=1)
    wanted = np.where(np.eye(n_variables, dtype=np.bool_), np.rint(sums).clip(0, 1), observed)
    wrong = np.abs(sums - wanted) > _SUM_TOLERANCE
    if wrong.any():
        j, k = (int(i) for i in np.argwhere(wrong)[0])
        raise SchemaError(
            f"marginals block ({j}, {k}) sums to {sums[j, k]}, not {wanted[j, k]:g}; divide the "
            "counts of an observed pair by its support and leave other pairs 0"
        )
    return cardinalities
