"""What latent classes with forests say of all pairs of variables, and of how much variables are expected to say."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.level_blocks import FLOOR
from pmflib.trees.tree_statistics import TreeParameters


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
        for place in forest.order[state].tolist():
            mine = slice(int(offsets[place]), int(offsets[place + 1]))
            parent = int(forest.parents[state, place])
            if parent >= 0:
                table = forest.cut(tables, state, place)
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
        for place, parent in enumerate(forest.parents[state].tolist()):
            table = forest.cut(tables, state, place)
            above = np.ones(1)
            if parent >= 0:
                above = factors[offsets[parent] : offsets[parent + 1], state]
            joint, logs = above[:, None] * table, np.log(np.maximum(table, FLOOR))
            means[place, state] = (joint * logs).sum()
            squares[place, state] = (joint * logs**2).sum()
    return means, squares - means**2
