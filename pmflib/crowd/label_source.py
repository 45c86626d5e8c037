"""Tasks with their labels, in memory or in a store: the passes of every method go over these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pmflib.core.arrays import FloatArray
from pmflib.core.blocks import SparseBlock
from pmflib.core.defaults import LABEL_LIMITS
from pmflib.crowd.e_step import LogWeights, VotedBlock, evaluate_blocks, score_blocks, split_log
from pmflib.crowd.held_out_labels import ModelChoice, choose_model, space_tasks
from pmflib.crowd.known_intercepts import MOST_SCORED, KnownScores, add_intercepts, score_known
from pmflib.crowd.label_log import LabelLog
from pmflib.crowd.passes import STATE, CrowdFit, CrowdPassPlan, run_from_votes, run_passes
from pmflib.em.checkpoint import Checkpoint
from pmflib.model.statistics import EMStatistics, sum_fields
from pmflib.solvers.crowd.annotator_model import AnnotatorModel

R = TypeVar("R")


class LabelSource(ABC):
    """Tasks with their labels.

    Attributes
    ----------
    n_workers, n_classes, n_tasks, n_labels
        Number of workers, of classes, of tasks and of labels.
    with_known
        Whether the labels of some tasks are known.
    """

    n_workers: int
    n_classes: int
    n_tasks: int
    n_labels: int
    with_known: bool

    @abstractmethod
    def map_blocks(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        name: str = "",
    ) -> R:
        """Map a function over groups of blocks, and merge the results.

        Parameters
        ----------
        function
            Called as ``function(blocks, *shared)`` with a list of `VotedBlock`, which may be empty; workers import it
            by its name.
        merge
            Joins results in order, at least one.
        shared
            Further arguments.
        name
            What the tasks of a client are called.
        """

    @abstractmethod
    def sample(self, every: int) -> SparseBlock:
        """Labels of one task of so many."""

    def evaluate(self, weights: LogWeights) -> EMStatistics:
        """Sufficient statistics of all tasks: the E-step of a pass.

        Parameters
        ----------
        weights
            What tasks are scored under.
        """
        return self.map_blocks(evaluate_blocks, sum_fields, weights, name="pass")

    def choose_model(self, plan: CrowdPassPlan) -> ModelChoice:
        """Choose the model that the log has, by held-out labels; known labels have no part in it.

        Parameters
        ----------
        plan
            What passes estimate otherwise, and their limits.
        """
        return choose_model(
            self.sample(space_tasks(self.n_labels)),
            self.n_workers,
            self.n_classes,
            plan.annotator_model,
            max_passes=plan.max_passes,
            tol=plan.tol,
        )

    def fit(
        self,
        start: AnnotatorModel | CrowdFit | Callable[[], CrowdFit],
        *,
        max_passes: int = LABEL_LIMITS.max_passes,
        tol: float = LABEL_LIMITS.tol,
        open_checkpoint: Callable[[str], Checkpoint[CrowdFit]] | None = None,
        on_pass: Callable[[CrowdFit], None] | None = None,
    ) -> CrowdFit:
        """Estimate a crowd model by passes.

        Parameters
        ----------
        start
            As for `run_passes`; an annotator model starts from the votes.
        max_passes, tol, open_checkpoint, on_pass
            As for `run_from_votes`.

        Returns
        -------
        The state at the end. Where labels are known and passes were made, its model has intercepts: see
        `pmflib.crowd.known_intercepts`.

        Raises
        ------
        PmfError
            If a limit is out of range, or a checkpoint is of another fit.
        """
        limits: dict[str, Any] = {"max_passes": max_passes, "tol": tol, "on_pass": on_pass}
        if isinstance(start, AnnotatorModel):
            fit = run_from_votes(
                self.evaluate,
                self.n_workers,
                self.n_classes,
                start,
                with_known=self.with_known,
                open_checkpoint=open_checkpoint,
                **limits,
            )
        else:
            checkpoint = None if open_checkpoint is None else open_checkpoint(STATE)
            fit = run_passes(self.evaluate, start, checkpoint=checkpoint, **limits)
        # without passes, confusion matrices are no counts that a task has a share in
        if not self.with_known or not fit.n_passes:
            return fit
        every = max(1, self.n_tasks // MOST_SCORED)
        known = self.map_blocks(score_known, KnownScores.merge, fit.model, every, name="known")
        return replace(fit, model=add_intercepts(fit.model, known))


class LabelsInMemory(LabelSource):
    """Tasks of a label log in memory.

    Parameters
    ----------
    log
        Labels as codes.
    """

    def __init__(self, log: LabelLog) -> None:
        self.log, self.blocks = log, split_log(log)
        self.n_workers, self.n_classes, self.n_tasks = log.n_workers, log.n_classes, log.n_tasks
        self.n_labels, self.with_known = log.block.n_observed, bool(log.is_known.any())

    def map_blocks(
        self,
        function: Callable[..., R],
        merge: Callable[[Sequence[R]], R],
        *shared: Any,
        name: str = "",
    ) -> R:
        """Call the function with all blocks."""
        return function(self.blocks, *shared)

    def sample(self, every: int) -> SparseBlock:
        """Labels of one task of so many, from the first on."""
        return self.log.block.take(np.arange(0, self.n_tasks, every))

    def score(self, weights: LogWeights) -> FloatArray:
        """Posterior of the class of every task, float64 of shape (n_tasks, n_classes)."""
        return score_blocks(self.blocks, weights, self.n_classes)


def take_labels(blocks: Iterable[VotedBlock], every: int) -> list[SparseBlock]:
    """Labels of one task of so many of each block."""
    return [one.labels.take(np.arange(0, one.labels.n_rows, every)) for one in blocks]
