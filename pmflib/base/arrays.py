"""Type aliases for arrays, operations on blocks of levels, and checks of arguments.

The levels of all variables are stacked along an axis; variable j owns entries ``offsets[j]:offsets[j + 1]``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from pmflib.base.errors import PmfError

IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
StrataArray: TypeAlias = npt.NDArray[np.int32]

Parameters: TypeAlias = tuple[FloatArray, FloatArray]
"""Prior (rank,) and factors (n_levels, rank)."""

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Arrays by name, as stored in a file."""


S = TypeVar("S", bound=np.generic)

FLOOR = 1e-300
"""Probabilities and sums at or below this count as zero: they are not used as divisors, and logarithms are clipped to
it.

It guards against rounding. Numbers near the smallest normal number, 2e-308, have lost digits, so their quotients would
not sum to 1.
"""

CHUNK_CELLS = 1 << 17
"""Number of cells processed at a time, so that a second look at them finds them in the core's cache."""
WIDE_CELLS = 4096
"""Number of cells of neighbouring rows that are compared as one row: NumPy is several times slower on short rows."""


def choose_count_type(largest: int) -> np.dtype[Any]:
    """Choose the smallest type that holds counts up to a number: unsigned integers of up to 32 bits, or int64."""
    return np.dtype(np.min_scalar_type(largest) if largest < 1 << 32 else np.int64)


def sum_blocks(stacked: NDArray[S], offsets: IntArray, axis: int = 0) -> NDArray[S]:
    """Sum over each variable's levels along an axis: one entry per variable."""
    return np.asarray(np.add.reduceat(stacked, offsets[:-1], axis=axis))


def repeat_blocks(by_variable: NDArray[S], offsets: IntArray, axis: int = 0) -> NDArray[S]:
    """Repeat values given per variable over the variable's levels along an axis."""
    return np.repeat(by_variable, np.diff(offsets), axis=axis)


def sum_pairs(table: NDArray[S], offsets: IntArray) -> NDArray[S]:
    """Sum a table (n_levels, n_levels) over the levels of each pair of variables: (n_variables, n_variables)."""
    return sum_blocks(sum_blocks(table, offsets), offsets, axis=1)


def spread_pairs(by_pair: NDArray[S], offsets: IntArray) -> NDArray[S]:
    """Repeat values given per pair of variables over the pair's levels: (n_levels, n_levels)."""
    return repeat_blocks(repeat_blocks(by_pair, offsets), offsets, axis=1)


def list_owners(offsets: IntArray) -> IntArray:
    """List the variable that owns each level: int64 of shape (n_levels,)."""
    return repeat_blocks(np.arange(offsets.size - 1), offsets)


def normalise_blocks(
    stacked: FloatArray | IntArray, offsets: IntArray, fallback: FloatArray
) -> FloatArray:
    """Scale each variable's levels to sum to 1 in every column.

    Parameters
    ----------
    stacked
        Array of shape (n_levels,) or (n_levels, n_columns), non-negative.
    offsets
        int64 of shape (n_variables + 1,).
    fallback
        float64, broadcast to the shape of ``stacked``: used if a variable's column sums to at most `FLOOR`.

    Returns
    -------
    float64 of the shape of ``stacked``.
    """
    mass = repeat_blocks(sum_blocks(stacked, offsets), offsets)
    full = mass > FLOOR
    return np.where(full, stacked / np.where(full, mass, 1.0), fallback)


def spread_evenly(offsets: IntArray) -> FloatArray:
    """Return the uniform PMF of every variable: float64 of shape (n_levels,)."""
    sizes = np.diff(offsets)
    return repeat_blocks(1.0 / sizes, offsets)


def find_extremes(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Find the minimum and maximum of each integer column.

    Parameters
    ----------
    codes
        Integers of shape (n_rows, n_columns), at least one of each.

    Returns
    -------
    Two arrays of shape (n_columns,), of the same dtype.
    """
    n_rows, n_columns = codes.shape
    n_together = max(1, WIDE_CELLS // n_columns) if codes.flags.c_contiguous else 1
    n_whole = n_rows // n_together * n_together
    wide = codes[:n_whole].reshape(n_whole // n_together, n_together * n_columns)
    n_chunk = max(1, CHUNK_CELLS // wide.shape[1])
    lows, highs = [], []
    for start in range(0, len(wide), n_chunk):
        chunk = wide[start : start + n_chunk]
        lows.append(chunk.min(axis=0).reshape(n_together, n_columns).min(axis=0))
        highs.append(chunk.max(axis=0).reshape(n_together, n_columns).max(axis=0))
    if n_whole < n_rows:
        lows.append(codes[n_whole:].min(axis=0))
        highs.append(codes[n_whole:].max(axis=0))
    return np.min(lows, axis=0), np.max(highs, axis=0)


def name_type(value: object) -> str:
    """Name a type for a message: "a Series", "an ndarray"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' or name == 'ndarray' else 'a'} {name}"


def check_counts(counts: object, kind: type) -> None:
    """Check that an argument is counts of pairs, or of triples.

    Parameters
    ----------
    counts
        The argument.
    kind
        Required class of counts.

    Raises
    ------
    PmfError
        If it is not.
    """
    if isinstance(counts, kind):
        return
    maker = {"PairCounts": "count_pairs", "TripleCounts": "count_triples"}[kind.__name__]
    raise PmfError(
        f"counts is {name_type(counts)}; pass {kind.__name__}, which pmflib.{maker}(samples, schema) counts "
        "(pmflib.fit_em takes the samples themselves)"
    )


def check_model_type(name: str, model: object, kind: type) -> None:
    """Check that an argument is a joint PMF.

    Parameters
    ----------
    name
        Name of the argument.
    model
        The argument; a model of another family says in its attribute ``instead`` what it is, and what to pass.
    kind
        Required class, `JointPMF`.

    Raises
    ------
    PmfError
        If it is not.
    """
    if isinstance(model, kind):
        return
    if instead := getattr(model, "instead", None):
        raise PmfError(f"{name} is {instead}")
    if isinstance(getattr(model, "model", None), kind):
        remedy = f"pass its model: {name}=result.model"
    elif isinstance(model, int | np.integer):
        remedy = f"pass a {kind.__name__}; to set the number of latent states, use rank={model}"
    else:
        remedy = f"pass a {kind.__name__}, such as the model of a result"
    raise PmfError(f"{name} is {name_type(model)}; {remedy}")


def check_row_order(samples: object, **columns: object) -> None:
    """Check that columns given apart from a table do not have its rows in another order: rows are matched by position.

    Parameters
    ----------
    samples
        The table; only a pandas object has names of rows, its index.
    **columns
        Weights, covariates and the like, by the name of the argument.

    Raises
    ------
    PmfError
        If a column has the same index as the table in another order.
    """
    index = find_row_names(samples)
    for name, column in columns.items():
        own = find_row_names(column)
        if index is None or own is None or len(own) != len(index) or own.equals(index):
            continue
        if Counter(own) == Counter(index):
            row = next(row for row, each in enumerate(own) if each != index[row])
            raise PmfError(
                f"{name} has the rows of the samples in another order: row {row} of its index is {own[row]!r}, and "
                f"{index[row]!r} in that of the samples; rows are matched by position: pass {name}.loc[samples.index]"
            )


def find_row_names(table: object) -> Any:
    """Return the pandas index of a frame, a column or a survey design; None for others."""
    if hasattr(table, "row_names"):
        return table.row_names
    return table.index if hasattr(table, "iloc") and hasattr(table, "index") else None
