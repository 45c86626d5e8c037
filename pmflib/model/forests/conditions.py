"""Models with forests, asked: conditions, marginals of pairs, samples, least expected cells."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.core.errors import PmfError
from pmflib.model.forests.statistics import TreeParameters
from pmflib.model.marginals import RowScores
from pmflib.model.mixture import Mixture


def condition_forests(
    parameters: TreeParameters, conditions: Mapping[int, tuple[int, ...]]
) -> tuple[TreeParameters, float]:
    """Condition on levels of some variables.

    Parameters
    ----------
    parameters
        The model.
    conditions
        Codes that each variable is given to have one of, by position.

    Returns
    -------
    The model given the conditions, of the same forests, and the log-probability of the conditions, nats; -inf, with the
    model as it was, where nobody can meet them.
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
        # tables of variables without a condition at or below them stay as they are
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
            # a level of the parent that is ruled out by what is below it never occurs
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
    # tables of a state without mass may be unfinished: they are as they were
    for state in np.flatnonzero(weights == 0).tolist():
        own = forest.states == state
        changed[own] = tables[own]
    return TreeParameters(weights, forest, changed), float(logs.max() + np.log(total))


def find_pairs(parameters: TreeParameters, factors: FloatArray) -> FloatArray:
    """Joint PMFs of all pairs of variables.

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
    """Mean and variance, given the state, of the log-probability of each variable given its parent.

    Parameters
    ----------
    parameters, factors
        As for `find_pairs`.

    Returns
    -------
    float64 of shape (n_variables, rank) each, nats and their squares.
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
    """Draw rows, nothing missing.

    Parameters
    ----------
    parameters
        The model.
    n_rows
        How many, at least 0.
    rng
        Source of randomness; it is advanced by ``n_rows * (n_variables + 1)`` doubles.

    Returns
    -------
    int8 of shape (n_rows, n_variables), or int16 where a variable has more than 127 levels.

    Raises
    ------
    PmfError
        If n_rows is negative.
    """
    if n_rows < 0:
        raise PmfError(f"n_rows is {n_rows}, below 0: pass a count of rows")
    prior, forest, tables = parameters
    n_variables = forest.offsets.size - 1
    dtype = np.int8 if np.diff(forest.offsets).max() <= 127 else np.int16
    codes = np.empty((n_rows, n_variables), dtype)
    states = _draw(np.broadcast_to(prior, (n_rows, prior.size)), rng.random(n_rows))
    uniforms = rng.random((n_rows, n_variables))
    for state in np.unique(states).tolist():
        rows = np.flatnonzero(states == state)
        for position in forest.order[state].tolist():
            parent = int(forest.parents[state, position])
            above = codes[rows, parent] if parent >= 0 else np.zeros(rows.size, np.int64)
            table = forest.view_table(tables, state, position)
            codes[rows, position] = _draw(table, uniforms[rows, position], above)
    return codes


def _draw(table: FloatArray, uniforms: FloatArray, above: IntArray | None = None) -> IntArray:
    """Code of each uniform number in [0, 1) under the PMF of its row of a table."""
    edges = np.cumsum(table, axis=1)
    # divided by the last, which is exactly 1 then: no level of probability 0 is drawn
    edges = edges / edges[:, -1:]
    if above is not None:
        edges = edges[above]
    return np.asarray((edges <= uniforms[:, None]).sum(axis=1))


def find_surprises_in_turn(model: Mixture, codes: IntArray, out: RowScores) -> None:
    """Find the least probable cell of each row given the others, and its most probable level: each is hidden in turn.

    Parameters
    ----------
    model
        The model.
    codes, out
        As for `pmflib.model.marginals.find_surprises`.
    """
    out.states[:] = out.posteriors.argmax(axis=1)
    least = np.full(len(codes), np.inf)
    out.variables[:], out.expected[:] = -1, -1
    out.probabilities[:], out.expected_probabilities[:] = np.nan, np.nan
    for position in range(model.schema.n_variables):
        rows = np.flatnonzero(codes[:, position] >= 0)
        if not rows.size:
            continue
        pmf = model.predict_proba(codes[rows], position)
        chances = np.minimum(pmf[np.arange(rows.size), codes[rows, position]], 1.0)
        is_less = chances < least[rows]
        found = rows[is_less]
        least[found] = out.probabilities[found] = chances[is_less]
        out.variables[found] = position
        out.expected[found] = pmf[is_less].argmax(axis=1)
        out.expected_probabilities[found] = np.minimum(pmf[is_less].max(axis=1), 1.0)
