"""Entropy, mutual information and total variation under a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.questions.conditions import Given, condition, encode_conditions


def entropy(
    model: JointPMF,
    variables: Sequence[str | int],
    given: Given | None = None,
    *,
    by: Sequence[str | int] = (),
) -> float:
    """Entropy of some variables.

    Parameters
    ----------
    model
        The model.
    variables
        Names or places, at least one.
    given
        Levels that others have: labels, codes, or collections of these.
    by
        Variables that are known, whatever their level: the mean of the entropies given each, H(variables | by).

    Returns
    -------
    Nats, >= 0; at most the logarithm of the number of combinations.

    Raises
    ------
    SchemaError
        If a variable or level is unknown.
    PmfError
        If the conditions have probability 0.
    MemoryPlanError
        If the variables have too many combinations.
    """
    fixed = _fix(model, given)
    known = _sum_logs(fixed, by) if by else 0.0
    return max(_sum_logs(fixed, [*by, *variables]) - known, 0.0)


def mutual_information(
    model: JointPMF,
    first: Sequence[str | int],
    second: Sequence[str | int],
    given: Given | None = None,
    *,
    by: Sequence[str | int] = (),
) -> float:
    """Mutual information of two groups of variables: what one says about the other.

    Parameters
    ----------
    model
        The model.
    first, second
        Names or places, at least one each.
    given, by
        As for `entropy`; with ``by`` it is the conditional mutual information I(first; second | by).

    Returns
    -------
    Nats, >= 0; 0 where the two are independent.

    Raises
    ------
    SchemaError, PmfError, MemoryPlanError
        As `entropy` does.

    References
    ----------
    Cover and Thomas (2006), Elements of Information Theory, equations (2.45) and (2.60).
    """
    fixed = _fix(model, given)
    known = _sum_logs(fixed, by) if by else 0.0
    apart = _sum_logs(fixed, [*by, *first]) + _sum_logs(fixed, [*by, *second])
    return max(apart - _sum_logs(fixed, [*by, *first, *second]) - known, 0.0)


def total_variation(
    model: JointPMF,
    first: Sequence[str | int],
    second: Sequence[str | int],
    given: Given | None = None,
    *,
    by: Sequence[str | int] = (),
) -> float:
    """Total variation between the joint PMF of two groups of variables and the product of theirs.

    Parameters
    ----------
    model, first, second, given, by
        As for `mutual_information`; with ``by`` it is the mean over its levels.

    Returns
    -------
    In [0, 1): the largest difference of the probabilities that the two give to an event; 0 where the groups are
    independent.

    Raises
    ------
    SchemaError, PmfError, MemoryPlanError
        As `entropy` does.
    """
    fixed = _fix(model, given)
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
    model: JointPMF,
    variables: Sequence[str | int],
    given: Given | None,
    against: Given | None = None,
) -> float:
    """Total variation between the PMFs of some variables under two sets of conditions.

    Parameters
    ----------
    model
        The model.
    variables
        Names or places, at least one.
    given, against
        The two sets of conditions, as for `entropy`; None is no condition.

    Returns
    -------
    In [0, 1]: half the summed absolute difference of the probabilities.

    Raises
    ------
    SchemaError, PmfError, MemoryPlanError
        As `entropy` does.
    """
    first, second = (_fix(model, each).marginal(variables) for each in (given, against))
    return float(np.abs(first - second).sum() / 2)


def _fix(model: JointPMF, given: Given | None) -> JointPMF:
    return condition(model, encode_conditions(model.schema, given))[0]


def _sum_logs(model: JointPMF, variables: Sequence[str | int]) -> float:
    pmf: FloatArray = model.marginal(variables).ravel()
    positive = pmf[pmf > 0]
    return -float(positive @ np.log(positive))
