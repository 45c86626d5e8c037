"""The model of a crowd: how confusion matrices are parametrised, and what is known of every worker and of the classes.

A class may have two subclasses of tasks, which workers label in different ways: a latent state is a subclass of a
class. States are in the order of the subclasses, then of the classes: state ``s`` is of class ``s % n_classes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray
from pmflib.core.errors import PmfError

SECOND_SUBCLASS_POWER = 0.3
"""Power of the label probabilities with which the second subclass starts, in [0, 1]: 0 would be guesses. Chosen on
drawn logs: benchmarks/crowd/stress.py."""


@dataclass(frozen=True)
class AnnotatorModel:
    """How the confusion matrices of workers are parametrised and estimated.

    Parameters
    ----------
    pseudo_count
        Pseudo-labels for each worker and class, shared out as all workers label who are right as often; None learns
        their number from how much workers differ, 0 is maximum likelihood.
    variational
        Whether a worker's labels are weighted by the mean of the logarithm of a probability, and not by the logarithm
        of its mean: what is known from few labels counts for less.
    balanced
        Whether all classes are equally probable, whatever is found.
    one_coin
        Whether a worker is right with one probability for all classes, and wrong alike in all ways.
    votes
        Whether the votes are evidence of their own while workers are estimated. It keeps a task's posterior near its
        votes where the workers' labels say little about them, or mistakes have a common cause.
    n_subclasses
        Subclasses of every class, 1 or 2. Where tasks differ otherwise than in their class, labels depend on each other
        given the class, and one state per class would be used for that: two classes would share one, and one class
        would fill two. With states to spare, classes stay what the votes say they are.
    ordinal
        Whether classes are in order, and mistakes likelier the nearer they are: see
        `pmflib.solvers.crowd.shrinkage`.
    copiers
        Groups of workers who repeat each other's labels, each worker with the weight of its labels, in (0, 1]: see
        `pmflib.crowd.copied_labels`. All others have weight 1.

    Raises
    ------
    PmfError
        If pseudo_count or n_subclasses is out of range, or two subclasses are combined with what leaves them no
        freedom, or ordered classes with what has no use for their order.
    """

    pseudo_count: float | None = None
    variational: bool = True
    balanced: bool = False
    one_coin: bool = False
    votes: bool = True
    n_subclasses: int = 1
    ordinal: bool = False
    copiers: tuple[tuple[tuple[int, float], ...], ...] = ()

    @property
    def weighs_votes(self) -> bool:
        """Whether votes count by who gave them, and not at all where many are of workers who do not look at tasks.

        Not with one coin, which cannot be the matrix of a worker of one label, nor with classes that are equally
        probable whatever is found: these need the votes.
        """
        return self.votes and not self.one_coin and not self.balanced

    @property
    def copied_groups(self) -> tuple[tuple[int, ...], ...]:
        """Workers of each group who repeat each other's labels."""
        return tuple(tuple(worker for worker, _ in group) for group in self.copiers)

    def weigh_workers(self, n_workers: int) -> FloatArray:
        """Weight of each worker's labels, float64 of shape (n_workers,): 1, or less of those who repeat each other."""
        weights = np.ones(n_workers)
        for group in self.copiers:
            for worker, weight in group:
                weights[worker] = weight
        return weights

    def __post_init__(self) -> None:
        if self.pseudo_count is not None and not 0 <= self.pseudo_count < np.inf:
            raise PmfError(
                f"pseudo_count is {self.pseudo_count}; give a finite number of at least 0"
            )
        if self.n_subclasses not in (1, 2):
            raise PmfError(f"n_subclasses is {self.n_subclasses}; give 1 or 2")
        if self.n_subclasses == 2 and (self.one_coin or self.balanced or self.pseudo_count == 0):
            raise PmfError(
                f"n_subclasses is 2, with pseudo_count {self.pseudo_count}, one_coin {self.one_coin} and balanced "
                f"{self.balanced}; give 1, or leave these as they are: subclasses are distinguished by matrices that "
                "are free, and shrunk"
            )
        if self.ordinal and (self.one_coin or self.pseudo_count == 0):
            raise PmfError(
                f"ordinal is true, with pseudo_count {self.pseudo_count} and one_coin {self.one_coin}; the order of "
                "classes is part of the prior of free matrices: leave it out, or these as they are"
            )


MAXIMUM_LIKELIHOOD = AnnotatorModel(pseudo_count=0.0, variational=False, votes=False)
"""Dawid and Skene's: a free confusion matrix for every worker, without pseudo-labels."""


@dataclass(frozen=True, eq=False)
class CrowdModel:
    """Prior and confusion matrices of a crowd, as parameters of Dirichlet distributions.

    Parameters
    ----------
    states
        float64 of shape (n_states,), of the probabilities of the states: as many for each class as the annotator model
        has subclasses.
    mass
        float64 of shape (n_workers, n_classes, n_states), of the labels (second axis) by true state (third).
    pseudo_count
        How alike workers are, in labels, given or as learnt: the pseudo-labels in each column of ``mass``.
    annotator_model
        How the confusion matrices were estimated.
    vote_weight
        Weight of the votes beside the labels, as if of so many more workers.
    intercepts
        float64 of shape (n_classes,), added to the log-weights of the classes where tasks are scored: what known labels
        say of mistakes that all workers share, nats. None adds nothing.
    label_mass
        float64 of shape (n_workers * n_classes, n_states): expected labels that ``mass`` was estimated from, without
        pseudo-labels. None takes ``mass`` for them.
    """

    states: FloatArray
    mass: FloatArray
    pseudo_count: float
    annotator_model: AnnotatorModel
    vote_weight: float = 0.0
    intercepts: FloatArray | None = None
    label_mass: FloatArray | None = None

    @classmethod
    def from_probabilities(cls, prior: FloatArray, confusion: FloatArray) -> CrowdModel:
        """Model of given probabilities, with maximum likelihood as its annotator model.

        Parameters
        ----------
        prior
            float64 of shape (n_classes,), nonnegative: scaled to sum 1 where it is read.
        confusion
            float64 of shape (n_workers, n_classes, n_classes), labels by true class: columns are scaled likewise.
        """
        return cls(prior, confusion, 0.0, MAXIMUM_LIKELIHOOD)

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.mass)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.mass.shape[1])

    @property
    def prior(self) -> FloatArray:
        """Probabilities of the classes, (n_classes,); even where no task was seen."""
        shares = self._state_prior.reshape(self.annotator_model.n_subclasses, -1)
        return np.asarray(shares.sum(axis=0))

    @property
    def confusion(self) -> FloatArray:
        """Mean PMF of each worker's labels by true class, (n_workers, n_classes, n_classes); uniform if unknown."""
        by_state = self._state_confusion
        n_subclasses = self.annotator_model.n_subclasses
        if n_subclasses == 1:
            return by_state
        shares = self._state_prior.reshape(n_subclasses, -1)
        by_subclass = by_state.reshape(*by_state.shape[:2], *shares.shape)
        return np.asarray((by_subclass * (shares / shares.sum(axis=0))).sum(axis=2))

    @property
    def _state_prior(self) -> FloatArray:
        if self.annotator_model.balanced or not self.states.any():
            return np.full(self.states.size, 1.0 / self.states.size)
        return np.asarray(self.states / self.states.sum())

    @property
    def _state_confusion(self) -> FloatArray:
        mass = put_workers_last(self.mass)
        totals = mass.sum(axis=0)
        even = 1.0 / len(mass)
        return put_workers_first(
            np.where(totals > 0, mass / np.where(totals > 0, totals, 1.0), even)
        )

    def find_label_mass(self) -> FloatArray:
        """Expected labels that the model was estimated from, as in ``label_mass``."""
        return (
            self.mass.reshape(-1, self.states.size) if self.label_mass is None else self.label_mass
        )

    def take_logs(self) -> tuple[FloatArray, FloatArray]:
        """Log-weights of the states, (n_states,), and of labels, (n_workers * n_classes, n_states); nats.

        Labels of workers who repeat each other have a power, so that all labels of such a group count as one.
        """
        if self.annotator_model.variational:
            weights = _take_mean_logs(self.mass)
        else:
            weights = np.log(np.maximum(self._state_confusion, FLOOR))
        if self.annotator_model.copiers:
            weights *= self.annotator_model.weigh_workers(self.n_workers)[:, None, None]
        log_states = np.log(np.maximum(self._state_prior, FLOOR))
        if self.intercepts is not None:
            log_states += np.tile(self.intercepts, self.annotator_model.n_subclasses)
        return log_states, weights.reshape(-1, self.states.size)


def split_subclasses(model: CrowdModel) -> CrowdModel:
    """Start with two subclasses of every class, as many tasks in each: the second is labelled nearer to guesses.

    Parameters
    ----------
    model
        Crowd model with one subclass.
    """
    blurred = model.confusion**SECOND_SUBCLASS_POWER
    blurred *= model.mass.sum(axis=1, keepdims=True) / blurred.sum(axis=1, keepdims=True)
    return replace(
        model,
        states=np.tile(model.states / 2, 2),
        mass=np.concatenate([model.mass, blurred], axis=2),
        label_mass=None,
        annotator_model=replace(model.annotator_model, n_subclasses=2),
    )


def put_workers_last(by_worker: FloatArray) -> FloatArray:
    """From (n_workers, n_classes, n_states) to (n_classes, n_states, n_workers), in which sums are fast."""
    return np.ascontiguousarray(by_worker.transpose(1, 2, 0))


def put_workers_first(by_cell: FloatArray) -> FloatArray:
    """Undo `put_workers_last`."""
    return np.ascontiguousarray(by_cell.transpose(2, 0, 1))


def _take_mean_logs(mass: FloatArray) -> FloatArray:
    """Means of the logarithms of PMFs that have Dirichlet distributions, of the shape of their parameters."""
    from pmflib.kernels.digamma import digamma

    mass = put_workers_last(mass)
    logs = digamma(np.maximum(mass, FLOOR))
    logs -= digamma(np.maximum(mass.sum(axis=0), FLOOR))
    # unnormalised weights below this are as good as zero, and safe to add up
    return put_workers_first(np.maximum(logs, np.log(FLOOR), out=logs))
