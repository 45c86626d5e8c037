"""Other ways to count all pairs, each as good as its library makes easy, one thread."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg.blas
import scipy.sparse

CHUNK_ROWS = 4096
"""Rows of a dense one-hot matrix: the fastest of 1,024 to 16,384."""

Run = Callable[[], np.ndarray | None]
"""One count; the symmetric table where all pairs are counted, else None."""


@dataclass(frozen=True)
class Peer:
    """A way to count.

    Parameters
    ----------
    name
        For the table.
    module
        What must be installed.
    build
        Makes a run from codes, cardinalities and the number of pairs to count; what it prepares is not timed.
    rows
        Share of the rows that a full benchmark counts; the time is extrapolated.
    pairs
        Number of pairs that it counts at most; the time is extrapolated.
    """

    name: str
    module: str
    build: Callable[[np.ndarray, np.ndarray, int], Run]
    rows: float = 1.0
    pairs: int = 1 << 30

    @property
    def installed(self) -> bool:
        """Whether the library is there."""
        return importlib.util.find_spec(self.module) is not None


def some_pairs(n_variables: int, n_pairs: int) -> list[tuple[int, int]]:
    """Pairs of variables with themselves included, evenly spaced if not all."""
    every = list(itertools.combinations_with_replacement(range(n_variables), 2))
    return every[:: max(1, len(every) // n_pairs)][:n_pairs]


def n_all_pairs(n_variables: int) -> int:
    """Pairs of variables, with themselves included."""
    return n_variables * (n_variables + 1) // 2


def build_syrk(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """One-hot rows in float32 and a symmetric matrix product, chunk by chunk."""
    offsets = np.concatenate([[0], np.cumsum(cardinalities)])
    n_levels = int(offsets[-1])

    def run() -> np.ndarray:
        total = np.zeros((n_levels, n_levels), np.int64)
        hot = np.zeros((CHUNK_ROWS, n_levels), np.float32)
        base = (np.arange(CHUNK_ROWS) * n_levels)[:, None] + offsets[:-1]
        for start in range(0, len(codes), CHUNK_ROWS):
            chunk = codes[start : start + CHUNK_ROWS]
            indices = base[: len(chunk)] + chunk
            held = indices.ravel() if chunk.min() >= 0 else indices[chunk >= 0]
            hot.ravel()[held] = 1
            # rows of ones are columns to a library of Fortran's order
            product = scipy.linalg.blas.ssyrk(1, hot[: len(chunk)].T, lower=1)
            total += product.T.astype(np.int64)
            hot.ravel()[held] = 0
        return total + np.triu(total, 1).T

    return run


def build_bincount(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """`numpy.bincount` of fused codes, pair by pair, columns contiguous; missing is one more level."""
    sizes = cardinalities + 1

    def run() -> np.ndarray:
        dtype = np.uint8 if sizes.max() ** 2 <= 256 else np.uint16
        columns = np.ascontiguousarray((codes + np.int8(1)).T).astype(dtype)
        offsets = np.concatenate([[0], np.cumsum(cardinalities)])
        total = np.zeros((offsets[-1], offsets[-1]), np.int64)
        for j, k in some_pairs(len(sizes), n_pairs):
            fused = columns[j] * dtype(sizes[k]) + columns[k]
            counts = np.bincount(fused, minlength=sizes[j] * sizes[k])
            pair = counts.reshape(sizes[j], sizes[k])[1:, 1:]
            total[offsets[j] : offsets[j + 1], offsets[k] : offsets[k + 1]] = pair
        return total + np.triu(total, 1).T

    return run


def to_csr(codes: np.ndarray, cardinalities: np.ndarray) -> scipy.sparse.csr_array:
    """One-hot matrix of what is observed."""
    offsets = np.concatenate([[0], np.cumsum(cardinalities)])
    observed = codes >= 0
    indptr = np.concatenate([[0], np.cumsum(observed.sum(axis=1))]).astype(np.int32)
    indices = (codes + offsets[:-1].astype(np.int32))[observed]
    ones = np.ones(len(indices), np.int32)
    return scipy.sparse.csr_array((ones, indices, indptr), (len(codes), int(offsets[-1])))


def build_scipy(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """Sparse one-hot from codes, and its product with itself."""

    def run() -> np.ndarray:
        matrix = to_csr(codes, cardinalities)
        return np.asarray((matrix.T @ matrix).toarray())

    return run


def build_scipy_given(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """Product of a sparse one-hot matrix that is given, left sparse."""
    matrix = to_csr(codes, cardinalities)

    def run() -> None:
        matrix.T @ matrix

    return run


def build_one_hot(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """`sklearn.preprocessing.OneHotEncoder` and a product; missing is a level of its own."""
    from sklearn.preprocessing import OneHotEncoder

    levels = [np.arange(size) for size in cardinalities]

    def run() -> np.ndarray:
        encoder = OneHotEncoder(categories=levels, dtype=np.int32, handle_unknown="ignore")
        matrix = (
            encoder.fit_transform(codes)
            if codes.min() >= 0
            else encoder.fit(np.maximum(codes, 0)).transform(codes)
        )
        return np.asarray((matrix.T @ matrix).toarray())

    return run


def build_polars(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """Polars `group_by` of two columns, pair by pair."""
    import polars

    frame = polars.DataFrame({f"v{j}": column for j, column in enumerate(codes.T.copy())})

    def run() -> None:
        for j, k in some_pairs(codes.shape[1], n_pairs):
            frame.group_by([f"v{j}"] if j == k else [f"v{j}", f"v{k}"]).len()

    return run


def build_duckdb(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """Duckdb ``GROUP BY`` of two columns of a table of its own, pair by pair."""
    import duckdb
    import pyarrow

    arrow = pyarrow.table({f"v{j}": column for j, column in enumerate(codes.T.copy())})
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("arrow", arrow)
    connection.execute("CREATE TABLE codes AS SELECT * FROM arrow")

    def run() -> None:
        for j, k in some_pairs(codes.shape[1], n_pairs):
            query = f"SELECT v{j}, v{k}, count(*) FROM codes GROUP BY v{j}, v{k}"
            connection.execute(query).fetchall()

    return run


def build_crosstab(codes: np.ndarray, cardinalities: np.ndarray, n_pairs: int) -> Run:
    """`pandas.crosstab`, pair by pair."""
    import pandas

    columns = [pandas.Series(column) for column in codes.T.copy()]

    def run() -> None:
        for j, k in some_pairs(codes.shape[1], n_pairs):
            pandas.crosstab(columns[j], columns[k])

    return run


PEERS = {
    peer.name: peer
    for peer in (
        Peer("float32 SYRK", "scipy", build_syrk),
        Peer("numpy bincount", "numpy", build_bincount),
        Peer("scipy.sparse", "scipy", build_scipy, rows=0.1),
        Peer("scipy.sparse, given", "scipy", build_scipy_given),
        Peer("OneHotEncoder", "sklearn", build_one_hot, rows=0.1),
        Peer("duckdb", "duckdb", build_duckdb, pairs=60),
        Peer("polars", "polars", build_polars, pairs=60),
        Peer("pandas crosstab", "pandas", build_crosstab, pairs=4),
    )
}
