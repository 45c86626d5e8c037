"""Selections of variables whose pairs are counted, where tables of all pairs would exceed the memory plan.

A table grows with the square of the number of levels, whatever the number of samples. Single counts are those of all
variables; they say which variables are answered most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pmflib.base.arrays import IntArray, list_owners, sum_blocks
from pmflib.base.blocks import Block, DenseBlock, SparseBlock
from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import MemoryPlanError, SchemaError
from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.schema import Schema
from pmflib.store.sample_blocks import (
    COUNTING_COARSENESS,
    BlockReference,
    group_blocks,
    read_blocks,
)

PAIR_LEVELS = 2048
"""Maximum number of levels of the variables whose pairs are counted where those of all do not fit: tables of 32 MiB.
Starts, the choice of the rank and comparisons of pairs use at most about as many."""

Requested: TypeAlias = int | list[str] | dict[str, int]
"""Which pairs are counted: those of a number of variables, of named ones, or of as many as have these ``levels``. Plain
JSON types, as they are options of the counts."""


def find_requested(
    requested: str | int | tuple[str, ...], schema: Schema, check_size: Callable[[int], None]
) -> Requested | None:
    """Find which pairs to count by the sizes of their tables.

    Parameters
    ----------
    requested
        "auto", a number of variables, or their names.
    schema
        All variables.
    check_size
        Raises `MemoryPlanError` if tables of a number of levels do not fit into memory.

    Returns
    -------
    What `choose_counted` takes; None for the pairs of all variables.

    Raises
    ------
    MemoryPlanError
        If the pairs of the requested variables do not fit, or, for "auto", not even those of `PAIR_LEVELS` levels.
    SchemaError
        If a name is no variable.
    """
    if isinstance(requested, str) and schema.n_levels > PAIR_LEVELS:
        try:
            check_size(schema.n_levels)
        except MemoryPlanError:
            check_size(PAIR_LEVELS)
            return {"levels": PAIR_LEVELS}
        return None
    if isinstance(requested, str) or (
        isinstance(requested, int) and requested >= schema.n_variables
    ):
        check_size(schema.n_levels)
        return None
    chosen: Requested = requested if isinstance(requested, int) else list(requested)
    check_size(bound_levels(schema, chosen))
    return chosen


def bound_levels(schema: Schema, requested: Requested | None) -> int:
    """Return the maximum number of levels of the variables that `choose_counted` may choose."""
    if requested is None:
        return schema.n_levels
    if isinstance(requested, dict):
        return min(schema.n_levels, requested["levels"])
    if isinstance(requested, int):
        return int(np.sort(schema.cardinalities)[::-1][:requested].sum())
    return int(schema.cardinalities[_find_positions(schema, requested)].sum())


def describe_requested(schema: Schema, requested: Requested, n_counted: int | None = None) -> str:
    """Say which pairs are counted, in a clause; with the number of their variables if the data have decided it.

    Examples
    --------
    >>> describe_requested(Schema.from_cardinalities([5] * 900), {"levels": 2048}, 409)
    'pairs are counted of 409 of 900 variables, the most answered with at most 2,048 levels; single counts, EM, scores \
and questions are of all'
    """
    if isinstance(requested, dict):
        which = f"the most answered with at most {requested['levels']:,} levels"
    elif isinstance(requested, int):
        which, n_counted = "the most answered", n_counted or requested
    else:
        which, n_counted = "the named ones", n_counted or len(requested)
    number = "some" if n_counted is None else f"{n_counted:,}"
    return (
        f"pairs are counted of {number} of {schema.n_variables:,} variables, {which}; single counts, EM, scores and "
        "questions are of all"
    )


def choose_counted(
    schema: Schema, requested: Requested, level_counts: IntArray, target: str | None = None
) -> IntArray:
    """Choose the variables whose pairs are counted: int64 of shape (n_counted,), positions in order.

    Parameters
    ----------
    schema
        All variables.
    requested
        From `find_requested`.
    level_counts
        int64 of shape (n_levels,): number of samples with each level. Of equally often answered variables, the first
        ones are chosen.
    target
        A variable whose pairs are counted in any case; None for none.
    """
    if isinstance(requested, dict):
        chosen = pick_variables(schema, level_counts, requested["levels"])
    elif isinstance(requested, int):
        answers = sum_blocks(level_counts, schema.offsets)
        chosen = np.sort(np.argsort(-answers, kind="stable")[:requested])
    else:
        chosen = _find_positions(schema, requested)
    return chosen if target is None else np.union1d(chosen, [schema.position(target)])


def _find_positions(schema: Schema, names: Sequence[str]) -> IntArray:
    known = OneOf(dict.fromkeys(schema.names))
    for name in names:
        check(known, SchemaError, **{"counts.variables": name})
    return np.unique(np.array([schema.position(name) for name in names], np.int64))


def list_levels(schema: Schema, variables: IntArray) -> IntArray:
    """Return the row indices of the levels of some variables, int64, in order."""
    return np.flatnonzero(np.isin(list_owners(schema.offsets), variables))


def pick_variables(schema: Schema, level_counts: IntArray, max_levels: int) -> IntArray:
    """Select the most frequently observed variables within a limit of levels, at least two.

    Parameters
    ----------
    schema
        All variables.
    level_counts
        int64 of shape (n_levels,): number of samples with each level.
    max_levels
        Maximum number of levels of the selected variables; the first two are always selected.

    Returns
    -------
    int64, indices of the variables, in order.
    """
    order = np.argsort(-sum_blocks(level_counts, schema.offsets), kind="stable")
    n_kept = int((np.cumsum(schema.cardinalities[order]) <= max_levels).sum())
    return np.sort(order[: max(2, n_kept)])


def narrow_block(block: Block, offsets: IntArray, counted: IntArray | None) -> Block:
    """Restrict a block to some variables, in order; None keeps all.

    Parameters
    ----------
    block
        Valid samples.
    offsets
        int64 of shape (n_variables + 1,), of all variables.
    counted
        int64, positions of the variables to keep.
    """
    if counted is None:
        return block
    if isinstance(block, DenseBlock):
        return DenseBlock(np.ascontiguousarray(block.codes[:, counted]), block.weights)
    is_kept = np.zeros(offsets.size - 1, np.bool_)
    is_kept[counted] = True
    kept = is_kept[list_owners(offsets)]
    own = block.keep(kept[block.indices])
    narrow = (np.cumsum(kept) - 1).astype(np.int32)
    return SparseBlock(own.indptr, narrow[own.indices], own.weights)


def narrow_offsets(offsets: IntArray, counted: IntArray | None) -> IntArray:
    """Return the offsets of the levels of some variables, int64 of shape (n_counted + 1,); None keeps all."""
    if counted is None:
        return offsets
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.diff(offsets)[counted])])


def count_stored_levels(
    client: Client, blocks: Sequence[BlockReference], schema: Schema, n_folds: int
) -> IntArray:
    """Count the samples with each level, by fold: int64 of shape (n_folds, n_levels); sums of units if weighted.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the counts are the same.
    blocks
        Blocks of the samples.
    schema, n_folds
        Variables, and number of folds.
    """
    groups = group_blocks(blocks, COUNTING_COARSENESS)
    if not groups:
        return np.zeros((n_folds, schema.n_levels), np.int64)
    n_bytes = 8 * n_folds * schema.n_levels
    shared = schema.offsets, n_folds
    return run_blocks(
        client,
        _count_group_levels,
        groups,
        _add_up,
        *shared,
        result_bytes=n_bytes,
        name="count-levels",
    )


def _count_group_levels(
    group: Sequence[BlockReference], offsets: IntArray, n_folds: int
) -> IntArray:
    counts = np.zeros((n_folds, int(offsets[-1])), np.int64)
    for reference, block in zip(group, read_blocks(group), strict=True):
        own, sparse = counts[reference.fold], block.to_sparse(offsets)
        if sparse.weights is None:
            own += np.bincount(sparse.indices, minlength=own.size)
        else:
            # sums of units may exceed the integers that floats represent
            units = np.repeat(sparse.weights.astype(np.int64), np.diff(sparse.indptr))
            np.add.at(own, sparse.indices, units)
    return counts


def _add_up(parts: Sequence[IntArray]) -> IntArray:
    total: IntArray = np.sum(parts, axis=0)
    return total
