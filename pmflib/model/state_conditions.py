"""Mixtures over latent states of those who have some levels: which states can have them, and what is left."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.em.statistics import take_logs
from pmflib.level_blocks import FLOOR


def find_able_states(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    conditions: Mapping[int, tuple[int, ...]],
) -> BoolArray:
    """Find the states with mass in which each of some conditions can be met.

    Parameters
    ----------
    prior, factors
        float64 of shapes (rank,) and (n_levels, rank).
    offsets
        int64 of shape (n_variables + 1,): first row of each variable.
    conditions
        Codes that each variable is given to have one of, by place.

    Returns
    -------
    bool of shape (rank,).
    """
    able = np.asarray(prior > FLOOR)
    for place, codes in conditions.items():
        able &= (factors[int(offsets[place]) + np.array(codes)] > FLOOR).any(axis=0)
    return able


def condition_states(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    conditions: Mapping[int, tuple[int, ...]],
) -> tuple[FloatArray, FloatArray, float]:
    """Condition a mixture of independent variables on levels that somebody can have.

    Parameters
    ----------
    prior, factors, offsets, conditions
        As for `find_able_states`.

    Returns
    -------
    Prior and factors given the conditions, and the log-probability of the conditions, nats.
    """
    factors = factors.copy()
    masses = np.empty((len(conditions), prior.size))
    for mass, (place, codes) in zip(masses, conditions.items(), strict=True):
        block = factors[offsets[place] : offsets[place + 1]]
        kept = np.zeros((len(block), 1))
        kept[list(codes)] = 1.0
        if len(codes) == len(block):
            mass[:] = 1.0
            continue
        mass[:] = block[list(codes)].sum(axis=0)
        # a state without mass there has none of the prior either
        block[:] = np.where(mass > FLOOR, block * kept / np.maximum(mass, FLOOR), kept / kept.sum())
        block /= block.sum(axis=0)
    log_prior, log_masses = take_logs(prior, masses)
    logs: FloatArray = log_prior + log_masses.sum(axis=0)
    logs[(prior <= FLOOR) | (masses <= FLOOR).any(axis=0)] = -np.inf
    weights = np.exp(logs - logs.max())
    log_probability = float(logs.max() + np.log(weights.sum()))
    return weights / weights.sum(), factors, log_probability
