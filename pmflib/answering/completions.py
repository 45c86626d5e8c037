"""Exact search for the most likely combinations of levels of several variables."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.constraints import at_least, check, check_distinct
from pmflib.base.errors import MemoryPlanError, PmfError
from pmflib.model.conditions import Given
from pmflib.model.mixture import Mixture

FEW_CELLS = 1 << 16
"""Maximum number of combinations to enumerate: 0.5 MB, some milliseconds."""
MAX_EXPANDED = 200_000
"""Maximum number of partial combinations that a search expands: some seconds."""


def most_likely(
    model: Mixture,
    variables: Sequence[str | int],
    given: Given | None = None,
    *,
    top: int = 1,
) -> pa.Table:
    """Find the most likely joint completions of several variables.

    The individually most probable levels need not be jointly probable: the argmax of a mixture is not the combination
    of the argmaxes of its marginals.

    Parameters
    ----------
    model
        The model.
    variables
        Names or positions, at least one, distinct.
    given
        Levels of other variables: labels, codes, or collections of these.
    top
        Number of combinations to return, at least 1; fewer if there are fewer.

    Returns
    -------
    Arrow table, the most likely first: one column of labels per variable, and "probability" given the conditions.

    Raises
    ------
    SchemaError
        If a variable or level is unknown.
    PmfError
        If the conditions have probability 0, or top is below 1.
    MemoryPlanError
        If the search does not finish within ``MAX_EXPANDED`` steps.
    """
    fixed = model.condition(given)
    positions = [model.schema.position(variable) for variable in variables]
    codes, probabilities = find_most_likely(fixed, positions, top)
    columns = {}
    for column, position in zip(codes.T, positions, strict=True):
        variable = model.schema[position]
        columns[variable.name] = pa.array([variable.levels[code] for code in column.tolist()])
    return pa.table(columns | {"probability": pa.array(probabilities)})


def find_most_likely(
    model: Mixture, positions: Sequence[int], top: int
) -> tuple[IntArray, FloatArray]:
    """Find the most likely combinations of codes of some variables.

    Parameters
    ----------
    model
        The model, already conditioned.
    positions
        Positions of the variables, distinct, at least one.
    top
        Number of combinations to return, at least 1.

    Returns
    -------
    int64 of shape (n_found, n_places), the most likely first; and their probabilities. Combinations with probability 0
    are omitted.

    Raises
    ------
    PmfError
        If top is below 1, or positions repeat.
    MemoryPlanError
        If the search does not finish within ``MAX_EXPANDED`` steps.

    Notes
    -----
    Best-first search. The upper bound of a partial combination is the mixture in which each remaining variable has its
    largest factor in each state. The variables with most information about the state come first.
    """
    check(at_least(1), top=top, **{"number of positions": len(positions)})
    check_distinct(positions, "positions are", PmfError)
    sizes = [int(model.schema.cardinalities[position]) for position in positions]
    if math.prod(sizes) <= FEW_CELLS:
        pmf = model.marginal(positions)
        flat = np.argsort(-pmf, axis=None, kind="stable")[:top]
        flat = flat[pmf.ravel()[flat] > 0]
        return np.stack(np.unravel_index(flat, pmf.shape), axis=1), pmf.ravel()[flat]
    if why := model.unsupported.get("search"):
        raise MemoryPlanError(
            f"{len(positions)} variables have {math.prod(sizes):,} combinations, above {FEW_CELLS:,}, {why}"
        )
    factors = [model.factor(position) for position in positions]
    order = sorted(range(len(positions)), key=lambda n: -_part_states(factors[n], model.prior))
    # impossible levels have log-probability -inf
    with np.errstate(divide="ignore"):
        log_prior, *logs = (np.log(each) for each in (model.prior, *factors))
    found = _search(log_prior, [logs[n] for n in order], top)
    codes = np.empty((len(found), len(positions)), np.int64)
    codes[:, order] = np.array([each for each, _ in found], np.int64).reshape(len(found), -1)
    return codes, np.exp(np.array([log for _, log in found]))


def _part_states(factor: FloatArray, prior: FloatArray) -> float:
    """Compute the mutual information of a variable and the state, nats."""
    joint = factor * prior
    apart = np.maximum(joint.sum(axis=1, keepdims=True) * prior, FLOOR)
    return float((joint * np.log(np.maximum(joint, FLOOR) / apart)).sum())


def _search(
    log_prior: FloatArray, blocks: Sequence[FloatArray], top: int
) -> list[tuple[tuple[int, ...], float]]:
    """Run the best-first search; return codes in the order of the blocks, and log-probabilities."""
    # rest[n]: upper bound on the contribution of the variables from n on, by state
    rest = np.zeros((len(blocks) + 1, log_prior.size))
    for n in range(len(blocks) - 1, -1, -1):
        rest[n] = rest[n + 1] + blocks[n].max(axis=0)
    waiting: list[tuple[float, tuple[int, ...], FloatArray]] = [(0.0, (), log_prior)]
    found: list[tuple[tuple[int, ...], float]] = []
    expanded = 0
    while waiting and len(found) < top:
        cost, codes, logs = heapq.heappop(waiting)
        if len(codes) == len(blocks):
            found.append((codes, -cost))
            continue
        expanded += 1
        if expanded > MAX_EXPANDED:
            raise MemoryPlanError(
                f"the {top} most likely combinations of {len(blocks)} variables are not certain after {MAX_EXPANDED:,} "
                "steps; name fewer variables, give levels of some, or ask for fewer"
            )
        n = len(codes)
        children = logs + blocks[n]
        reached = children + rest[n + 1]
        highest = reached.max(axis=1)
        for code in np.flatnonzero(highest > -math.inf).tolist():
            above = highest[code]
            bound = float(above + np.log(np.exp(reached[code] - above).sum()))
            heapq.heappush(waiting, (-bound, (*codes, code), children[code]))
    return found
