"""The numbers that answer a question: a function of a model, so that every model can be asked the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.questions.binding import BoundQuestion
from pmflib.questions.conditions import Conditions, condition, find_impossible
from pmflib.questions.information import (
    conditional_distance,
    entropy,
    mutual_information,
    total_variation,
)
from pmflib.questions.levels_in_order import find_chance, find_odds, order_levels


def measure(
    model: JointPMF, bound: BoundQuestion, combinations: IntArray | None = None
) -> FloatArray:
    """Compute the numbers of an answer.

    Parameters
    ----------
    model
        A model of the schema of the question.
    bound
        The question.
    combinations
        For argmax: codes of shape (n_found, n_targets), whose probabilities are wanted.

    Returns
    -------
    float64 of shape (n_by, n_each): a row for each combination of the levels of ``bound.by``, in order of codes, or
    one. For "P" the probabilities of all combinations of the targets without a level, for quantiles the cumulative
    probabilities of the levels in order, else one number. NaN where a combination of ``by`` is impossible.

    Raises
    ------
    PmfError
        If conditions have probability 0.
    MemoryPlanError
        If there are too many combinations.
    """
    sides = [condition(model, given)[0] for given in bound.given]
    name = bound.question.measure
    if name == "argmax":
        assert combinations is not None
        return sides[0].weigh_combinations(bound.groups[0], combinations)[None, :]
    if name == "TV" and len(bound.groups) == 1:
        return np.array([[_find_distance(model, bound)]])
    return _MEASURES[name](sides, bound)


def _tabulate(
    model: JointPMF, by: Sequence[int], targets: Sequence[int], event: Conditions
) -> FloatArray:
    """P(targets, event | by), shape (n_by, n_targets)."""
    n_by = int(np.prod([model.schema.cardinalities[place] for place in by], dtype=np.int64))
    if event and find_impossible(model, event):
        n_each = int(
            np.prod([model.schema.cardinalities[place] for place in targets], dtype=np.int64)
        )
        return np.zeros((n_by, n_each))
    fixed, log_chance = condition(model, event)
    places = [*by, *targets]
    joint = fixed.marginal(places).reshape(n_by, -1) if places else np.ones((1, 1))
    joint = joint * np.exp(log_chance)
    if by:
        known = model.marginal(by).reshape(-1, 1)
        joint = np.where(known > FLOOR, joint / np.maximum(known, FLOOR), np.nan)
    return joint


def _find_chances(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    return _tabulate(sides[0], bound.by, bound.groups[0], bound.events[0])


def _find_means(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    values = bound.schema[bound.groups[0][0]].numeric_values()
    return (_find_chances(sides, bound) @ values)[:, None]


def _cumulate(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    order = order_levels(bound.schema[bound.groups[0][0]])
    cumulated: FloatArray = np.cumsum(_find_chances(sides, bound)[:, order], axis=1)
    return cumulated


def _find_entropy(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    return np.array([[entropy(sides[0], bound.groups[0], by=bound.by)]])


def _find_information(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    first, second = bound.groups
    return np.array([[mutual_information(sides[0], first, second, by=bound.by)]])


def _find_variation(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    first, second = bound.groups
    return np.array([[total_variation(sides[0], first, second, by=bound.by)]])


def _find_distance(model: JointPMF, bound: BoundQuestion) -> float:
    return conditional_distance(model, bound.groups[0], *bound.given)


def _find_all_odds(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
    return find_odds(_find_chances(sides, bound))


def _find_odds_ratio(sides: Sequence[JointPMF], bound: BoundQuestion) -> FloatArray:
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


_MEASURES: Mapping[str, Callable[[Sequence[JointPMF], BoundQuestion], FloatArray]] = {
    "P": _find_chances,
    "E": _find_means,
    "median": _cumulate,
    "quantile": _cumulate,
    "H": _find_entropy,
    "MI": _find_information,
    "TV": _find_variation,
    "odds": _find_all_odds,
    "OR": _find_odds_ratio,
}
