"""Rows without identifiers that come again: stretches of rows that recur in the same order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.ingest.dataset.identifiers import as_binary, hash_identifiers
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import read_rows
from pmflib.ingest.sources import Source

MOST_ROWS, MOST_CELLS = 1 << 22, 1 << 27
"""Largest numbers of rows and of their values that are compared."""
CHANCE = 1e-6
"""Expected number of stretches that recur by chance."""
LEAST_STRETCH, LONGEST_STRETCH = 3, 64
"""Bounds of the length of a stretch, rows: rows that need more are too alike for any to be known again."""
DISTINCT = 1 / 3
"""Least share of distinct rows in a stretch."""
MOST_TIMES = 3
"""Largest number of times that a stretch recurs within one file for it to be delivered again."""
NEIGHBOURS = 4
"""Number of following rows with which a row is compared, as sorted rows are more alike than those of two places."""

REMEDY = (
    "each row counts as a person: remove rows that were delivered before, or name the column of identifiers in "
    "source.sample (pmf infer --sample COLUMN), where the last row counts"
)

_ODD = np.uint64(0x9E3779B97F4A7C15)


def find_repeated(files: Sequence[HashArray]) -> list[BoolArray] | None:
    """Find rows in stretches that other rows before them, in the same file or an earlier one, have in the same order.

    Single rows recur by chance. A stretch is so long that, were the order of rows random, `CHANCE` stretches would
    recur, by the share of pairs of rows that are equal: of all rows, or of neighbours if these are more alike.
    Stretches of few distinct rows, such as empty ones at the end of a table, do not count.

    Parameters
    ----------
    files
        Hashes of the rows of each file, in order, uint64 of shape (n_rows,).

    Returns
    -------
    Whether each row of each file is in a stretch that came before; None if the rows are too alike to say.
    """
    rows = np.concatenate([np.empty(0, np.uint64), *files])
    if rows.size < 2 * LEAST_STRETCH:
        return [np.zeros(each.size, np.bool_) for each in files]
    _, codes, counts = np.unique(rows, return_inverse=True, return_counts=True)
    alike = float(np.square(counts / rows.size).sum())
    near = [np.mean(rows[lag:] == rows[:-lag]) for lag in range(1, NEIGHBOURS + 1)]
    alike = max(alike, float(np.mean(near)))
    if alike >= 1:
        return None
    length = math.ceil(math.log(CHANCE / rows.size**2) / math.log(alike))
    if length > LONGEST_STRETCH:
        return None
    length = max(length, LEAST_STRETCH)
    edges = np.cumsum([0, *(each.size for each in files)])
    starts = _list_starts(codes, edges, length)
    hashes = np.zeros(starts.size, np.uint64)
    for step in range(length):
        hashes = mix_hashes(hashes * _ODD + rows[starts + step])
    _, first, places = np.unique(hashes, return_index=True, return_inverse=True)
    # a table that was written in cycles, such as hours of days, is no delivery of the same rows
    file = np.searchsorted(edges, starts, "right")
    _, group, times = np.unique(
        file * starts.size + places, return_inverse=True, return_counts=True
    )
    again = starts[(first[places] < np.arange(starts.size)) & (times[group] <= MOST_TIMES)]
    # +1 where a stretch begins, -1 where it ends
    change = np.zeros(rows.size + 1, np.int64)
    np.add.at(change, again, 1)
    np.add.at(change, again + length, -1)
    repeated = np.cumsum(change[:-1]) > 0
    return [repeated[a:b] for a, b in pairwise(edges.tolist())]


def _list_starts(codes: IntArray, edges: IntArray, length: int) -> IntArray:
    """First rows of all stretches within a file that have enough distinct rows."""
    order = np.argsort(codes, kind="stable")
    previous = np.full(codes.size, -1, np.int64)
    same = codes[order[1:]] == codes[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    starts = [
        np.arange(first, last - length + 1)
        for first, last in pairwise(edges.tolist())
        if last - first >= length
    ]
    found = np.concatenate([np.empty(0, np.int64), *starts])
    n_distinct = np.zeros(found.size, np.int64)
    for step in range(length):
        n_distinct += previous[found + step] < found
    return found[n_distinct >= length * DISTINCT]


def limit_rows(n_columns: int) -> int:
    """Largest number of rows with some columns that are compared."""
    return min(MOST_ROWS, MOST_CELLS // max(n_columns, 1))


def hash_codes(codes: IntArray) -> HashArray:
    """Hash the rows of a table of codes, shape (n_rows, n_variables)."""
    hashes = np.zeros(len(codes), np.uint64)
    for column in codes.T:
        hashes = mix_hashes(hashes * _ODD + column.astype(np.uint64))
    return hashes


def hash_rows(
    sources: Sequence[Source], config: SourceOptions, columns: Sequence[str]
) -> list[HashArray]:
    """Hash the first rows of some wide files, at most those of `limit_rows`, by the values of some columns.

    Raises
    ------
    SourceError
        If a file cannot be read, or lacks a column.
    """
    files: list[HashArray] = []
    left = limit_rows(len(columns))
    for source in sources:
        parts = [np.empty(0, np.uint64)]
        for raw in read_rows(source, config, list(columns)):
            hashes = np.zeros(raw.batch.num_rows, np.uint64)
            for column in raw.batch.columns:
                hashes = mix_hashes(hashes * _ODD + hash_identifiers(as_binary(column)))
            parts.append(hashes[:left])
            left -= parts[-1].size
            if not left:
                break
        files.append(np.concatenate(parts))
    return files


def check_repeated(sources: Sequence[Source], config: SourceOptions, columns: Sequence[str]) -> str:
    """Say how many rows of some wide files without identifiers come again; "" if none do.

    Raises
    ------
    SourceError
        If a file cannot be read, or lacks a column.
    """
    repeated = find_repeated(hash_rows(sources, config, columns))
    if repeated is None or not (found := describe_repeated([s.name for s in sources], repeated)):
        return ""
    return f"{found}; {REMEDY}"


def describe_repeated(names: Sequence[str], repeated: Sequence[BoolArray]) -> str:
    """Describe the share of rows that come again; "" if none do."""
    counts = {name: int(np.count_nonzero(rows)) for name, rows in zip(names, repeated, strict=True)}
    total, n_rows = sum(counts.values()), sum(rows.size for rows in repeated)
    if not total:
        return ""
    worst = max(counts, key=lambda name: counts[name])
    where = f", {counts[worst]:,} of them in {worst}" if len(names) > 1 else ""
    return (
        f"{total:,} of {n_rows:,} rows come again, {100 * total / n_rows:.3g} %: rows before them have the same "
        f"answers in the same order{where}"
    )
