"""Latent states as a person can read them: what is more, and less, frequent in each than over all samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.arrays import BoolArray, FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.level_blocks import FLOOR, list_owners, sum_blocks
from pmflib.model.associations import expect_values
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.state_profiles import StateProfiles, profile_states

LEAST_PROBABILITY = 0.1
"""Probability from which a level may describe a state: what nine of ten samples lack says little."""

LEAST_LIFT = 1.2
"""Lift from which a level describes a state; a level that is rarer there than elsewhere has one below 1 / this."""

STANDARD_ERRORS = 3.0
"""Standard errors, where counts are known, by which a probability given the state has to differ from that of all."""

CLEAR_SHIFT = 0.1
"""Standard deviations from which the values of an ordinal variable are called higher or lower."""


@dataclass(frozen=True)
class DescribingLevel:
    """A level that is more frequent in a state, or rarer, than over all samples.

    Parameters
    ----------
    variable, level
        Name and label.
    probability
        Probability of the level given the state.
    overall
        Probability of the level over all samples.
    """

    variable: str
    level: str
    probability: float
    overall: float

    @property
    def lift(self) -> float:
        """How many times as probable the level is given the state."""
        return self.probability / max(self.overall, FLOOR)


@dataclass(frozen=True)
class ShiftedVariable:
    """An ordinal variable whose expected value in a state is not that over all samples.

    Parameters
    ----------
    variable
        Name.
    expected, overall
        Expected value given the state, and over all samples, in the units of the values.
    """

    variable: str
    expected: float
    overall: float


@dataclass(frozen=True)
class StateDescription:
    """One latent state.

    Parameters
    ----------
    state
        Its place in the model, from 0.
    prior
        Its share of the samples.
    frequent, rare
        Levels that describe it, the most distinguishing first: one at most of each variable.
    n_higher, n_lower
        Ordinal variables whose expected value given the state is above and below that over all samples, by more than
        ``CLEAR_SHIFT`` standard deviations.
    shifted
        Ordinal variables whose expected value differs most, beyond chance, the most first.
    """

    state: int
    prior: float
    frequent: tuple[DescribingLevel, ...]
    rare: tuple[DescribingLevel, ...]
    n_higher: int
    n_lower: int
    shifted: tuple[ShiftedVariable, ...]


def describe_states(
    model: JointPMF, *, most: int = 10, level_counts: IntArray | None = None
) -> list[StateDescription]:
    """Describe the latent states of a model.

    Parameters
    ----------
    model
        The model.
    most
        Levels to list of a state, at most, frequent and rare each, and shifted variables; at least 0.
    level_counts
        int64 of shape (n_levels,): training samples that hold each level. With them a level describes a state only
        beyond chance. None takes all differences as sure.

    Returns
    -------
    A description per state, the largest first.

    Raises
    ------
    PmfError
        If most is negative, or level_counts has another shape.

    Notes
    -----
    Frequent levels are in the order of `profile_states`, by p log(p / q), with p the probability given the state and q
    that over all samples; rare ones by q log(q / p). The standard error of p is that of a share of the samples that
    hold the variable, as many as are in the state.
    """
    if most < 0:
        raise PmfError(f"most is {most}; give at least 0")
    schema = model.schema
    if level_counts is not None and level_counts.shape != (schema.n_levels,):
        raise PmfError(
            f"level_counts has shape {level_counts.shape}; the schema has {schema.n_levels} levels"
        )
    held = None if level_counts is None else sum_blocks(level_counts, schema.offsets)
    sure = _find_sure_levels(model, held)
    overall = model.factors @ model.prior
    profiles = profile_states(
        model.prior, model.factors, schema.offsets, n_shown=schema.n_levels, min_lift=LEAST_LIFT
    )
    places, shifts, spreads, means = expect_values(model)
    found = []
    for row, state in enumerate(profiles.states.tolist()):
        given, mine = model.factors[:, state], shifts[:, state]
        frequent = _list_frequent(profiles, row, sure[:, state])
        clear = _find_clear_shifts(model, mine, places, held, state)
        order = np.argsort(-np.abs(mine), kind="stable")
        found.append(
            StateDescription(
                state,
                float(model.prior[state]),
                _describe(model, frequent, given, overall, most),
                _describe(model, _list_rare(given, overall, sure[:, state]), given, overall, most),
                int((mine > CLEAR_SHIFT).sum()),
                int((mine < -CLEAR_SHIFT).sum()),
                tuple(
                    ShiftedVariable(
                        schema.names[places[each]],
                        float(means[each] + mine[each] * spreads[each]),
                        float(means[each]),
                    )
                    for each in order[clear[order]][:most].tolist()
                ),
            )
        )
    return found


def _find_sure_levels(model: JointPMF, held: IntArray | None) -> BoolArray:
    """Levels whose probability given a state differs from that over all samples beyond chance: (n_levels, rank)."""
    overall = (model.factors @ model.prior)[:, None]
    if held is None:
        return np.asarray(model.factors != overall)
    by_level = held[list_owners(model.schema.offsets)][:, None]
    in_state = np.maximum(by_level * model.prior, 1.0)
    # with a pseudo-sample of either sort: a share of 0 or 1 has an error too
    drawn_in = (model.factors * in_state + 1) / (in_state + 2)
    errors = np.sqrt(drawn_in * (1 - drawn_in) / (in_state + 2))
    sure = np.abs(model.factors - overall) > STANDARD_ERRORS * errors
    return np.asarray(sure & (by_level > 0))


def _find_clear_shifts(
    model: JointPMF, shifts: FloatArray, places: IntArray, held: IntArray | None, state: int
) -> BoolArray:
    """Ordinal variables whose expected value given a state is shifted, beyond chance: shape (n_ordinal,)."""
    clear = np.abs(shifts) > CLEAR_SHIFT
    if held is None:
        return clear
    in_state = np.maximum(held[places] * model.prior[state], FLOOR)
    return np.asarray(clear & (np.abs(shifts) > STANDARD_ERRORS / np.sqrt(in_state)))


def _list_frequent(profiles: StateProfiles, row: int, sure: BoolArray) -> list[int]:
    levels = profiles.levels[row]
    likely = (levels >= 0) & (profiles.probabilities[row] >= LEAST_PROBABILITY)
    return [level for level in levels[likely].tolist() if sure[level]]


def _list_rare(given: FloatArray, overall: FloatArray, sure: BoolArray) -> list[int]:
    ratio = np.maximum(overall, FLOOR) / np.maximum(given, FLOOR)
    rare = sure & (overall >= LEAST_PROBABILITY) & (ratio >= LEAST_LIFT)
    order = np.argsort(-np.where(rare, overall * np.log(ratio), 0.0), kind="stable")
    return [level for level in order.tolist() if rare[level]]


def _describe(
    model: JointPMF, levels: list[int], given: FloatArray, overall: FloatArray, most: int
) -> tuple[DescribingLevel, ...]:
    """First levels of a list, one of each variable."""
    schema, owners = model.schema, list_owners(model.schema.offsets)
    picked: dict[int, int] = {}
    for level in levels:
        picked.setdefault(int(owners[level]), level)
    return tuple(
        DescribingLevel(
            schema.names[place],
            schema.variables[place].levels[level - int(schema.offsets[place])],
            float(given[level]),
            float(overall[level]),
        )
        for place, level in list(picked.items())[:most]
    )
