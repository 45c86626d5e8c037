"""Descriptions of latent states by their distinguishing levels: as arrays, as text, and in the summary of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray, list_owners, sum_blocks
from pmflib.base.comparison import name_setting
from pmflib.base.constraints import at_least, check, check_shapes
from pmflib.base.display.summary import (
    MOST_ROWS,
    Summary,
    SummaryTable,
    cut,
    decimal,
    format_count,
    percent,
)
from pmflib.base.errors import PmfError
from pmflib.model.associations import expect_values
from pmflib.model.identification import describe_undetermined
from pmflib.model.mixture import Mixture
from pmflib.model.rungs import READING, RungFit, tabulate_ladder
from pmflib.model.sampling import check_parameters
from pmflib.schema import Schema

SHOWN_LEVELS = 6
"""Default number of levels listed per state."""

MIN_LIFT = 1.1
"""Minimum lift of a distinguishing level; smaller differences are of no practical interest."""


@dataclass(frozen=True, eq=False)
class StateProfiles:
    """Latent states, the largest first, with the distinguishing levels of each.

    Parameters
    ----------
    states
        int64 of shape (rank,): positions of the states by descending size; ties keep the order of the model.
    sizes
        float64 of shape (rank,): probability of each of ``states``, descending.
    divergences
        float64 of shape (rank,), nats: sum over variables of the Kullback-Leibler divergence of the state's PMF from
        the marginal; 0 if the state does not differ from the population.
    levels
        int64 of shape (rank, n_shown): rows of the factors, the most distinguishing first, padded with -1.
    variables
        int64 of shape (rank, n_shown): positions of their variables, padded with -1.
    probabilities, marginals
        float64 of shape (rank, n_shown): probability of the level in the state, and overall; padded with NaN.
    lifts
        float64 of shape (rank, n_shown): ratio of the two, at least ``min_lift``; padded with NaN.
    """

    states: IntArray
    sizes: FloatArray
    divergences: FloatArray
    levels: IntArray
    variables: IntArray
    probabilities: FloatArray
    marginals: FloatArray
    lifts: FloatArray


def profile_states(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    *,
    n_shown: int = SHOWN_LEVELS,
    min_lift: float = MIN_LIFT,
) -> StateProfiles:
    """Find the distinguishing levels of latent states: those more probable in a state than overall.

    Parameters
    ----------
    prior
        float64 of shape (rank,), probabilities that sum to 1.
    factors
        float64 of shape (n_levels, rank): conditional PMFs, stacked.
    offsets
        int64 of shape (n_variables + 1,); variable j owns rows ``offsets[j]:offsets[j + 1]``.
    n_shown
        Number of levels to list per state, at least 0; limited to the number of levels.
    min_lift
        Minimum ratio of a level's probability in the state to its marginal, at least 1.

    Returns
    -------
    The profiles.

    Raises
    ------
    SchemaError, RankError
        If the arrays do not form a model.
    PmfError
        If n_shown or min_lift is out of range.

    Notes
    -----
    Levels are ordered by their contribution to the divergence, ``p log(p / q)`` in nats, where p is the probability of
    the level in the state and q its marginal. The lift ``p / q`` alone would favour very rare levels.

    Examples
    --------
    >>> found = profile_states(np.array([0.25, 0.75]), np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([0, 2]))
    >>> found.states.tolist(), found.levels[:, 0].tolist(), found.lifts[:, 0].round(2).tolist()
    ([1, 0], [1, 0], [1.29, 3.0])
    """
    check_parameters(prior, factors, offsets)
    check(at_least(0), n_shown=n_shown)
    check(at_least(1, "which lists all that is likelier"), min_lift=min_lift)
    marginals = factors @ prior
    # a level of probability 0 distinguishes no state, even if an empty state gives it mass
    lifts = np.where(
        marginals[:, None] > FLOOR, factors / np.maximum(marginals, FLOOR)[:, None], 1.0
    )
    shares = factors * np.log(np.maximum(lifts, FLOOR))
    divergences = np.maximum(sum_blocks(shares, offsets).sum(axis=0), 0.0)
    states = np.argsort(-prior, kind="stable")
    n_shown = min(n_shown, len(factors))
    weights = np.where(lifts >= min_lift, shares, -np.inf)
    levels = np.argsort(-weights, axis=0, kind="stable")[:n_shown, states].T
    none = np.isneginf(weights[levels, states[:, None]])

    def pick(table: FloatArray) -> FloatArray:
        return np.where(none, np.nan, table)

    return StateProfiles(
        states=states,
        sizes=prior[states],
        divergences=divergences[states],
        levels=np.where(none, -1, levels),
        variables=np.where(none, -1, list_owners(offsets)[levels]),
        probabilities=pick(factors[levels, states[:, None]]),
        marginals=pick(marginals[levels]),
        lifts=pick(lifts[levels, states[:, None]]),
    )


LEAST_PROBABILITY = 0.1
"""Minimum probability of a level that describes a state: one that nine of ten samples lack is not informative."""

LEAST_LIFT = 1.2
"""Minimum lift of a level that describes a state; a rare level must have a lift below the inverse."""

STANDARD_ERRORS = 3.0
"""Minimum difference, in standard errors, of a probability given the state from the overall one."""

CLEAR_SHIFT = 0.1
"""Minimum shift, in standard deviations, for the values of an ordinal variable to be called higher or lower."""


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
        """Ratio of the probability given the state to the overall probability."""
        return self.probability / max(self.overall, FLOOR)


@dataclass(frozen=True)
class ShiftedVariable:
    """An ordinal variable whose expected value in a state differs from that over all samples.

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
    """Description of one latent state.

    Parameters
    ----------
    state
        Its position in the model, from 0.
    prior
        Its share of the samples.
    frequent, rare
        Levels that describe it, the most distinguishing first; at most one per variable.
    n_higher, n_lower
        Numbers of ordinal variables whose expected value given the state is above or below that over all samples by
        more than ``CLEAR_SHIFT`` standard deviations.
    shifted
        Ordinal variables with the largest significant shifts of the expected value, in descending order.
    """

    state: int
    prior: float
    frequent: tuple[DescribingLevel, ...]
    rare: tuple[DescribingLevel, ...]
    n_higher: int
    n_lower: int
    shifted: tuple[ShiftedVariable, ...]


def describe_states(
    model: Mixture, *, most: int = 10, level_counts: IntArray | None = None
) -> list[StateDescription]:
    """Describe the latent states of a model.

    Parameters
    ----------
    model
        The model.
    most
        Maximum number of frequent levels, of rare levels, and of shifted variables per state; at least 0.
    level_counts
        int64 of shape (n_levels,): number of training samples with each level, used to keep only significant
        differences. If None, all differences are treated as significant.

    Returns
    -------
    One description per state, the largest first.

    Raises
    ------
    PmfError
        If most is negative, or level_counts has another shape.

    Notes
    -----
    Frequent levels are ordered as in `profile_states`, by p log(p / q), where p is the probability given the state and
    q the overall one; rare levels are ordered by q log(q / p). The standard error of p is that of a proportion among
    the expected number of samples that are in the state and have the variable observed.
    """
    check(at_least(0), most=most)
    schema = model.schema
    if level_counts is not None:
        check_shapes("", PmfError, level_counts=(level_counts, (schema.n_levels,)))
    n_observed = None if level_counts is None else sum_blocks(level_counts, schema.offsets)
    sure = _find_certain_levels(model, n_observed)
    overall = model.factors @ model.prior
    profiles = profile_states(
        model.prior, model.factors, schema.offsets, n_shown=schema.n_levels, min_lift=LEAST_LIFT
    )
    positions, shifts, spreads, means = expect_values(model)
    found = []
    for row, state in enumerate(profiles.states.tolist()):
        given, mine = model.factors[:, state], shifts[:, state]
        frequent = _list_frequent(profiles, row, sure[:, state])
        clear = _find_clear_shifts(model, mine, positions, n_observed, state)
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
                        schema.names[positions[each]],
                        float(means[each] + mine[each] * spreads[each]),
                        float(means[each]),
                    )
                    for each in order[clear[order]][:most].tolist()
                ),
            )
        )
    return found


def _find_certain_levels(model: Mixture, n_observed: IntArray | None) -> BoolArray:
    """Find levels whose probability given a state differs significantly from the overall one: (n_levels, rank)."""
    overall = (model.factors @ model.prior)[:, None]
    if n_observed is None:
        return np.asarray(model.factors != overall)
    by_level = n_observed[list_owners(model.schema.offsets)][:, None]
    in_state = np.maximum(by_level * model.prior, 1.0)
    # one pseudo-sample with the level and one without, so that shares of 0 and 1 have a standard error
    drawn_in = (model.factors * in_state + 1) / (in_state + 2)
    errors = np.sqrt(drawn_in * (1 - drawn_in) / (in_state + 2))
    sure = np.abs(model.factors - overall) > STANDARD_ERRORS * errors
    return np.asarray(sure & (by_level > 0))


def _find_clear_shifts(
    model: Mixture, shifts: FloatArray, positions: IntArray, n_observed: IntArray | None, state: int
) -> BoolArray:
    """Find ordinal variables whose expected value given a state is shifted significantly: shape (n_ordinal,)."""
    clear = np.abs(shifts) > CLEAR_SHIFT
    if n_observed is None:
        return clear
    in_state = np.maximum(n_observed[positions] * model.prior[state], FLOOR)
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
    model: Mixture, levels: list[int], given: FloatArray, overall: FloatArray, most: int
) -> tuple[DescribingLevel, ...]:
    """Describe the first levels of a list, at most one per variable."""
    schema, owners = model.schema, list_owners(model.schema.offsets)
    picked: dict[int, int] = {}
    for level in levels:
        picked.setdefault(int(owners[level]), level)
    return tuple(
        DescribingLevel(
            schema.names[position],
            schema.variables[position].levels[level - int(schema.offsets[position])],
            float(given[level]),
            float(overall[level]),
        )
        for position, level in list(picked.items())[:most]
    )


SHOWN_LEVELS = 4
"""Number of levels listed per state."""
ALIKE = 0.1
"""Largest share of the answers, over all variables, in which states of members of an average differ that are one."""
NAMED_FACTS = {"best": "best of, models", "mean": "mean of, models", "final": "fitted to all rows"}
"""Labels of facts on the origin of a model whose keys are not self-explanatory."""


def summarise_model(model: Mixture, states: SummaryTable) -> Summary:
    """Summarise how a model was fitted, beside the table of its states or items."""
    facts = [
        (
            "variables",
            f"{format_count(model.schema.n_variables)}, of {format_count(model.schema.n_levels)} levels",
        ),
        ("latent states", format_count(model.rank)),
        ("free parameters", format_count(model.n_parameters)),
    ]
    facts += [
        (cut(NAMED_FACTS.get(name, name_setting(str(name)))), cut(_format_fact(value)))
        for name, value in list(model.origin.items())[:12]
        if isinstance(value, str | int | float)
    ]
    n_variables, rank = format_count(model.schema.n_variables), format_count(model.rank)
    headline = f"Joint PMF of {n_variables} variables, {rank} latent states"
    of_stack = READING if model.origin.is_stack else ""
    notes = tuple(filter(None, (of_stack, describe_undetermined(model))))
    return Summary(headline, tuple(facts), notes, (states,))


def _format_fact(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else f"{value:,.6g}"


def tabulate_states(model: Mixture) -> SummaryTable:
    """List the states by size, each with its distinguishing levels and their lifts; alike ones of an average as one.

    Of a stack, its models are listed.
    """
    if model.origin.is_stack:
        return tabulate_ladder([RungFit.from_json(each) for each in model.origin["stack"]])
    prior, factors = model.prior, model.factors
    groups = [[state] for state in range(model.rank)]
    if model.origin.get("average"):
        groups = _group_alike(model)
        prior = np.array([model.prior[group].sum() for group in groups])
        sums = [model.factors[:, group] @ model.prior[group] for group in groups]
        factors = np.column_stack(sums) / prior
    profiles = profile_states(prior, factors, model.schema.offsets, n_shown=SHOWN_LEVELS)
    rows = [
        (
            cut(", ".join(map(str, groups[profiles.states[row]]))),
            percent(float(profiles.sizes[row])),
            _describe_levels(model.schema, profiles, row),
        )
        for row in range(min(len(groups), MOST_ROWS))
    ]
    mark = " (not determined by the data)" if describe_undetermined(model) else ""
    return SummaryTable(
        f"Latent states by size{mark}, with the levels that are likelier there (times as likely as in all)",
        (">state", ">share", "what distinguishes it"),
        rows,
        len(groups),
        "model.prior, model.factor(name)",
    )


def _group_alike(model: Mixture) -> list[list[int]]:
    """Group the states that have samples, each with the largest that it is like."""
    groups: list[list[int]] = []
    for state in np.argsort(-model.prior, kind="stable").tolist():
        heads = model.factors[:, [group[0] for group in groups]]
        gaps = np.abs(heads - model.factors[:, [state]]).sum(axis=0) / 2
        if gaps.size and gaps.min() <= ALIKE * model.schema.n_variables:
            groups[int(gaps.argmin())].append(state)
        elif model.prior[state] > 0 or not groups:
            groups.append([state])
    return groups


def _describe_levels(schema: Schema, profiles: StateProfiles, row: int) -> str:
    """Format the levels of a state, as in "smokes=yes 83 % (2.1 times)"."""
    parts = []
    for column, level in enumerate(profiles.levels[row].tolist()):
        if level < 0:
            break
        position = int(profiles.variables[row, column])
        variable = schema[position]
        label = variable.levels[level - int(schema.offsets[position])]
        share = percent(float(profiles.probabilities[row, column]))
        lift = decimal(float(profiles.lifts[row, column]), 2)
        parts.append(f"{cut(variable.name, 24)}={cut(label, 24)} {share} ({lift} times)")
    return ", ".join(parts) or "nothing: as all are"
