"""Models of a crowd: the parametrisation of the confusion matrices, and the estimated parameters.

A class may have two subclasses of tasks, which workers label differently: a latent state is a subclass of a class.
States are ordered by subclass, then by class: state ``s`` has class ``s % n_classes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray
from pmflib.base.constraints import Interval, OneOf, check
from pmflib.base.errors import PmfError

SECOND_SUBCLASS_POWER = 0.3
"""Power of the label probabilities in the start of the second subclass, in [0, 1]; 0 means guesses. Chosen by
benchmarks/crowd/stress.py."""


@dataclass(frozen=True)
class AnnotatorModel:
    """Parametrisation of the confusion matrices of workers.

    Parameters
    ----------
    pseudo_count
        Number of pseudo-labels for each worker and class, distributed like the pooled matrix of equally accurate
        workers. None learns it from the differences between workers; 0 is maximum likelihood.
    variational
        Whether labels are weighted by the mean of the log-probability instead of the logarithm of the mean, so that
        poorly known workers have less weight.
    evenness
        Share of the uniform distribution in the class prior, in [0, 1]; the rest is learnt. 1 makes all classes equally
        probable.
    one_coin
        Whether each worker has one accuracy for all classes, and all mistakes are equally probable.
    votes
        Whether the votes are additional evidence while workers are estimated. This keeps the posterior of a task near
        its votes if the workers are poorly known or their mistakes have a common cause.
    n_subclasses
        Number of subclasses of every class, 1 or 2. If tasks of a class differ, for instance in difficulty, labels are
        dependent given the class. With one state per class, the states would then model these differences instead of
        the classes.
    ordinal
        Whether classes are ordered and mistakes are more probable for nearby classes: see
        `pmflib.apps.crowd.m_step`.
    copiers
        Groups of workers who repeat each other's labels, with the weight of each worker's labels, in (0, 1]: see
        `pmflib.apps.crowd.copied_labels`. All others have weight 1.

    Raises
    ------
    PmfError
        If pseudo_count or n_subclasses is out of range, or options cannot be combined.
    """

    pseudo_count: float | None = None
    variational: bool = True
    evenness: float = 0.0
    one_coin: bool = False
    votes: bool = True
    n_subclasses: int = 1
    ordinal: bool = False
    copiers: tuple[tuple[tuple[int, float], ...], ...] = ()

    @property
    def weighs_votes(self) -> bool:
        """Whether votes are weighted by the agreement of their workers, and dropped if many are uninformative.

        Not with one coin, which cannot model a worker of constant labels, nor if the class prior is mostly uniform:
        both need the votes.
        """
        return self.votes and not self.one_coin and self.evenness < 0.5

    @property
    def copied_groups(self) -> tuple[tuple[int, ...], ...]:
        """Workers of each group who repeat each other's labels."""
        return tuple(tuple(worker for worker, _ in group) for group in self.copiers)

    def weigh_workers(self, n_workers: int) -> FloatArray:
        """Return the weight of each worker's labels, float64 of shape (n_workers,): 1, or less for `copiers`."""
        weights = np.ones(n_workers)
        for group in self.copiers:
            for worker, weight in group:
                weights[worker] = weight
        return weights

    def __post_init__(self) -> None:
        check(Interval(0, closed="left", also=(None,)), pseudo_count=self.pseudo_count)
        check(Interval(0, 1), evenness=self.evenness)
        check(OneOf((1, 2)), n_subclasses=self.n_subclasses)
        if self.n_subclasses == 2 and (self.one_coin or self.pseudo_count == 0):
            raise PmfError(
                f"n_subclasses is 2, with pseudo_count {self.pseudo_count} and one_coin {self.one_coin}; give 1, or "
                "leave these at their defaults: subclasses need free and shrunk matrices"
            )
        if self.ordinal and (self.one_coin or self.pseudo_count == 0):
            raise PmfError(
                f"ordinal is true, with pseudo_count {self.pseudo_count} and one_coin {self.one_coin}; leave these at "
                "their defaults: the order of classes is part of the prior of free matrices"
            )


MAXIMUM_LIKELIHOOD = AnnotatorModel(pseudo_count=0.0, variational=False, votes=False)
"""Dawid and Skene's model: a free confusion matrix for every worker, without pseudo-labels."""


@dataclass(frozen=True, eq=False)
class CrowdModel:
    """Prior and confusion matrices of a crowd, as parameters of Dirichlet distributions.

    Parameters
    ----------
    states
        float64 of shape (n_states,): parameters for the probabilities of the states.
    mass
        float64 of shape (n_workers, n_classes, n_states): parameters for the labels (second axis) by true state
        (third).
    pseudo_count
        Number of pseudo-labels in each column of ``mass``, given or learnt.
    annotator_model
        Parametrisation of the confusion matrices.
    vote_weight
        Weight of the votes relative to the labels of one worker.
    intercepts
        float64 of shape (n_classes,), nats: added to the log-weights of the classes, to correct mistakes that all
        workers share, see `pmflib.apps.crowd.known_intercepts`. None adds nothing.
    label_mass
        float64 of shape (n_workers * n_classes, n_states): expected labels, without the pseudo-labels of ``mass``. None
        means ``mass``.
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
        """Make a model from given probabilities, with maximum likelihood as its annotator model.

        Parameters
        ----------
        prior
            float64 of shape (n_classes,), nonnegative; scaled to sum 1.
        confusion
            float64 of shape (n_workers, n_classes, n_classes), labels by true class; columns are scaled to sum 1.
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
        """Probabilities of the classes, (n_classes,); uniform without tasks."""
        shares = self._state_prior.reshape(self.annotator_model.n_subclasses, -1)
        return np.asarray(shares.sum(axis=0))

    @property
    def confusion(self) -> FloatArray:
        """Mean PMF of each worker's labels by true class, (n_workers, n_classes, n_classes); uniform without labels."""
        by_state = self._state_confusion
        n_subclasses = self.annotator_model.n_subclasses
        if n_subclasses == 1:
            return by_state
        shares = self._state_prior.reshape(n_subclasses, -1)
        by_subclass = by_state.reshape(*by_state.shape[:2], *shares.shape)
        return np.asarray((by_subclass * (shares / shares.sum(axis=0))).sum(axis=2))

    @property
    def _state_prior(self) -> FloatArray:
        if not self.states.any():
            return np.full(self.states.size, 1.0 / self.states.size)
        found = self.states / self.states.sum()
        evenness = self.annotator_model.evenness
        if not evenness:
            return np.asarray(found)
        shares = np.maximum(found, FLOOR).reshape(self.annotator_model.n_subclasses, -1)
        of_classes = shares.sum(axis=0)
        drawn = (1 - evenness) * of_classes + evenness / of_classes.size
        return np.asarray(shares * (drawn / of_classes)).reshape(-1)

    @property
    def _state_confusion(self) -> FloatArray:
        mass = put_workers_last(self.mass)
        totals = mass.sum(axis=0)
        even = 1.0 / len(mass)
        return put_workers_first(
            np.where(totals > 0, mass / np.where(totals > 0, totals, 1.0), even)
        )

    def find_label_mass(self) -> FloatArray:
        """Return the expected labels from which the model was estimated, as in ``label_mass``."""
        return (
            self.mass.reshape(-1, self.states.size) if self.label_mass is None else self.label_mass
        )

    def take_logs(self) -> tuple[FloatArray, FloatArray]:
        """Compute the log-weights of the states, (n_states,), and labels, (n_workers * n_classes, n_states); nats.

        Labels of workers who repeat each other are tempered, so that the labels of a group count as one.
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
    """Split every class into two equally large subclasses; labels of the second one are nearer to guesses.

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
    """Transpose (n_workers, n_classes, n_states) to (n_classes, n_states, n_workers), where sums are fast."""
    return np.ascontiguousarray(by_worker.transpose(1, 2, 0))


def put_workers_first(by_cell: FloatArray) -> FloatArray:
    """Undo `put_workers_last`."""
    return np.ascontiguousarray(by_cell.transpose(2, 0, 1))


def _take_mean_logs(mass: FloatArray) -> FloatArray:
    """Compute the mean log-probabilities of PMFs with Dirichlet distributions, in the shape of their parameters."""
    from pmflib.apps.crowd.kernels.digamma import digamma

    mass = put_workers_last(mass)
    logs = digamma(np.maximum(mass, FLOOR))
    logs -= digamma(np.maximum(mass.sum(axis=0), FLOOR))
    # smaller weights have no effect, but their sums could overflow
    return put_workers_first(np.maximum(logs, np.log(FLOOR), out=logs))
