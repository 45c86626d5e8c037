"""Methods that pass over the tasks from the votes on: what each one estimates, and when its passes end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pmflib.errors import PmfError
from pmflib.methods import CROWD_METHODS, ORDINAL_METHODS, find_method
from pmflib.solvers.crowd.annotator_model import MAXIMUM_LIKELIHOOD, AnnotatorModel

PUBLISHED_PASSES = 10
"""Passes of the published MV-EM: Ibrahim, Fu (2021), ICML, section 5."""


@dataclass(frozen=True)
class PassPlan:
    """What passes estimate, and when they end.

    Parameters
    ----------
    annotator_model
        How confusion matrices are estimated.
    max_passes, tol
        As for `run_passes`.
    """

    annotator_model: AnnotatorModel
    max_passes: int
    tol: float

    def count_most(self, *, with_known: bool) -> int:
        """Most passes that are made: where labels are known, `begin_without_known` may make as many before."""
        return self.max_passes * (1 + int(with_known and self.annotator_model.votes))


def plan_passes(method: str, max_passes: int, tol: float, *, ordinal: bool = False) -> PassPlan:
    """Plan the passes of a method; those that follow a method of co-occurrences are Dawid and Skene's.

    Parameters
    ----------
    method
        A name of `pmflib.methods.CROWD_METHODS`.
    max_passes, tol
        Limits that were given.
    ordinal
        Whether classes are in order; only of methods with a prior for mistakes.

    Raises
    ------
    PmfError
        If the classes are in order, and the method has no use for that.
    """
    chosen = find_method(CROWD_METHODS, method)
    if ordinal and method not in ORDINAL_METHODS:
        raise PmfError(
            f"ordinal is true, and method {method!r} has no use for the order of classes; give one of {ORDINAL_METHODS}"
        )
    if chosen.family != "passes":
        return plan_dawid_skene(max_passes, tol)
    plan: PassPlan = chosen.load()(max_passes, tol)
    return replace(plan, annotator_model=replace(plan.annotator_model, ordinal=ordinal))


def plan_shrunk(max_passes: int, tol: float) -> PassPlan:
    """Shrunk confusion matrices, with two subclasses of every class."""
    return PassPlan(AnnotatorModel(n_subclasses=2), max_passes, tol)


def plan_balanced(max_passes: int, tol: float) -> PassPlan:
    """Shrunk confusion matrices, with equally probable classes."""
    return PassPlan(AnnotatorModel(balanced=True), max_passes, tol)


def plan_one_coin(max_passes: int, tol: float) -> PassPlan:
    """One probability of being right for each worker, shrunk."""
    return PassPlan(AnnotatorModel(one_coin=True), max_passes, tol)


def plan_dawid_skene(max_passes: int, tol: float) -> PassPlan:
    """Confusion matrices of maximum likelihood."""
    return PassPlan(MAXIMUM_LIKELIHOOD, max_passes, tol)


def plan_mv_em(max_passes: int, tol: float) -> PassPlan:
    """Confusion matrices of maximum likelihood with equally probable classes, and the published number of passes.

    Neither limit that is given counts: the passes are part of what the method is.
    """
    free = AnnotatorModel(pseudo_count=0.0, variational=False, balanced=True, votes=False)
    return PassPlan(free, PUBLISHED_PASSES, 0.0)
