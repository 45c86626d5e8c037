"""Questions to the parameters of models with forests: conditions, pairs, expected logarithms, and drawn rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.constraints import at_least, check
from pmflib.families.forests.statistics import TreeParameters


def condition_forests(
    parameters: TreeParameters, conditions: Mapping[int, tuple[int, ...]]
) -> tuple[TreeParameters, float]:
    """Condition on levels of some variables.

    Parameters
    ----------
    parameters
        The model.
    conditions
        Allowed codes of each variable, by position.

    Returns
    -------
    The conditional model, with the same forests, and the log-probability of the conditions, nats. If the conditions are
    impossible, it is -inf and the model is unchanged.
    """
    prior, forest, tables = parameters
    offsets = forest.offsets
    kept = np.ones(int(offsets[-1]))
    for position, codes in conditions.items():
        kept[offsets[position] : offsets[position + 1]] = 0.0
        kept[offsets[position] + np.array(codes)] = 1.0
    changed = tables.copy()
    with np.errstate(divide="ignore"):
        logs = np.where(prior > FLOOR, np.log(np.maximum(prior, FLOOR)), -np.inf)
    for state in np.flatnonzero(prior > FLOOR).tolist():
        messages = kept.copy()
        # tables of variables without a condition on them or their descendants do not change
        touched = set(conditions)
        for position in forest.order[state][::-1].tolist():
            if position not in touched:
                continue
            mine = slice(int(offsets[position]), int(offsets[position + 1]))
            message = messages[mine]
            most = message.max()
            if most <= 0:
                logs[state] = -np.inf
                break
            logs[state] += np.log(most)
            message = message / most
            table = forest.view_table(changed, state, position)
            joint = table * message
            chances = joint.sum(axis=1, keepdims=True)
            # a level of the parent that the conditions below it exclude never occurs
            table[:] = np.where(
                chances > FLOOR, joint / np.maximum(chances, FLOOR), message / message.sum()
            )
            parent = int(forest.parents[state, position])
            if parent >= 0:
                touched.add(parent)
                messages[offsets[parent] : offsets[parent + 1]] *= np.where(
                    chances > FLOOR, chances, 0.0
                )[:, 0]
            else:
                chance = float(chances[0, 0])
                logs[state] += np.log(chance) if chance > FLOOR else -np.inf
    if not np.isfinite(logs.max()):
        return parameters, -np.inf
    weights = np.exp(logs - logs.max())
    total = weights.sum()
    weights /= total
    # tables of a state without mass may be incomplete: restore them
    for state in np.flatnonzero(weights == 0).tolist():
        own = forest.states == state
        changed[own] = tables[own]
    return TreeParameters(weights, forest, changed), float(logs.max() + np.log(total))


def find_pairs(parameters: TreeParameters, factors: FloatArray) -> FloatArray:
    """Compute the joint PMFs of all pairs of variables.

    Parameters
    ----------
    parameters
        The model.
    factors
        float64 of shape (n_levels, rank): PMFs of the variables given the state alone.

    Returns
    -------
    float64 of shape (n_levels, n_levels), symmetric. The block of a variable with itself has its PMF on the diagonal.
    """
    prior, forest, tables = parameters
    offsets = forest.offsets
    total = np.zeros((len(factors), len(factors)))
    for state in range(prior.size):
        own = factors[:, state]
        joint = np.outer(own, own)
        before = np.zeros(0, np.int64)
        for position in forest.order[state].tolist():
            mine = slice(int(offsets[position]), int(offsets[position + 1]))
            parent = int(forest.parents[state, position])
            if parent >= 0:
                table = forest.view_table(tables, state, position)
                found = joint[before][:, offsets[parent] : offsets[parent + 1]] @ table
                joint[before, mine] = found
                joint[mine, before] = found.T
            joint[mine, mine] = np.diag(own[mine])
            before = np.append(before, np.arange(mine.start, mine.stop))
        total += prior[state] * joint
    return total


def expect_logs(parameters: TreeParameters, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute the mean and variance, given the state, of the log-probability of each variable given its parent.

    Parameters
    ----------
    parameters, factors
        As for `find_pairs`.

    Returns
    -------
    float64 of shape (n_variables, rank) each, in nats and squared nats.
    """
    prior, forest, tables = parameters
    offsets = forest.offsets
    means, squares = np.empty((2, offsets.size - 1, prior.size))
    for state in range(prior.size):
        for position, parent in enumerate(forest.parents[state].tolist()):
            table = forest.view_table(tables, state, position)
            above = np.ones(1)
            if parent >= 0:
                above = factors[offsets[parent] : offsets[parent + 1], state]
            joint, logs = above[:, None] * table, np.log(np.maximum(table, FLOOR))
            means[position, state] = (joint * logs).sum()
            squares[position, state] = (joint * logs**2).sum()
    return means, squares - means**2


def draw_tree_rows(parameters: TreeParameters, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw complete rows.

    Parameters
    ----------
    parameters
        The model.
    n_rows
        Number of rows, at least 0.
    rng
        Random number generator; it is advanced by ``n_rows * (n_variables + 1)`` doubles.

    Returns
    -------
    int8 of shape (n_rows, n_variables), or int16 if a variable has more than 127 levels.

    Raises
    ------
    PmfError
        If n_rows is negative.
    """
    check(at_least(0), n_rows=n_rows)
    prior, forest, tables = parameters
    n_variables = forest.offsets.size - 1
    dtype = np.int8 if np.diff(forest.offsets).max() <= 127 else np.int16
    codes = np.empty((n_rows, n_variables), dtype)
    edges = np.cumsum(prior)
    states = np.searchsorted(edges / edges[-1], rng.random(n_rows), side="right")
    uniforms = rng.random((n_rows, n_variables))
    has_edges = forest.has_edges
    plain = np.flatnonzero(~has_edges[states])
    places = (np.cumsum(~has_edges) - 1)[states[plain]]
    singles = tables[forest.is_plain].reshape(-1, int(forest.offsets[-1]))
    for position, (first, stop) in enumerate(pairwise(forest.offsets.tolist())):
        codes[plain, position] = _draw(singles[:, first:stop], uniforms[plain, position], places)
    for state in np.unique(states[has_edges[states]]).tolist():
        rows = np.flatnonzero(states == state)
        for position in forest.order[state].tolist():
            parent = int(forest.parents[state, position])
            above = codes[rows, parent] if parent >= 0 else np.zeros(rows.size, np.int64)
            table = forest.view_table(tables, state, position)
            codes[rows, position] = _draw(table, uniforms[rows, position], above)
    return codes


def _draw(table: FloatArray, uniforms: FloatArray, above: IntArray) -> IntArray:
    """Map each uniform number in [0, 1) to a code by inversion of the PMF in its row of a table."""
    edges = np.cumsum(table, axis=1)
    # dividing by the last value makes it exactly 1, so that a level of probability 0 is never drawn
    edges = edges / edges[:, -1:]
    return np.asarray((edges[above] <= uniforms[:, None]).sum(axis=1))
