"""Draw samples from a model: dense rows with missing cells, or a few listed cells per row."""

from itertools import pairwise

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.codes import Codes
from pmflib.base.constraints import Interval, at_least, check, check_entries, check_shapes
from pmflib.base.errors import RankError, SchemaError
from pmflib.base.hashing import HashArray, mix_hashes

CHUNK_ENTRIES = 1 << 20
"""Number of uniform numbers drawn at a time: 8 MiB."""
SUM_TOLERANCE = 1e-6
"""Maximum absolute deviation from 1 of a sum of probabilities."""


def check_parameters(prior: FloatArray, factors: FloatArray, offsets: IntArray) -> None:
    """Raise an error unless prior and factors form a model over the variables of `offsets`.

    Parameters
    ----------
    prior
        Probabilities of shape (rank,), summing to 1.
    factors
        Probabilities of shape (n_levels, rank); the rows of each variable sum to 1 per column.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.

    Raises
    ------
    RankError
        If prior and factors disagree about the rank.
    SchemaError
        If offsets do not split the rows of factors, or if probabilities are negative or do not sum
        to 1.
    """
    if offsets.ndim != 1 or offsets.size < 2 or offsets[0] != 0 or np.any(np.diff(offsets) < 1):
        raise SchemaError(
            f"offsets is {offsets!r}; it must start at 0 and increase: cumulate the cardinalities"
        )
    hint = "take both from one model"
    check_shapes(hint, RankError, prior=(prior, ("rank",)), factors=(factors, ("n_levels", "rank")))
    check(at_least(1), RankError, rank=prior.size)
    check_shapes("take both from one schema", factors=(factors, (int(offsets[-1]), "rank")))
    check_entries(Interval(0), SchemaError, prior=prior, factors=factors)
    sums = np.vstack([np.add.reduceat(factors, offsets[:-1]), np.full_like(prior, prior.sum())])
    worst = float(np.abs(sums - 1).max())
    if worst > SUM_TOLERANCE:
        raise SchemaError(
            f"prior or a column of factors misses the sum 1 by {worst:.3g}, more than "
            f"{SUM_TOLERANCE:g}: normalise first"
        )


def _cumulate_levels(factors: FloatArray, offsets: IntArray, observed: FloatArray) -> FloatArray:
    """Compute cumulative level probabilities of shape (rank, n_levels), scaled to end at `observed`."""
    edges = np.empty(factors.shape[::-1])
    for j, (begin, end) in enumerate(pairwise(offsets)):
        cumulated = np.cumsum(factors[begin:end].T, axis=1)
        # Dividing by the last value makes it exactly 1, so that a level of probability 0 is never drawn.
        edges[:, begin:end] = cumulated / cumulated[:, -1:] * observed[j]
    return edges


def _cumulate(weights: FloatArray) -> FloatArray:
    cumulated: FloatArray = np.cumsum(weights)
    cumulated /= cumulated[-1]
    return cumulated


def _code_dtype(offsets: IntArray) -> type[np.int8] | type[np.int16]:
    largest = int(np.diff(offsets).max())
    wanted = Interval(most=np.iinfo(np.int16).max, hint="merge levels")
    check(wanted, SchemaError, **{"number of levels": largest})
    return np.int8 if largest <= np.iinfo(np.int8).max else np.int16


def _observed_shares(observed: float | FloatArray, n_variables: int) -> FloatArray:
    shares = np.asarray(observed, np.float64)
    if shares.ndim:
        check_shapes("or pass one number", observed=(shares, (n_variables,)))
    check_entries(Interval(0, 1), observed=shares)
    return np.broadcast_to(shares, (n_variables,))


def sample_codes(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    n_rows: int,
    rng: np.random.Generator,
    *,
    observed: float | FloatArray = 1.0,
) -> Codes:
    """Draw rows from a model, with each entry observed independently of all others.

    Parameters
    ----------
    prior
        Probabilities of shape (rank,).
    factors
        Probabilities of shape (n_levels, rank).
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    n_rows
        Number of rows, >= 0.
    rng
        Random number generator; it is advanced by ``n_rows * (n_variables + 1)`` doubles.
    observed
        Probability that an entry is observed, a scalar or shape (n_variables,), in [0, 1].

    Returns
    -------
    `Codes`, int8 (int16 when a variable has more than 127 levels), of shape (n_rows, n_variables); -1 is missing.

    Raises
    ------
    RankError, SchemaError
        If the shapes of prior, factors, offsets and observed do not agree.
    PmfError
        If n_rows is negative or observed is not a probability.

    Examples
    --------
    >>> import numpy as np
    >>> prior, factors = np.array([0.5, 0.5]), np.array([[1.0, 0.0], [0.0, 1.0]] * 3)
    >>> codes = sample_codes(prior, factors, np.array([0, 2, 4, 6]), 4, np.random.default_rng(0))
    >>> bool((codes == codes[:, :1]).all())
    True
    """
    from pmflib.model.kernels.sampling import draw_rows  # Numba loads on first use

    check_parameters(prior, factors, offsets)
    check(at_least(0), n_rows=n_rows)
    n_variables = offsets.size - 1
    shares = _observed_shares(observed, n_variables)
    prior_edges, level_edges = _cumulate(prior), _cumulate_levels(factors, offsets, shares)
    codes = np.empty((n_rows, n_variables), _code_dtype(offsets))
    # Numbers are consumed row by row, so the chunk size bounds memory without changing the samples.
    step = max(1, CHUNK_ENTRIES // (n_variables + 1))
    for begin in range(0, n_rows, step):
        chunk = codes[begin : begin + step]
        uniforms = rng.random((chunk.shape[0], n_variables + 1))
        draw_rows(uniforms, prior_edges, level_edges, offsets, chunk)
    return Codes(codes)


def sample_answers(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    row_starts: IntArray,
    variables: IntArray,
    rng: np.random.Generator,
) -> IntArray:
    """Draw only the listed entries of each row, for sparse data such as response logs.

    Parameters
    ----------
    prior, factors, offsets
        The model, as in `sample_codes`.
    row_starts
        int64 of shape (n_rows + 1,); row s owns ``variables[row_starts[s]:row_starts[s + 1]]``.
    variables
        Integers of shape (n_answers,), in [0, n_variables).
    rng
        Random number generator; it is advanced by ``n_rows + n_answers`` doubles.

    Returns
    -------
    int8 or int16 of shape (n_answers,).

    Raises
    ------
    RankError, SchemaError
        If the model is inconsistent, or a variable or row_starts is out of range.
    """
    from pmflib.model.kernels.sampling import draw_answers

    check_parameters(prior, factors, offsets)
    n_variables = offsets.size - 1
    check_entries(Interval(0, n_variables - 1), SchemaError, variables=variables)
    if row_starts[0] != 0 or row_starts[-1] != variables.size or np.any(np.diff(row_starts) < 0):
        raise SchemaError(
            f"row_starts must rise from 0 to the {variables.size} entries of variables; "
            f"it goes from {row_starts[0]} to {row_starts[-1]}: cumulate the sizes of the rows"
        )
    level_edges = _cumulate_levels(factors, offsets, np.ones(n_variables))
    states = np.searchsorted(_cumulate(prior), rng.random(row_starts.size - 1), side="right")
    codes = np.empty(variables.size, _code_dtype(offsets))
    uniforms = rng.random(variables.size)
    draw_answers(uniforms, states, row_starts, variables, level_edges, offsets, codes)
    return codes


def choose_variables(
    popularity: FloatArray, row_starts: IntArray, rng: np.random.Generator
) -> IntArray:
    """Choose the observed variables of each row by popularity, without replacement within a row.

    Parameters
    ----------
    popularity
        Positive weights of shape (n_variables,).
    row_starts
        int64 of shape (n_rows + 1,), as in `sample_answers`; no row may be longer than n_variables.
    rng
        Random number generator.

    Returns
    -------
    int64 of shape (row_starts[-1],): successive draws without replacement within each row.

    Raises
    ------
    SchemaError
        If a weight is not positive or a row is longer than n_variables.
    """
    from pmflib.model.kernels.sampling import choose_by_weight

    check_entries(Interval(0, closed="right"), SchemaError, popularity=popularity)
    longest = int(np.diff(row_starts).max(initial=0))
    if longest > popularity.size:
        raise SchemaError(f"a row has {longest} of {popularity.size} variables: make it shorter")
    chosen = np.empty(row_starts[-1], np.int64)
    choose_by_weight(rng, popularity, row_starts, chosen)
    return chosen


def draw_cells(shape: tuple[int, ...], rows: IntArray, seed: int) -> HashArray:
    """Compute a pseudo-random number for every cell by hashing its position.

    Parameters
    ----------
    shape
        (n_rows, n_variables).
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    seed
        Integer in [0, 2**64).

    Returns
    -------
    uint64 of that shape.
    """
    cells = rows[:, None] * np.int64(shape[1]) + np.arange(shape[1])
    return mix_hashes(cells, seed)
