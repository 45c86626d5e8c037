"""Models of those who have some levels: forests again, whose tables have taken up what is given below them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pmflib.level_blocks import FLOOR
from pmflib.trees.tree_statistics import TreeParameters


def condition_forests(
    parameters: TreeParameters, conditions: Mapping[int, tuple[int, ...]]
) -> tuple[TreeParameters, float]:
    """Condition on levels of some variables.

    Parameters
    ----------
    parameters
        The model.
    conditions
        Codes that each variable is given to have one of, by place.

    Returns
    -------
    The model given the conditions, of the same forests, and the log-probability of the conditions, nats; -inf, with the
    model as it was, where nobody can meet them.
    """
    prior, forest, tables = parameters
    offsets = forest.offsets
    kept = np.ones(int(offsets[-1]))
    for place, codes in conditions.items():
        kept[offsets[place] : offsets[place + 1]] = 0.0
        kept[offsets[place] + np.array(codes)] = 1.0
    changed = tables.copy()
    with np.errstate(divide="ignore"):
        logs = np.where(prior > FLOOR, np.log(np.maximum(prior, FLOOR)), -np.inf)
    for state in np.flatnonzero(prior > FLOOR).tolist():
        messages = kept.copy()
        for place in forest.order[state][::-1].tolist():
            mine = slice(int(offsets[place]), int(offsets[place + 1]))
            message = messages[mine]
            most = message.max()
            if most <= 0:
                logs[state] = -np.inf
                break
            logs[state] += np.log(most)
            message = message / most
            table = forest.cut(changed, state, place)
            joint = table * message
            chances = joint.sum(axis=1, keepdims=True)
            # a level of the parent that is ruled out by what is below it never occurs
            table[:] = np.where(
                chances > FLOOR, joint / np.maximum(chances, FLOOR), message / message.sum()
            )
            parent = int(forest.parents[state, place])
            if parent >= 0:
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
