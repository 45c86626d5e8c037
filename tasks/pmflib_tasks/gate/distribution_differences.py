"""Differences between two data sets or models: variables, pairs of variables, latent states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, sum_blocks
from pmflib.model import JointPMF
from pmflib.papers.metrics import match_factors
from pmflib_tasks.guards.counts import AlignedLevels, iterate_pairs, measure_distances


@dataclass(frozen=True)
class VariableChange:
    """Difference of the distributions of one variable in two data sets.

    Parameters
    ----------
    variable
        Name.
    total_variation
        Half the summed absolute difference of the probabilities, in [0, 1].
    by_chance
        Expected total variation of two samples of these sizes from one distribution.
    psi
        Population stability index, nats. Values above 0.1 are commonly read as a shift, above 0.25 as a large one.
    n_first, n_second
        Samples that hold the variable.
    """

    variable: str
    total_variation: float
    by_chance: float
    psi: float
    n_first: int
    n_second: int


@dataclass(frozen=True)
class PairChange:
    """Difference of the joint distributions of two variables in two data sets.

    Parameters
    ----------
    variables
        Names of the two.
    total_variation, by_chance, n_first, n_second
        As in `VariableChange`, of the pair.
    """

    variables: tuple[str, str]
    total_variation: float
    by_chance: float
    n_first: int
    n_second: int


def compare_singles(
    levels: AlignedLevels, first: IntArray, second: IntArray
) -> list[VariableChange]:
    """Compare the distributions of the variables that two data sets share.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        Samples that hold each level, shapes (n_levels_first,) and (n_levels_second,).

    Returns
    -------
    A change for each variable observed in both data sets, by falling difference beyond chance.
    """
    cells = np.stack([levels.align(first, levels.first), levels.align(second, levels.second)])
    found = measure_distances(cells, levels.offsets)
    columns = (
        found.total_variation,
        found.by_chance,
        found.stability_index,
        found.n_first,
        found.n_second,
    )
    compared = map(VariableChange, levels.names, *(column.tolist() for column in columns))
    changes = [each for each in compared if min(each.n_first, each.n_second) > 0]
    return sorted(changes, key=lambda change: change.by_chance - change.total_variation)


def compare_pairs(
    levels: AlignedLevels, first: IntArray, second: IntArray, *, most: int
) -> tuple[int, list[PairChange]]:
    """Compare the joint distributions of the pairs of variables that two data sets share.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        Pair counts, int64 of shapes (n_levels_first,) * 2 and (n_levels_second,) * 2, symmetric.
    most
        Maximum number of changes to return.

    Returns
    -------
    Number of pairs observed in both data sets, and the largest changes, by falling difference beyond chance.

    Notes
    -----
    Beside the counts, memory holds only the tables of one batch of pairs.
    """
    n_variables = len(levels.names)
    found = np.zeros((4, n_variables, n_variables))
    for tile in iterate_pairs(levels.offsets, (first, second), levels=levels.own_levels):
        cells = np.stack([counts.reshape(-1) for counts in tile.counts]).astype(np.float64)
        edges = np.arange(tile.first.size + 1) * (cells.shape[1] // tile.first.size)
        of_tile = measure_distances(cells, edges)
        found[:, tile.first, tile.second] = (
            of_tile.total_variation,
            of_tile.by_chance,
            of_tile.n_first,
            of_tile.n_second,
        )
    variation, chance, n_one, n_other = found
    both = (n_one > 0) & (n_other > 0)
    beyond = np.where(both, variation - chance, -np.inf)
    order = np.argsort(-beyond, axis=None, kind="stable")[: min(most, int(both.sum()))]
    changes = []
    for j, k in zip(*np.unravel_index(order, beyond.shape), strict=True):
        names = levels.names[j], levels.names[k]
        sizes = int(n_one[j, k]), int(n_other[j, k])
        changes.append(PairChange(names, float(variation[j, k]), float(chance[j, k]), *sizes))
    return int(both.sum()), changes


@dataclass(frozen=True)
class StateChange:
    """A latent state of two models.

    Parameters
    ----------
    first, second
        Index of the state in each model; None where it has no match.
    prior_first, prior_second
        Its prior in each model; None where it has no match.
    mean_variation
        Total variation of the conditional PMFs given the state, mean over the variables; None without a match.
    variable, variation
        Variable whose conditional PMF changed most, and its total variation; None without a match.
    """

    first: int | None
    second: int | None
    prior_first: float | None
    prior_second: float | None
    mean_variation: float | None = None
    variable: str | None = None
    variation: float | None = None


def compare_models(levels: AlignedLevels, first: JointPMF, second: JointPMF) -> list[StateChange]:
    """Match the latent states of two models and compare them over the shared variables.

    Parameters
    ----------
    levels
        Alignment of the two schemas.
    first, second
        The models; their ranks may differ.

    Returns
    -------
    A change per state: matched states by falling prior of the second model, then states without a match.
    """
    factors_first = levels.align(first.factors, levels.first)
    factors_second = levels.align(second.factors, levels.second)
    partners = match_factors(first.prior, factors_first, second.prior, factors_second)
    matched, alone = [], []
    for state, partner in enumerate(partners.tolist()):
        prior = float(first.prior[state])
        if partner < 0:
            alone.append(StateChange(state, None, prior, None))
            continue
        variations = _compare_columns(levels, factors_first[:, state], factors_second[:, partner])
        changed = int(variations.argmax()) if variations.size else None
        matched.append(
            StateChange(
                state,
                partner,
                prior,
                float(second.prior[partner]),
                float(variations.mean()) if variations.size else None,
                None if changed is None else levels.names[changed],
                None if changed is None else float(variations[changed]),
            )
        )
    without = sorted({*range(second.rank)} - {*partners.tolist()})
    alone += [StateChange(None, each, None, float(second.prior[each])) for each in without]
    return sorted(matched, key=lambda change: -(change.prior_second or 0.0)) + alone


def _compare_columns(levels: AlignedLevels, first: FloatArray, second: FloatArray) -> FloatArray:
    """Compute the total variation of each variable's conditional PMF, shape (n_shared,)."""
    if not levels.names:
        return np.zeros(0)
    return sum_blocks(np.abs(first - second), levels.offsets) / 2
