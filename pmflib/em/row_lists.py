"""Samples of a block as lists of table rows, a chunk at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.arrays import IntArray
from pmflib.blocks import Block, DenseBlock, SparseBlock

ListArray: TypeAlias = npt.NDArray[np.int32]

CHUNK_ENTRIES = 1 << 16
"""Places in the lists of the samples that are worked on at a time."""


@dataclass(frozen=True)
class Layout:
    """How samples become lists of table rows; it depends on the block alone, not on its being dense or sparse.

    Parameters
    ----------
    group
        Neighbouring variables whose levels are combined into one entry; 0 lists the levels held, one by one.
    complete
        Whether every cell is observed; if not, "not observed" is a digit of its own.
    """

    group: int
    complete: bool


@dataclass(frozen=True)
class Entries:
    """Numbering of the combinations of levels of neighbouring variables.

    Parameters
    ----------
    bases
        int32 of shape (n_lists,): entry of a list where every code is 0.
    steps
        int32 of shape (n_variables,): entries between two codes of a variable.
    levels
        int32 of shape (n_entries, group): levels that an entry combines, -1 where none.
    """

    bases: ListArray
    steps: ListArray
    levels: ListArray


@lru_cache(maxsize=64)
def number_entries(sizes: tuple[int, ...], layout: Layout) -> Entries:
    """Number the entries of a layout."""
    group, gap = max(layout.group, 1), int(layout.group > 0 and not layout.complete)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bases, steps, levels = [], [], []
    start = 0
    for first in range(0, len(sizes), group):
        radices = [size + gap for size in sizes[first : first + group]]
        codes = np.indices(radices).reshape(len(radices), -1).T - gap
        held = np.full((len(codes), group), -1)
        held[:, : len(radices)] = np.where(
            codes < 0, -1, codes + offsets[first : first + len(radices)]
        )
        spans = [math.prod(radices[k + 1 :]) for k in range(len(radices))]
        bases.append(start + gap * sum(spans))
        steps.extend(spans)
        levels.append(held)
        start += len(codes)
    numbers = (np.array(bases), np.array(steps), np.concatenate(levels))
    return Entries(*(array.astype(np.int32) for array in numbers))


def iterate_lists(
    block: Block, offsets: IntArray, layout: Layout, entries: Entries
) -> Iterator[tuple[slice, tuple[ListArray, IntArray, IntArray]]]:
    """Samples as lists of table rows, a chunk at a time; the arrays are overwritten by the next chunk.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,).
    layout
        How samples become lists.
    entries
        From `number_entries`.

    Yields
    ------
    The rows of the block; their table rows, int32; places where each row's start and stop in these, int64.
    """
    if not layout.group and isinstance(block, SparseBlock):
        # the levels held are what the block is made of
        yield slice(0, block.n_rows), (block.indices, block.indptr[:-1], block.indptr[1:])
        return
    list_rows, cut, keys, longest = _choose_lists(block, offsets, layout, entries)
    n_chunk = max(1, min(block.n_rows, CHUNK_ENTRIES // max(longest, 1)))
    # a few places beyond, which are written and not kept
    listed = np.empty(n_chunk * longest + 8, np.int32)
    starts, stops = np.empty(n_chunk, np.int64), np.empty(n_chunk, np.int64)
    for first in range(0, block.n_rows, n_chunk):
        n_rows = min(n_chunk, block.n_rows - first)
        list_rows(*cut(first, n_rows), keys, n_rows, listed, starts, stops)
        yield slice(first, first + n_rows), (listed, starts[:n_rows], stops[:n_rows])


Cut: TypeAlias = Callable[[int, int], tuple[tuple[Any, ...], int]]
"""Takes the first row and a number of rows; returns arrays that hold them, and the place of the first in these."""


def _choose_lists(
    block: Block, offsets: IntArray, layout: Layout, entries: Entries
) -> tuple[Callable[..., None], Cut, tuple[Any, ...], int]:
    """Function that lists table rows, the samples and keys it takes, and the length of the longest list."""
    from pmflib.kernels import em_lists

    if isinstance(block, SparseBlock):
        sparse = (block.indptr, block.indices)
        keys = _find_gains(offsets, layout, entries)
        return em_lists.list_sparse_combined, lambda first, _: (sparse, first), keys, len(keys[0])
    if not layout.group:
        dense = (block.codes,)
        longest = offsets.size - 1
        return em_lists.list_dense_held, lambda first, _: (dense, first), (offsets,), longest
    return _combine_dense(block, layout, entries)


def _combine_dense(
    block: DenseBlock, layout: Layout, entries: Entries
) -> tuple[Callable[..., None], Cut, tuple[Any, ...], int]:
    from pmflib.kernels.em_choice import choose_dense_combined
    from pmflib.kernels.em_lists import arrange_keys, count_beyond

    n_variables, n_lists = block.codes.shape[1], entries.bases.size
    codes = np.ascontiguousarray(block.codes).ravel()
    n_beyond = count_beyond(n_lists, layout.group)

    def cut(first: int, n_rows: int) -> tuple[tuple[Any, ...], int]:
        start, stop = first * n_variables, (first + n_rows) * n_variables
        part = codes[start : stop + n_beyond]
        # the last rows have to be copied, with room behind them
        missing = stop + n_beyond - start - part.size
        if missing:
            part = np.concatenate([part, np.zeros(missing, codes.dtype)])
        return (part,), 0

    keys = arrange_keys(entries.bases, entries.steps, layout.group)
    how = choose_dense_combined(layout.group, codes.dtype)
    return how, cut, (*keys, n_variables, n_lists, layout.complete), n_lists


def _find_gains(offsets: IntArray, layout: Layout, entries: Entries) -> tuple[ListArray, ...]:
    """Entry of each list with nothing observed, and by level, the list it belongs to and what it adds there."""
    bases, steps, group = entries.bases, entries.steps, layout.group
    sizes = np.diff(offsets)
    variables = np.repeat(np.arange(sizes.size), sizes)
    gap = int(not layout.complete)
    codes = np.arange(offsets[-1]) - offsets[variables] + gap
    blank = bases - gap * np.add.reduceat(steps, np.arange(0, steps.size, group))
    return (
        blank.astype(np.int32),
        (variables // group).astype(np.int32),
        (codes * steps[variables]).astype(np.int32),
    )
