"""Joint PMFs as tables, and information measures, expected values, quantiles and odds of any joint PMF."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pmflib.answering.question import BoundQuestion
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.constraints import Interval, check
from pmflib.base.errors import SchemaError
from pmflib.model.conditions import Conditions, Given, encode_conditions
from pmflib.model.mixture import Mixture
from pmflib.schema import Schema, Variable


@dataclass(frozen=True, eq=False)
class TablePMF:
    """A joint PMF of some variables as a table, with the query methods of a mixture.

    Parameters
    ----------
    schema
        Schema whose variables these are.
    positions
        Index of the variable of each axis.
    table
        float64 with one axis per variable, as long as its cardinality; sums to 1.
    """

    schema: Schema
    positions: tuple[int, ...]
    table: FloatArray

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Return the joint PMF of some of the variables: see `pmflib.model.mixture.Mixture.marginal`."""
        fixed = self.condition(given)
        asked = [self.schema.position(variable) for variable in variables]
        axes = [self.positions.index(position) for position in asked]
        others = tuple(n for n in range(len(self.positions)) if n not in axes)
        summed = fixed.table.sum(axis=others)
        # the remaining axes keep their order
        order = np.argsort(np.argsort(axes))
        return np.transpose(summed, order) if summed.ndim > 1 else summed

    def condition(self, given: Given | None) -> TablePMF:
        """Return the table conditioned on some levels."""
        return self.condition_codes(encode_conditions(self.schema, given))[0]

    def condition_codes(self, conditions: Conditions) -> tuple[TablePMF, float]:
        """Return the table conditioned on some codes, and the log-probability of the conditions."""
        if not conditions:
            return self, 0.0
        kept = self._keep(conditions)
        chance = float(kept.sum())
        return TablePMF(self.schema, self.positions, kept / max(chance, FLOOR)), float(
            np.log(max(chance, FLOOR))
        )

    def find_impossible(self, conditions: Conditions) -> tuple[int, ...]:
        """Return all conditioned positions if the joint probability is 0, else none."""
        return () if self._keep(conditions).sum() > 0 else tuple(conditions)

    def weigh_combinations(self, positions: Sequence[int], combinations: IntArray) -> FloatArray:
        """Return the probabilities of combinations of codes of shape (n_combinations, n_positions)."""
        found: FloatArray = self.marginal(positions)[tuple(combinations.T)]
        return found

    def _keep(self, conditions: Conditions) -> FloatArray:
        kept = self.table
        for position, codes in conditions.items():
            axis = self.positions.index(position)
            mask = np.zeros(self.table.shape[axis])
            mask[list(codes)] = 1.0
            kept = kept * mask.reshape([-1 if n == axis else 1 for n in range(kept.ndim)])
        return kept


PMF: TypeAlias = Mixture | TablePMF
"""Distribution of which measures are computed."""


def entropy(
    model: PMF,
    variables: Sequence[str | int],
    given: Given | None = None,
    *,
    by: Sequence[str | int] = (),
) -> float:
    """Compute the entropy of some variables.

    Parameters
    ----------
    model
        The model.
    variables
        Names or positions, at least one.
    given
        Levels of other variables: labels, codes, or collections of these.
    by
        Conditioning variables: the result is the conditional entropy H(variables | by), averaged over their levels.

    Returns
    -------
    Entropy in nats, >= 0 and at most the logarithm of the number of combinations.

    Raises
    ------
    SchemaError
        If a variable or level is unknown.
    PmfError
        If the conditions have probability 0.
    MemoryPlanError
        If the variables have too many combinations.
    """
    fixed = model.condition(given)
    known = _sum_logs(fixed, by) if by else 0.0
    return max(_sum_logs(fixed, [*by, *variables]) - known, 0.0)


def mutual_information(
    model: PMF,
    first: Sequence[str | int],
    second: Sequence[str | int],
    given: Given | None = None,
    *,
    by: Sequence[str | int] = (),
) -> float:
    """Compute the mutual information of two groups of variables.

    Parameters
    ----------
    model
        The model.
    first, second
        Names or positions, at least one each.
    given, by
        As for `entropy`; with ``by``, the result is the conditional mutual information I(first; second | by).

    Returns
    -------
    Mutual information in nats, >= 0; 0 if the groups are independent.

    Raises
    ------
    SchemaError, PmfError, MemoryPlanError
        As `entropy` does.

    References
    ----------
    Cover and Thomas (2006), Elements of Information Theory, equations (2.45) and (2.60).
    """
    fixed = model.condition(given)
    known = _sum_logs(fixed, by) if by else 0.0
    apart = _sum_logs(fixed, [*by, *first]) + _sum_logs(fixed, [*by, *second])
    return max(apart - _sum_logs(fixed, [*by, *first, *second]) - known, 0.0)


def total_variation(
    model: PMF,
    first: Sequence[str | int],
    second: Sequence[str | int],
    given: Given | None = None,
    *,
    by: Sequence[str | int] = (),
) -> float:
    """Compute the total variation between the joint PMF of two groups of variables and the product of their marginals.

    Parameters
    ----------
    model, first, second, given, by
        As for `mutual_information`; with ``by``, the result is the mean over its levels.

    Returns
    -------
    Total variation in [0, 1): the largest difference between the probabilities of an event under the two PMFs; 0 if the
    groups are independent.

    Raises
    ------
    SchemaError, PmfError, MemoryPlanError
        As `entropy` does.
    """
    fixed = model.condition(given)
    joint = fixed.marginal([*by, *first, *second])
    sizes = [
        int(np.prod(joint.shape[: len(by)])),
        int(np.prod(joint.shape[len(by) :][: len(first)])),
    ]
    blocks = joint.reshape(*sizes, -1)
    known = blocks.sum(axis=(1, 2), keepdims=True)
    apart = blocks.sum(axis=2, keepdims=True) * blocks.sum(axis=1, keepdims=True)
    return float(np.abs(blocks - apart / np.maximum(known, FLOOR)).sum() / 2)


def conditional_distance(
    model: PMF,
    variables: Sequence[str | int],
    given: Given | None,
    against: Given | None = None,
) -> float:
    """Compute the total variation between the PMFs of some variables under two sets of conditions.

    Parameters
    ----------
    model
        The model.
    variables
        Names or positions, at least one.
    given, against
        The two sets of conditions, as for `entropy`; None means no condition.

    Returns
    -------
    Total variation in [0, 1]: half the sum of the absolute differences of the probabilities.

    Raises
    ------
    SchemaError, PmfError, MemoryPlanError
        As `entropy` does.
    """
    first, second = (model.condition(each).marginal(variables) for each in (given, against))
    return float(np.abs(first - second).sum() / 2)


def _sum_logs(model: PMF, variables: Sequence[str | int]) -> float:
    pmf: FloatArray = model.marginal(variables).ravel()
    positive = pmf[pmf > 0]
    return -float(positive @ np.log(positive))


def expected(model: PMF, variable: str | int, given: Given | None = None) -> float:
    """Compute the expected value of an ordinal variable.

    Parameters
    ----------
    model
        The model.
    variable
        Name or position.
    given
        Levels of other variables: labels, codes, or collections of these.

    Returns
    -------
    Expected value, in the units of the variable's values.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or the variable has no values.
    PmfError
        If the conditions have probability 0.
    """
    values = model.schema[variable].numeric_values()
    return float(model.marginal([variable], given) @ values)


def quantile(model: PMF, variable: str | int, share: float, given: Given | None = None) -> str:
    """Find a quantile of a variable with ordered levels.

    Parameters
    ----------
    model
        The model.
    variable
        Name or position of an ordinal variable, or of one with bins.
    share
        Cumulative probability of the quantile, in (0, 1); 0.5 gives the median.
    given
        As for `expected`.

    Returns
    -------
    Label of the lowest level at which the cumulative probability is at least ``share``.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or the levels have no order.
    PmfError
        If the share is outside (0, 1), or the conditions have probability 0.
    """
    check(Interval(0, 1, "neither", "0.5 for the median"), share=share)
    position = model.schema.position(variable)
    order = sort_levels(model.schema[position])
    cumulated = np.cumsum(model.marginal([position], given)[order])
    code = int(order[find_quantile(cumulated, share)])
    return model.schema[position].levels[code]


def odds(model: PMF, event: Given, given: Given | None = None) -> float:
    """Compute the odds of an event, P / (1 - P).

    Parameters
    ----------
    model
        The model.
    event
        Levels of all variables of the event: labels, codes, or collections of these.
    given
        As for `expected`.

    Returns
    -------
    Odds, at least 0; infinite if the event is certain.

    Raises
    ------
    SchemaError
        If a variable or level is unknown.
    PmfError
        If the conditions have probability 0.
    """
    fixed = model.condition(given)
    return float(find_odds(np.array(find_chance(fixed, encode_conditions(model.schema, event)))))


def odds_ratio(
    model: PMF, event: Given, given: Given | None, against: Given | None = None
) -> float:
    """Compute the ratio of the odds of an event under two sets of conditions.

    Parameters
    ----------
    model, event
        As for `odds`.
    given, against
        The two sets of conditions; None means no condition.

    Returns
    -------
    Odds ratio, at least 0; 1 if the event has the same probability under both, NaN if both odds are 0 or infinite.

    Raises
    ------
    SchemaError, PmfError
        As `odds` does.
    """
    first, second = (np.float64(odds(model, event, each)) for each in (given, against))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(first / second)


def find_chance(model: PMF, event: dict[int, tuple[int, ...]]) -> float:
    """Return the probability of an event given as codes by position; 0 if it is impossible."""
    if not event:
        return 1.0
    return 0.0 if model.find_impossible(event) else math.exp(model.condition_codes(event)[1])


def find_odds(chances: FloatArray) -> FloatArray:
    """Convert probabilities to odds; 1 gives infinity."""
    with np.errstate(divide="ignore"):
        found: FloatArray = chances / np.maximum(1 - chances, 0.0)
    return found


def find_quantile(cumulated: FloatArray, share: float) -> int:
    """Return the index of the first cumulative probability that reaches a share, up to rounding errors."""
    return min(int(np.searchsorted(cumulated, share - 1e-12)), cumulated.size - 1)


def sort_levels(variable: Variable) -> IntArray:
    """Return the codes of a variable in the order of its levels.

    Raises
    ------
    SchemaError
        If the levels have no order.
    """
    if variable.role == "nominal":
        raise SchemaError(
            f"levels of variable {variable.name!r} have no order, so it has no quantile; give it a number per level "
            "in the schema"
        )
    if variable.values is None:
        return np.arange(variable.cardinality)
    return np.argsort(variable.numeric_values(), kind="stable")


def measure_answers(
    sides: Sequence[PMF], bound: BoundQuestion, combinations: IntArray | None = None
) -> FloatArray:
    """Compute the numbers of an answer.

    Parameters
    ----------
    sides
        Joint PMFs given each set of conditions of the question, with the question's schema.
    bound
        The question.
    combinations
        For argmax: codes of shape (n_found, n_targets), whose probabilities are computed.

    Returns
    -------
    float64 of shape (n_by, n_each): one row for each combination of the levels of ``bound.by``, in order of codes, or a
    single row. Columns are, for "P", the probabilities of all combinations of the targets without a level; for
    quantiles, the cumulative probabilities of the ordered levels; otherwise one number. NaN if a combination of ``by``
    is impossible.

    Raises
    ------
    MemoryPlanError
        If there are too many combinations.
    """
    name, groups, by = bound.question.measure, bound.groups, bound.by
    if name == "argmax":
        assert combinations is not None
        return sides[0].weigh_combinations(groups[0], combinations)[None, :]
    if name == "H":
        return np.array([[entropy(sides[0], groups[0], by=by)]])
    if name == "MI":
        return np.array([[mutual_information(sides[0], groups[0], groups[1], by=by)]])
    if name == "TV" and len(groups) == 2:
        return np.array([[total_variation(sides[0], groups[0], groups[1], by=by)]])
    if name == "TV":
        first, second = (side.marginal(groups[0]) for side in sides)
        return np.array([[np.abs(first - second).sum() / 2]])
    if name == "OR":
        return _find_odds_ratio(sides, bound)
    chances = find_chances(sides[0], bound)
    if name == "odds":
        return find_odds(chances)
    if name == "E":
        return (chances @ bound.schema[groups[0][0]].numeric_values())[:, None]
    if name in ("median", "quantile"):
        order = sort_levels(bound.schema[groups[0][0]])
        return np.asarray(np.cumsum(chances[:, order], axis=1))
    return chances


def _tabulate(
    side: PMF, by: Sequence[int], targets: Sequence[int], event: Conditions
) -> FloatArray:
    """Compute P(targets, event | by), shape (n_by, n_targets)."""
    cardinalities = side.schema.cardinalities
    n_by = math.prod(int(cardinalities[position]) for position in by)
    if event and side.find_impossible(event):
        return np.zeros((n_by, math.prod(int(cardinalities[position]) for position in targets)))
    fixed, log_chance = side.condition_codes(event)
    positions = [*by, *targets]
    joint = fixed.marginal(positions).reshape(n_by, -1) if positions else np.ones((1, 1))
    joint = joint * np.exp(log_chance)
    if by:
        known = side.marginal(by).reshape(-1, 1)
        joint = np.where(known > FLOOR, joint / np.maximum(known, FLOOR), np.nan)
    return joint


def find_chances(side: PMF, bound: BoundQuestion) -> FloatArray:
    """Compute the probabilities for a question, by combination of levels: float64 of shape (n_by, n_targets)."""
    return _tabulate(side, bound.by, bound.groups[0], bound.events[0])


def _find_odds_ratio(sides: Sequence[PMF], bound: BoundQuestion) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        if len(sides) == 2:
            first, second = (_tabulate(side, (), (), bound.events[0]) for side in sides)
            return np.asarray(find_odds(first) / find_odds(second))
        one, other = (dict(event) for event in bound.events)
        p, q = find_chance(sides[0], one), find_chance(sides[0], other)
        both = find_chance(sides[0], one | other)
        neither = max(1 - p - q + both, 0.0)
        ratio = np.float64(both * neither) / (max(p - both, 0.0) * max(q - both, 0.0))
        return np.array([[ratio]])
