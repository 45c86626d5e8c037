"""Variables whose levels are in order: expected values, quantiles and odds of what they are."""

from __future__ import annotations

import math

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError, SchemaError
from pmflib.model import JointPMF
from pmflib.questions.conditions import Given, condition, encode_conditions, find_impossible
from pmflib.schema import Variable


def expected(model: JointPMF, variable: str | int, given: Given | None = None) -> float:
    """Compute the expected value of an ordinal variable.

    Parameters
    ----------
    model
        The model.
    variable
        Name or place.
    given
        Levels that others have: labels, codes, or collections of these.

    Returns
    -------
    In the units of the variable's values.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or the variable has no values.
    PmfError
        If the conditions have probability 0.
    """
    values = model.schema[variable].numeric_values()
    return float(model.marginal([variable], given) @ values)


def quantile(model: JointPMF, variable: str | int, share: float, given: Given | None = None) -> str:
    """Find a quantile of a variable whose levels are in order.

    Parameters
    ----------
    model
        The model.
    variable
        Name or place of an ordinal variable, or of one with bins.
    share
        In (0, 1); 0.5 is the median.
    given
        As for `expected`.

    Returns
    -------
    The lowest level up to which the variable has at least that share of probability.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or the levels have no order.
    PmfError
        If the share is outside (0, 1), or the conditions have probability 0.
    """
    if not 0 < share < 1:
        raise PmfError(f"share is {share}; give a number between 0 and 1, 0.5 for the median")
    place = model.schema.position(variable)
    order = order_levels(model.schema[place])
    cumulated = np.cumsum(model.marginal([place], given)[order])
    code = int(order[find_quantile(cumulated, share)])
    return model.schema[place].levels[code]


def odds(model: JointPMF, event: Given, given: Given | None = None) -> float:
    """Compute the odds of an event, P / (1 - P).

    Parameters
    ----------
    model
        The model.
    event
        Levels that variables have, all together: labels, codes, or collections of these.
    given
        As for `expected`.

    Returns
    -------
    At least 0; infinite where the event is certain.

    Raises
    ------
    SchemaError
        If a variable or level is unknown.
    PmfError
        If the conditions have probability 0.
    """
    fixed = condition(model, encode_conditions(model.schema, given))[0]
    return float(find_odds(np.array(find_chance(fixed, encode_conditions(model.schema, event)))))


def odds_ratio(
    model: JointPMF, event: Given, given: Given | None, against: Given | None = None
) -> float:
    """Compute the ratio of the odds of an event under two sets of conditions.

    Parameters
    ----------
    model, event
        As for `odds`.
    given, against
        The two sets of conditions; None is no condition.

    Returns
    -------
    At least 0; 1 where both give the event the same probability, NaN where both odds are 0 or infinite.

    Raises
    ------
    SchemaError, PmfError
        As `odds` does.
    """
    first, second = (np.float64(odds(model, event, each)) for each in (given, against))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(first / second)


def find_chance(model: JointPMF, event: dict[int, tuple[int, ...]]) -> float:
    """Probability of an event given as codes by place; 0 where it is impossible."""
    if not event:
        return 1.0
    return 0.0 if find_impossible(model, event) else math.exp(condition(model, event)[1])


def find_odds(chances: FloatArray) -> FloatArray:
    """Odds of probabilities; infinite for 1."""
    with np.errstate(divide="ignore"):
        found: FloatArray = chances / np.maximum(1 - chances, 0.0)
    return found


def find_quantile(cumulated: FloatArray, share: float) -> int:
    """Place of the first cumulative probability that reaches a share; what rounding lacks is not missed."""
    return min(int(np.searchsorted(cumulated, share - 1e-12)), cumulated.size - 1)


def order_levels(variable: Variable) -> IntArray:
    """Codes of a variable in the order of its levels.

    Raises
    ------
    SchemaError
        If they have none.
    """
    if variable.role == "nominal":
        raise SchemaError(
            f"levels of variable {variable.name!r} have no order, so it has no quantile; give it a number per level "
            "in the schema"
        )
    if variable.values is None:
        return np.arange(variable.cardinality)
    return np.argsort(variable.numeric_values(), kind="stable")
