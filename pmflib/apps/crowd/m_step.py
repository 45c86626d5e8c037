"""M-step: confusion matrices shrunk toward those of equally accurate workers, and mistakes of ordered classes.

Every column of a confusion matrix, the PMF of a worker's labels for tasks of one class, has a Dirichlet prior. Its mean
is the pooled column of all workers, adjusted to the accuracy of the worker, which the labels for all classes determine
together. Its concentration, the pseudo-count, is learnt from the remaining differences between workers.

For ordered classes, the pooled mistakes for tasks of each class have a Dirichlet prior as well. Its mean decreases with
the distance from the true class, by the same factor for each step. This factor and the concentration maximise the
probability of the mistakes. If mistakes do not depend on the distance, the factor is near 1; with many labels, the
prior has little influence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pmflib.apps.crowd.pairs.annotator_model import (
    SECOND_SUBCLASS_POWER,
    AnnotatorModel,
    CrowdModel,
    put_workers_first,
    put_workers_last,
)
from pmflib.base.arrays import FLOOR, FloatArray
from pmflib.base.errors import SchemaError

DECAY_VARIANCE = 4.0
"""Prior variance of the log factor by which mistakes change with each step; its mean is 0."""
DECAY_STEPS = 12
"""Number of Newton steps for this log factor, of at most 1 each."""
FIRST_CONCENTRATION = 4.0
"""Initial concentration, and mode of its Gamma prior of shape 2."""
LEAST_CONCENTRATION, MOST_CONCENTRATION = 0.5, 100.0
"""Limits of the concentration."""
CONCENTRATION_STEPS = 20
"""Number of steps of Minka's fixed point."""


def share_mistakes(counts: FloatArray) -> FloatArray:
    """Estimate the distribution of the pooled mistakes for each class, shrunk toward near classes.

    Parameters
    ----------
    counts
        float64 of shape (n_classes, n_states), at least 0: labels by true state, with classes in order. State ``s`` has
        class ``s % n_classes``.

    Returns
    -------
    float64 of the same shape: PMF of the wrong labels of each state, 0 at the correct one.

    References
    ----------
    Minka (2000), Estimating a Dirichlet distribution, for the fixed point of the concentration.
    """
    n_classes, n_states = counts.shape
    steps = np.abs(np.arange(n_classes)[:, None] - np.arange(n_states) % n_classes).astype(float)
    mistakes = np.where(steps > 0, counts, 0.0)
    if n_classes < 2:
        return mistakes
    profile = _shape_profile(mistakes, steps)
    shared = mistakes + _learn_concentration(mistakes, profile) * profile
    return np.asarray(shared / shared.sum(axis=0))


def _shape_profile(mistakes: FloatArray, steps: FloatArray) -> FloatArray:
    """PMFs of mistakes that change by a factor with each step; the factor is estimated."""
    totals, observed, log_factor = mistakes.sum(axis=0), float((mistakes * steps).sum()), 0.0
    for _ in range(DECAY_STEPS):
        profile = _decay(steps, log_factor)
        means = (profile * steps).sum(axis=0)
        spread = (profile * steps**2).sum(axis=0) - means**2
        slope = observed - totals @ means - log_factor / DECAY_VARIANCE
        log_factor += float(np.clip(slope / (totals @ spread + 1.0 / DECAY_VARIANCE), -1.0, 1.0))
    return _decay(steps, log_factor)


def _decay(steps: FloatArray, log_factor: float) -> FloatArray:
    logs = log_factor * steps
    weights = np.where(steps > 0, np.exp(logs - logs.max()), 0.0)
    return np.asarray(weights / weights.sum(axis=0))


def _learn_concentration(mistakes: FloatArray, profile: FloatArray) -> float:
    """Estimate the concentration of the Dirichlet prior around the profile."""
    from pmflib.apps.crowd.kernels.digamma import find_rises

    wrong = profile > 0
    n_cells = int(wrong.sum())
    values = np.concatenate([mistakes[wrong], mistakes.sum(axis=0)])
    shares = np.concatenate([profile[wrong], np.ones(mistakes.shape[1])])
    rises, concentration = np.empty(values.size), FIRST_CONCENTRATION
    for _ in range(CONCENTRATION_STEPS):
        find_rises(values, shares, concentration, rises)
        spent, gained = float(rises[n_cells:].sum()), float(rises[:n_cells] @ shares[:n_cells])
        renewed = (concentration * gained + 1.0) / (spent + 1.0 / FIRST_CONCENTRATION)
        concentration = min(max(renewed, LEAST_CONCENTRATION), MOST_CONCENTRATION)
    return concentration


@dataclass(frozen=True)
class Shrinkage:
    """Parameters of the shrinkage.

    Values marked [drawn] were chosen by benchmarks/crowd/stress.py, those marked [regimes] on the tuned half of
    benchmarks/crowd/regimes.py.

    Parameters
    ----------
    first_pseudo_count
        Initial pseudo-count, and mode of its Gamma prior of shape 2.
    least_pseudo_count, most_pseudo_count
        Limits of the pseudo-count, in labels; it would be infinite for identical workers.
    pseudo_count_steps
        Number of steps of Minka's fixed point in one update; each costs as much as the rest of the update.
    skill_variance
        Prior variance of the skills of the workers: their log odds of being correct, relative to the pooled matrix
        [drawn].
    skill_steps
        Number of Newton steps for the skills in one update, of at most 1 each; they are exact to six digits.
    pooled_right
        Pseudo-labels of the correct class in every column of the pooled matrix.
    pooled_everywhere
        Pseudo-labels in every cell of the pooled matrix.
    vote_weight
        Weight of the votes as additional evidence if workers gave few labels, in votes of workers [drawn].
    halving_labels
        Mean number of labels of a worker at which this weight is halved [drawn].
    scarce_weight
        Term added to the weight, divided by the mean number of labels of a worker [drawn].
    agreement_tasks
        Pseudo-count of tasks with the mean agreement of all workers: see `measure_agreement`.
    least_agreement
        Agreement below which the votes of a worker are uninformative; a constant label has agreement 0.
    most_uninformed
        Share of uninformative and repeated labels above which votes are not used as evidence [regimes].
    """

    first_pseudo_count: float = 4.0
    least_pseudo_count: float = 0.5
    most_pseudo_count: float = 100.0
    pseudo_count_steps: int = 4
    skill_variance: float = 1.0
    skill_steps: int = 6
    pooled_right: float = 0.5
    pooled_everywhere: float = 0.1
    vote_weight: float = 0.75
    halving_labels: float = 300.0
    scarce_weight: float = 20.0
    agreement_tasks: float = 5.0
    least_agreement: float = 0.05
    most_uninformed: float = 0.3


SHRINKAGE = Shrinkage()


def update_crowd_model(
    level_mass: FloatArray,
    state_mass: FloatArray,
    annotator_model: AnnotatorModel,
    pseudo_count: float = SHRINKAGE.first_pseudo_count,
) -> CrowdModel:
    """Estimate confusion matrices and the class prior from expected counts: the M-step.

    Parameters
    ----------
    level_mass
        float64 of shape (n_workers * n_classes, n_states): each worker's labels of each class, by posterior state.
    state_mass
        float64 of shape (n_states,): tasks by posterior state.
    annotator_model
        Parametrisation of the confusion matrices.
    pseudo_count
        Previous pseudo-count, if it is learnt.

    Returns
    -------
    The crowd model; workers without labels have the pooled confusion matrix.

    Raises
    ------
    SchemaError
        If the shapes do not agree.

    Notes
    -----
    Time and memory are those of a few passes over ``level_mass``.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28; Minka (2000), Estimating a Dirichlet distribution, for the fixed point
    of the pseudo-count; Kim, Ghahramani (2012), Bayesian classifier combination, for the variational weights.
    """
    n_states = state_mass.size
    n_classes, left = divmod(n_states, annotator_model.n_subclasses)
    if left:
        raise SchemaError(
            f"state_mass has {n_states} states; {annotator_model.n_subclasses} subclasses of every class need a "
            f"multiple of {annotator_model.n_subclasses}"
        )
    if level_mass.ndim != 2 or level_mass.shape[1] != n_states or len(level_mass) % n_classes:
        raise SchemaError(
            f"level_mass has shape {level_mass.shape}; the {n_states} states of state_mass need "
            f"(n_workers * {n_classes}, {n_states})"
        )
    labels = put_workers_last(level_mass.reshape(-1, n_classes, n_states))
    vote_weight = _weigh_votes(labels, annotator_model) if annotator_model.votes else 0.0
    if annotator_model.one_coin:
        labels = _share_evenly(labels)
    if annotator_model.pseudo_count is not None:
        pseudo_count = annotator_model.pseudo_count
    states = _share_states(state_mass + (1.0 if pseudo_count else 0.0), n_classes)
    mass = labels
    if pseudo_count:
        means = _adjust_skills(labels, _pool(labels, annotator_model), pseudo_count)
        _expect_guesses(labels, means, pseudo_count)
        if annotator_model.pseudo_count is None:
            pseudo_count = _learn_pseudo_count(labels, means, pseudo_count)
        mass = labels + pseudo_count * means
    return CrowdModel(states, put_workers_first(mass), pseudo_count, annotator_model, vote_weight)


def _share_states(states: FloatArray, n_classes: int) -> FloatArray:
    """Limit the share of the second subclass of each class to its average over the classes.

    With unlimited shares, the second subclass of one class would take the hard tasks of all classes. With equal shares,
    a class without hard tasks would fill its second subclass with tasks of another class.
    """
    by_subclass = states.reshape(-1, n_classes)
    totals = by_subclass.sum(axis=0)
    most = by_subclass[1:].sum(axis=1, keepdims=True) / states.sum() * totals
    later = np.minimum(by_subclass[1:], most)
    return np.concatenate([totals - later.sum(axis=0), later.reshape(-1)])


def _weigh_votes(labels: FloatArray, annotator_model: AnnotatorModel) -> float:
    """Compute the weight of the votes: large if workers gave few labels and are poorly known, vanishing with many.

    For models that weigh votes, it decreases with the share of labels that are uninformative or repeat others, because
    these dominate the votes.
    """
    n_classes, n_states, n_workers = labels.shape
    given = labels.sum(axis=(0, 1))
    # posterior masses sum to numbers of labels, up to rounding
    n_labels = max(round(float(given.sum())), 1)
    # one over the mean number of labels of the workers with labels
    scarcity = int((given > 0.5).sum()) / n_labels
    need = (SHRINKAGE.halving_labels * scarcity) ** 2
    weight = SHRINKAGE.vote_weight * need / (1.0 + need) + SHRINKAGE.scarce_weight * scarcity
    if not annotator_model.weighs_votes:
        return weight
    by_class = labels.reshape(n_classes, n_states // n_classes, n_classes, n_workers).sum(axis=1)
    blind = measure_agreement(by_class) < SHRINKAGE.least_agreement
    own = np.where(blind, 0.0, annotator_model.weigh_workers(n_workers))
    uninformed = float((given * (1.0 - own)).sum()) / n_labels
    return weight * max(0.0, 1.0 - uninformed / SHRINKAGE.most_uninformed)


def measure_agreement(labels: FloatArray) -> FloatArray:
    """Compute Cohen's kappa between each worker's labels and the classes of tasks, float64 of shape (n_workers,).

    Chance means labels with the same frequencies, independent of the task: a constant label has agreement 0, even if
    most tasks have this class. The agreement is shrunk toward that of all workers by a few pseudo-tasks, for workers
    with few labels, or with tasks mostly of one class.

    Parameters
    ----------
    labels
        float64 of shape (n_classes, n_classes, n_workers), at least 0: labels by the class of their task.

    References
    ----------
    Cohen (1960), Educational and Psychological Measurement 20.
    """
    given = labels.sum(axis=(0, 1))
    agreed = np.trace(labels)
    chance = (labels.sum(axis=1) * labels.sum(axis=0)).sum(axis=0) / np.maximum(given, FLOOR)
    room = np.maximum(given - chance, 0.0)
    typical = max(float((agreed - chance).sum()) / max(float(room.sum()), FLOOR), 0.0)
    tasks = SHRINKAGE.agreement_tasks
    return np.asarray((agreed - chance + tasks * typical) / (room + tasks))


def _pool(labels: FloatArray, annotator_model: AnnotatorModel) -> FloatArray:
    """Estimate the pooled confusion matrix of all workers, (n_classes, n_states)."""
    total = (
        labels.sum(axis=2)
        + SHRINKAGE.pooled_everywhere
        + SHRINKAGE.pooled_right * _mark_right(*labels.shape[:2])
    )
    if annotator_model.one_coin:
        total = _share_evenly(total[:, :, None])[:, :, 0]
    elif annotator_model.ordinal:
        right = _mark_right(*total.shape) * total
        total = right + (total - right).sum(axis=0) * share_mistakes(labels.sum(axis=2))
    return np.asarray(total / total.sum(axis=0))


@lru_cache(maxsize=16)
def _mark_right(n_classes: int, n_states: int) -> FloatArray:
    """Return an indicator of correct labels, (n_classes, n_states), 1 or 0; read-only."""
    marks = np.tile(np.eye(n_classes), n_states // n_classes)
    marks.flags.writeable = False
    return marks


def _share_evenly(labels: FloatArray) -> FloatArray:
    """Average labels over all correct cells, and over all wrong cells."""
    n_classes = len(labels)
    right = np.trace(labels)
    wrong = labels.sum(axis=(0, 1)) - right
    even = np.empty_like(labels)
    even[:] = np.maximum(wrong, 0.0) / max(n_classes * (n_classes - 1), 1)
    diagonal = np.arange(n_classes)
    even[diagonal, diagonal] = right / n_classes
    return even


def _adjust_skills(labels: FloatArray, pooled: FloatArray, pseudo_count: float) -> FloatArray:
    """Adjust the pooled matrix to the accuracy of each worker: (n_classes, n_states, n_workers).

    The odds of a correct label are those of the pooled matrix times a factor of the worker, the same for all classes.
    Its logarithm has a normal prior and is found by Newton's method. Mistakes are distributed as in the pooled matrix.
    """
    from pmflib.apps.crowd.kernels.digamma import find_skills

    n_classes, n_states, n_workers = labels.shape
    if n_classes == 1:
        return np.ones_like(labels)
    states = np.arange(n_states)
    named = states % n_classes
    totals, right = labels.sum(axis=0), labels[named, states]
    # many labels for one state determine the worker's own column, but provide little information on the skill
    worth = (1.0 + pseudo_count) / (totals + pseudo_count)
    totals *= worth
    right *= worth
    wrong = (pooled * (1.0 - _mark_right(n_classes, n_states))).sum(axis=0)
    odds = pooled[named, states] / wrong
    skills = np.zeros(n_workers)
    work, variance = np.empty((3, n_workers)), SHRINKAGE.skill_variance
    find_skills(right, totals, odds, variance, SHRINKAGE.skill_steps, work, skills)
    ahead = odds[:, None] * np.exp(skills)
    missed = 1.0 / (1.0 + ahead)
    means: FloatArray = pooled[:, :, None] * (missed / wrong[:, None])
    means[named, states] = ahead * missed
    return means


def _expect_guesses(labels: FloatArray, means: FloatArray, pseudo_count: float) -> None:
    """Set the prior means of second subclasses in place: the worker's columns of the first ones, closer to guesses.

    With the pooled labels of the second subclass as means, it could drift to another class, because single workers give
    few labels there.
    """
    n_classes, n_states, _ = labels.shape
    for state in range(n_classes, n_states):
        first = state % n_classes
        column = labels[:, first] + pseudo_count * means[:, first]
        column = (column / column.sum(axis=0)) ** SECOND_SUBCLASS_POWER
        means[:, state] = column / column.sum(axis=0)


def _learn_pseudo_count(labels: FloatArray, means: FloatArray, pseudo_count: float) -> float:
    """Increase the posterior density of the pseudo-count, given the prior means, by a few fixed-point steps."""
    from pmflib.apps.crowd.kernels.digamma import find_rises

    totals = labels.sum(axis=0).reshape(-1)
    # cells and columns in one call: for short logs, calls dominate the time
    values = np.concatenate([labels.reshape(-1), totals])
    shares = np.ones(values.size)
    n_cells = labels.size
    shares[:n_cells] = means.reshape(-1)
    rises = np.empty(values.size)
    for _ in range(SHRINKAGE.pseudo_count_steps):
        find_rises(values, shares, pseudo_count, rises)
        spent = float(rises[n_cells:].sum())
        rises[:n_cells] *= shares[:n_cells]
        gained = float(rises[:n_cells].sum())
        # the Gamma prior of the pseudo-count, with shape 2 and its mode
        renewed = (pseudo_count * gained + 1.0) / (spent + 1.0 / SHRINKAGE.first_pseudo_count)
        least, most = SHRINKAGE.least_pseudo_count, SHRINKAGE.most_pseudo_count
        pseudo_count = min(max(renewed, least), most)
    return pseudo_count
