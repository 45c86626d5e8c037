"""EM passes over label logs: from votes to a crowd model, to posteriors of the tasks, to a better model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.crowd.e_step import LogWeights
from pmflib.em.driver import run_em
from pmflib.em.samples import Evaluate
from pmflib.em.statistics import EMStatistics
from pmflib.errors import PmfError
from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel, split_subclasses
from pmflib.solvers.crowd.shrinkage import update_crowd_model

MAX_PASSES = 200
"""Limit of passes, where none is given."""
TOLERANCE = 1e-4
"""Share of the labels that a pass may still move between classes, where none is given: on drawn logs labels are no
better for making more passes."""


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
    def parameters(self) -> LogWeights:
        """Weights that the next E-step scores the tasks under."""
        return LogWeights.from_model(self.model, with_votes=True)

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.moved)


def start_from_votes(
    evaluate: Evaluate[LogWeights], n_workers: int, n_classes: int, annotator_model: AnnotatorModel
) -> CrowdFit:
    """Estimate a crowd model from the shares of the votes, and stand before the first pass.

    Parameters
    ----------
    evaluate
        Statistics of all tasks; called once.
    n_workers, n_classes
        Number of workers and of classes.
    annotator_model
        How confusion matrices are estimated.
    """
    statistics = evaluate(LogWeights.from_votes(n_workers, n_classes))
    mass = statistics.level_mass
    model = update_crowd_model(
        mass, statistics.state_mass, replace(annotator_model, n_subclasses=1)
    )
    if annotator_model.n_subclasses == 1:
        return CrowdFit(model, mass)
    return CrowdFit.from_model(split_subclasses(model))


def begin_without_known(
    evaluate: Evaluate[LogWeights],
    start: CrowdFit,
    *,
    max_passes: int = MAX_PASSES,
    tol: float = TOLERANCE,
    on_pass: Callable[[CrowdFit], None] | None = None,
) -> CrowdFit:
    """Make passes in which no label is known: where they settle, those with known labels begin.

    Methods that the votes lead are near the truth already, and known labels correct them from there; with known labels
    from the first pass on, what a second subclass of tasks is for would be decided by one in twenty of them.

    Parameters
    ----------
    evaluate, max_passes, tol, on_pass
        As for `run_passes`.
    start
        As from `start_from_votes` under `ignore_known`, or passes made before.
    """
    return run_passes(
        ignore_known(evaluate), start, max_passes=max_passes, tol=tol, on_pass=on_pass
    )


def ignore_known(evaluate: Evaluate[LogWeights]) -> Evaluate[LogWeights]:
    """Evaluate tasks whose label is known as all others."""
    return lambda weights: evaluate(replace(weights, with_known=False))


def run_passes(
    evaluate: Evaluate[LogWeights],
    start: CrowdFit,
    *,
    max_passes: int = MAX_PASSES,
    tol: float = TOLERANCE,
    on_pass: Callable[[CrowdFit], None] | None = None,
) -> CrowdFit:
    """Estimate a crowd model by passes over the tasks.

    Parameters
    ----------
    evaluate
        Statistics of all tasks.
    start
        As from `start_from_votes` or `CrowdFit.from_model`; or passes that were made already, to continue from to the
        same bits.
    max_passes
        Limit of passes, at least 1, counting those already made.
    tol
        Stop when a pass moves at most this share of the labels between classes, at least 0; what it moves between
        subclasses of a class does not count.
    on_pass
        Called after each pass: checkpoints, progress.

    Returns
    -------
    The state at the end.

    Raises
    ------
    PmfError
        If max_passes is below 1 or tol negative.
    """
    if max_passes < 1 or not tol >= 0:
        raise PmfError(f"max_passes is {max_passes}, tol {tol}; give at least 1 and at least 0")
    return run_em(
        evaluate,
        lambda fit, statistics: _update(fit, statistics, tol),
        start,
        has_converged=lambda fit: fit.converged,
        max_passes=max_passes,
        on_pass=on_pass,
    )


def _update(fit: CrowdFit, statistics: EMStatistics, tol: float) -> CrowdFit:
    """M-step: the crowd model from the statistics taken under the one before, and how much the pass has moved."""
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
