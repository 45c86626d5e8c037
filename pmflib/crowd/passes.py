"""EM passes over label logs, as each method plans them: votes to a crowd model, to posteriors, to a better model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray
from pmflib.core.defaults import LABEL_LIMITS
from pmflib.core.errors import PmfError
from pmflib.core.methods import CROWD_METHODS, ORDINAL_METHODS, find_method
from pmflib.crowd.e_step import LogWeights
from pmflib.em.checkpoint import Checkpoint
from pmflib.model.statistics import EMStatistics, Evaluate
from pmflib.solvers.crowd.annotator_model import (
    MAXIMUM_LIKELIHOOD,
    AnnotatorModel,
    CrowdModel,
    put_workers_last,
    split_subclasses,
)
from pmflib.solvers.crowd.shrinkage import measure_agreement, update_crowd_model

STATE = "state.npz"
"""Checkpoint of the passes, in the folder of work under way."""
WITHOUT_KNOWN = "without-known.npz"
"""Checkpoint of the passes that are made before known labels are used."""
PUBLISHED_PASSES = 10
"""Passes of the published MV-EM: Ibrahim, Fu (2021), ICML, section 5."""
VOTE_WEIGHINGS = 3
"""How often votes are weighed before passes begin: by the shares of the votes first, where a majority of one label
hides how well the others agree. Chosen on the tuned half of benchmarks/crowd/regimes.py."""

FIRST_AGREEMENT = 0.5
"""Agreement of every worker at first, where votes that repeat each other are not to count as many."""


@dataclass(frozen=True)
class CrowdPassPlan:
    """What passes estimate, and when they end.

    Parameters
    ----------
    annotator_model
        How confusion matrices are estimated.
    max_passes, tol
        As for `run_passes`.
    compares_models
        Whether the log decides which model it is, by held-out labels, and who repeats others: see
        `pmflib.crowd.held_out_labels`.
    """

    annotator_model: AnnotatorModel
    max_passes: int
    tol: float
    compares_models: bool = False

    def count_most(self, *, with_known: bool) -> int:
        """Most passes that are made: where labels are known, `run_from_votes` may make as many before."""
        return self.max_passes * (1 + int(with_known and self.annotator_model.votes))


def plan_passes(
    method: str, max_passes: int, tol: float, *, ordinal: bool = False
) -> CrowdPassPlan:
    """Plan the passes of a method; those that follow a method of co-occurrences are Dawid and Skene's.

    Parameters
    ----------
    method
        A name of `pmflib.core.methods.CROWD_METHODS`.
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
    plan: CrowdPassPlan = chosen.load()(max_passes, tol)
    return replace(plan, annotator_model=replace(plan.annotator_model, ordinal=ordinal))


def plan_shrunk(max_passes: int, tol: float) -> CrowdPassPlan:
    """Shrunk confusion matrices, with two subclasses of every class; or a simpler model, where the log says so."""
    return CrowdPassPlan(AnnotatorModel(n_subclasses=2), max_passes, tol, compares_models=True)


def plan_balanced(max_passes: int, tol: float) -> CrowdPassPlan:
    """Shrunk confusion matrices, with equally probable classes."""
    return CrowdPassPlan(AnnotatorModel(balanced=True), max_passes, tol)


def plan_one_coin(max_passes: int, tol: float) -> CrowdPassPlan:
    """One probability of being right for each worker, shrunk."""
    return CrowdPassPlan(AnnotatorModel(one_coin=True), max_passes, tol)


def plan_dawid_skene(max_passes: int, tol: float) -> CrowdPassPlan:
    """Confusion matrices of maximum likelihood."""
    return CrowdPassPlan(MAXIMUM_LIKELIHOOD, max_passes, tol)


def plan_mv_em(max_passes: int, tol: float) -> CrowdPassPlan:
    """Confusion matrices of maximum likelihood with equally probable classes, and the published number of passes.

    Neither limit that is given counts: the passes are part of what the method is.
    """
    free = AnnotatorModel(pseudo_count=0.0, variational=False, balanced=True, votes=False)
    return CrowdPassPlan(free, PUBLISHED_PASSES, 0.0)


@dataclass(frozen=True, eq=False)
class CrowdFit:
    """State of the passes: a crowd model, and how it was found.

    Parameters
    ----------
    model
        The last update.
    label_mass
        float64 of shape (n_workers * n_classes, n_states), from which it was made: each worker's labels of each class,
        by posterior state.
    log_likelihoods
        Before each pass, nats per task; of votes and labels together.
    moved
        Share of the labels' posterior mass that each pass has moved between classes.
    converged
        Whether the last of them was at most the tolerance.
    """

    model: CrowdModel
    label_mass: FloatArray
    log_likelihoods: tuple[float, ...] = ()
    moved: tuple[float, ...] = ()
    converged: bool = False

    @classmethod
    def from_model(cls, model: CrowdModel, *, converged: bool = False) -> CrowdFit:
        """State before the first pass.

        Parameters
        ----------
        model
            Where the passes start.
        converged
            Whether no pass is to follow: the model is the result.
        """
        return cls(model, model.mass.reshape(-1, model.states.size), converged=converged)

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.moved)

    def to_arrays(self) -> Arrays:
        """The state as a checkpoint keeps it; the annotator model is the caller's."""
        return {
            "states": self.model.states,
            "mass": self.model.mass,
            "pseudo_count": np.array(self.model.pseudo_count),
            "vote_weight": np.array(self.model.vote_weight),
            "label_mass": self.label_mass,
            "log_likelihoods": np.array(self.log_likelihoods),
            "moved": np.array(self.moved),
            "converged": np.array(self.converged),
        }

    @classmethod
    def from_arrays(cls, annotator_model: AnnotatorModel, arrays: Arrays) -> CrowdFit:
        """The state that `to_arrays` was called on, to the same bits."""
        model = CrowdModel(
            arrays["states"],
            arrays["mass"],
            float(arrays["pseudo_count"]),
            annotator_model,
            float(arrays["vote_weight"]),
        )
        log_likelihoods, moved = (
            tuple(arrays[name].tolist()) for name in ("log_likelihoods", "moved")
        )
        return cls(model, arrays["label_mass"], log_likelihoods, moved, bool(arrays["converged"]))


def start_from_votes(
    evaluate: Evaluate[LogWeights], n_workers: int, n_classes: int, annotator_model: AnnotatorModel
) -> CrowdFit:
    """Estimate a crowd model from the votes, and stand before the first pass.

    Most models start from the shares of the votes. Those that weigh the votes do so first: workers who agree with the
    others by chance alone, such as those of one label, count for nothing, so that a majority of them leads nowhere.
    Where workers repeat each other, their votes count as one.

    Parameters
    ----------
    evaluate
        Statistics of all tasks; called once, or once more for each time that votes are weighed.
    n_workers, n_classes
        Number of workers and of classes.
    annotator_model
        How confusion matrices are estimated.
    """
    shares = annotator_model.weigh_workers(n_workers)
    if annotator_model.copiers:
        alike = np.full(n_workers, FIRST_AGREEMENT)
        statistics = evaluate(LogWeights.from_agreement(alike, n_classes, shares))
    else:
        statistics = evaluate(LogWeights.from_votes(n_workers, n_classes))
    if annotator_model.weighs_votes and n_classes > 1:
        for _ in range(VOTE_WEIGHINGS):
            agreement = _measure_agreement(statistics.level_mass, n_classes)
            statistics = evaluate(LogWeights.from_agreement(agreement, n_classes, shares))
    mass = statistics.level_mass
    model = update_crowd_model(
        mass, statistics.state_mass, replace(annotator_model, n_subclasses=1)
    )
    if annotator_model.n_subclasses == 1:
        return CrowdFit(model, mass)
    return CrowdFit.from_model(split_subclasses(model))


def _measure_agreement(label_mass: FloatArray, n_classes: int) -> FloatArray:
    """Agreement of each worker with the classes of the tasks, (n_workers,)."""
    return measure_agreement(put_workers_last(label_mass.reshape(-1, n_classes, n_classes)))


def run_from_votes(
    evaluate: Evaluate[LogWeights],
    n_workers: int,
    n_classes: int,
    annotator_model: AnnotatorModel,
    *,
    with_known: bool,
    max_passes: int = LABEL_LIMITS.max_passes,
    tol: float = LABEL_LIMITS.tol,
    open_checkpoint: Callable[[str], Checkpoint[CrowdFit]] | None = None,
    on_pass: Callable[[CrowdFit], None] | None = None,
) -> CrowdFit:
    """Estimate a crowd model by passes that start from the votes, and use known labels where there are some.

    Models that weigh votes ignore the known labels until the passes converge, then run again with them. They are near
    the truth by then, and known labels correct them; with known labels from the first pass on, a few of them would
    decide what a second subclass of the tasks stands for.

    Parameters
    ----------
    evaluate, n_workers, n_classes, annotator_model
        As for `start_from_votes`.
    with_known
        Whether labels of some tasks are known.
    max_passes, tol, on_pass
        As for `run_passes`; the limit holds for the passes without and those with known labels separately, and the
        result counts both.
    open_checkpoint
        Opens the checkpoint of a run of passes by its file name, ``WITHOUT_KNOWN`` or ``STATE``; None keeps none.
    """

    def run(
        name: str,
        evaluate: Evaluate[LogWeights],
        start: Callable[[], CrowdFit],
        max_passes: int,
    ) -> CrowdFit:
        checkpoint = None if open_checkpoint is None else open_checkpoint(name)
        return run_passes(
            evaluate, start, max_passes=max_passes, tol=tol, checkpoint=checkpoint, on_pass=on_pass
        )

    model = n_workers, n_classes, annotator_model
    if not (with_known and annotator_model.votes):
        return run(STATE, evaluate, partial(start_from_votes, evaluate, *model), max_passes)
    unknown = ignore_known(evaluate)
    found = run(WITHOUT_KNOWN, unknown, partial(start_from_votes, unknown, *model), max_passes)
    start = partial(replace, found, converged=False)
    return run(STATE, evaluate, start, max_passes + found.n_passes)


def ignore_known(evaluate: Evaluate[LogWeights]) -> Evaluate[LogWeights]:
    """Evaluate tasks whose label is known as all others."""
    return lambda weights: evaluate(replace(weights, with_known=False))


def run_passes(
    evaluate: Evaluate[LogWeights],
    start: CrowdFit | Callable[[], CrowdFit],
    *,
    max_passes: int = LABEL_LIMITS.max_passes,
    tol: float = LABEL_LIMITS.tol,
    checkpoint: Checkpoint[CrowdFit] | None = None,
    on_pass: Callable[[CrowdFit], None] | None = None,
) -> CrowdFit:
    """Estimate a crowd model by passes over the tasks.

    Parameters
    ----------
    evaluate
        Statistics of all tasks.
    start
        As from `start_from_votes` or `CrowdFit.from_model`, or a function that makes it; or passes that were made
        already, to continue from to the same bits.
    max_passes
        Limit of passes, at least 1, counting those already made.
    tol
        Stop when a pass moves at most this share of the labels between classes, at least 0; what it moves between
        subclasses of a class does not count.
    checkpoint
        Where the state is saved after each pass, and loaded from instead of the start.
    on_pass
        Called with the state after each pass, once it is saved.

    Returns
    -------
    The state at the end.

    Raises
    ------
    PmfError
        If max_passes is below 1 or tol negative, or the checkpoint is of another fit.

    References
    ----------
    Dempster, Laird, Rubin (1977), Journal of the Royal Statistical Society B 39.
    """
    if max_passes < 1 or not tol >= 0:
        raise PmfError(f"max_passes is {max_passes}, tol {tol}; give at least 1 and at least 0")
    fit = None if checkpoint is None else checkpoint.load()
    if fit is None:
        fit = start() if callable(start) else start
    while fit.n_passes < max_passes and not fit.converged:
        statistics = evaluate(LogWeights.from_model(fit.model, with_votes=True))
        fit = _update(fit, statistics, tol)
        if checkpoint is not None:
            checkpoint.save(fit)
        if on_pass is not None:
            on_pass(fit)
    return fit


def _update(fit: CrowdFit, statistics: EMStatistics, tol: float) -> CrowdFit:
    """M-step: the crowd model from the statistics computed under the one before, and how much the pass has moved."""
    mass, before = statistics.level_mass, fit.model
    moved = _measure_moved(fit.label_mass, mass, before.n_classes)
    model = update_crowd_model(
        mass, statistics.state_mass, before.annotator_model, before.pseudo_count
    )
    log_likelihood = statistics.log_likelihood / max(statistics.n_rows, 1)
    return CrowdFit(
        model,
        mass,
        (*fit.log_likelihoods, log_likelihood),
        (*fit.moved, moved),
        converged=moved <= tol,
    )


def _measure_moved(before: FloatArray, after: FloatArray, n_classes: int) -> float:
    """Share of the labels' posterior mass that has changed its class."""
    n_subclasses = after.shape[1] // n_classes
    change = (after - before).reshape(-1, n_subclasses, n_classes).sum(axis=1)
    return float(np.abs(change).sum() / 2 / max(after.sum(), 1.0))
