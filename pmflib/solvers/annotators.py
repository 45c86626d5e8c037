"""Confusion matrices of annotators from expected counts: shrunk toward their like, by a strength that is learnt.

Every column of a confusion matrix, the PMF of an annotator's answers to items of one class, has a Dirichlet prior. Its
mean is the column that all annotators have together, but for how often this annotator is right: of that, answers to
items of all classes tell together, so that few do. How far annotators differ otherwise says how strong that prior is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, expit

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError, SchemaError
from pmflib.solvers.pairwise import FLOOR

FIRST_STRENGTH = 4.0
"""Strength to begin with, and the mode of its own prior, a Gamma distribution of shape 2."""
STRENGTHS = (0.5, 100.0)
"""Limits of a strength that is learnt, in answers."""
STEPS = 4
"""Steps of the strength in one update: each costs as much as the rest of it."""
SKILL_SPREAD = 1.0
"""Variance of annotators' skills, how much higher their log odds of being right are than those of all together."""
SKILL_STEPS = 6
"""Steps of an annotator's skill in one update, of at most 1."""
HALF = 0.5
"""Answers of the right class that the pooled matrix is given for every class: nobody is worse than chance unseen."""
SPREAD = 0.1
"""Answers that it is given in every cell: nothing is ruled out."""


@dataclass(frozen=True)
class Rule:
    """How confusion matrices are estimated.

    Parameters
    ----------
    strength
        Pseudo-answers for each annotator and class, shared out as all annotators answer who are right as often; None
        learns their number from how much annotators differ, 0 is maximum likelihood.
    variational
        Whether an annotator's answers weigh by the mean of the logarithm of a probability, and not by the logarithm of
        its mean: what is known of few answers counts for less.
    balanced
        Whether all classes are equally probable, whatever is found.
    one_coin
        Whether an annotator is right with one probability for all classes, and wrong alike in all ways.
    votes
        Weight of the votes as evidence of their own, as if of so many more annotators; at least 0. It keeps an item's
        posterior near its votes where the annotators' answers say little about them, or mistakes have a common cause.
        The default was chosen on drawn logs: see benchmarks/crowd_stress.py.
    """

    strength: float | None = None
    variational: bool = True
    balanced: bool = False
    one_coin: bool = False
    votes: float = 1.5

    def __post_init__(self) -> None:
        for name, value in (("strength", self.strength), ("votes", self.votes)):
            if value is not None and not 0 <= value < np.inf:
                raise PmfError(f"{name} is {value}; give a finite number of at least 0")


@dataclass(frozen=True, eq=False)
class Annotators:
    """What is known of annotators and classes: parameters of Dirichlet distributions.

    Parameters
    ----------
    states
        float64 of shape (n_classes,), of the class prior.
    mass
        float64 of shape (n_annotators, n_classes, n_classes), of the answers (second axis) by true class (third).
    strength
        How alike annotators are, in answers, given or as learnt: the pseudo-answers in each column of ``mass``.
    rule
        How they were estimated.
    """

    states: FloatArray
    mass: FloatArray
    strength: float
    rule: Rule

    @property
    def prior(self) -> FloatArray:
        """Probabilities of the classes, (n_classes,); even where no item was seen."""
        if self.rule.balanced or not self.states.any():
            return np.full(self.states.size, 1.0 / self.states.size)
        return np.asarray(self.states / self.states.sum())

    @property
    def confusion(self) -> FloatArray:
        """PMF of each annotator's answers by true class, the mean; uniform where nothing is known."""
        totals = self.mass.sum(axis=1, keepdims=True)
        even = 1.0 / self.states.size
        return np.where(totals > 0, self.mass / np.where(totals > 0, totals, 1.0), even)

    def take_logs(self) -> tuple[FloatArray, FloatArray]:
        """Weights of the class prior, (n_classes,), and of answers, (n_annotators * n_classes, n_classes); nats."""
        if self.rule.variational:
            weights = digamma(np.maximum(self.mass, FLOOR))
            weights -= digamma(np.maximum(self.mass.sum(axis=1, keepdims=True), FLOOR))
            # unnormalised weights below this are as good as zero, and safe to add up
            weights = np.maximum(weights, np.log(FLOOR))
        else:
            weights = np.log(np.maximum(self.confusion, FLOOR))
        return np.log(np.maximum(self.prior, FLOOR)), weights.reshape(-1, self.states.size)


def update_annotators(
    level_mass: FloatArray, state_mass: FloatArray, rule: Rule, strength: float = FIRST_STRENGTH
) -> Annotators:
    """Estimate confusion matrices and the class prior from expected counts.

    Parameters
    ----------
    level_mass
        float64 of shape (n_annotators * n_classes, n_classes): answers of each annotator and kind, by posterior class.
    state_mass
        float64 of shape (n_classes,): items by posterior class.
    rule
        What is estimated.
    strength
        The one before, where it is learnt.

    Returns
    -------
    The annotators; an annotator without answers gets the pooled confusion matrix.

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
    of the strength; Kim, Ghahramani (2012), Bayesian classifier combination, for the variational weights.
    """
    n_classes = state_mass.size
    if level_mass.ndim != 2 or level_mass.shape[1] != n_classes or len(level_mass) % n_classes:
        raise SchemaError(
            f"level_mass has shape {level_mass.shape}; the {n_classes} classes of state_mass ask for "
            f"(n_annotators * {n_classes}, {n_classes})"
        )
    answers = level_mass.reshape(-1, n_classes, n_classes)
    if rule.one_coin:
        answers = _share_evenly(answers)
    strength = strength if rule.strength is None else rule.strength
    states = state_mass + (1.0 if strength else 0.0)
    if not strength:
        return Annotators(states, answers, strength, rule)
    means = _tilt(answers, _pool(answers, rule.one_coin), strength)
    if rule.strength is None:
        strength = _learn_strength(answers, means, strength)
    return Annotators(states, answers + strength * means, strength, rule)


def _pool(answers: FloatArray, one_coin: bool) -> FloatArray:
    """Confusion matrix of all annotators together, (n_classes, n_classes)."""
    n_classes = answers.shape[1]
    total = answers.sum(axis=0) + SPREAD + HALF * np.eye(n_classes)
    if one_coin:
        total = _share_evenly(total[None])[0]
    return np.asarray(total / total.sum(axis=0))


def _share_evenly(answers: FloatArray) -> FloatArray:
    """Answers as right and wrong alone, every class and every mistake alike."""
    n_classes = answers.shape[1]
    right = np.trace(answers, axis1=1, axis2=2)
    wrong = answers.sum(axis=(1, 2)) - right
    even = np.empty_like(answers)
    even[:] = (np.maximum(wrong, 0.0) / max(n_classes * (n_classes - 1), 1))[:, None, None]
    diagonal = np.arange(n_classes)
    even[:, diagonal, diagonal] = (right / n_classes)[:, None]
    return even


def _tilt(answers: FloatArray, pooled: FloatArray, strength: float) -> FloatArray:
    """Pooled matrix as it is for annotators who are right as often as each: (n_annotators, n_classes, n_classes).

    The odds of being right are those of the pooled matrix times a factor of the annotator, the same for all classes,
    whose logarithm is normal and found by Newton's steps; mistakes are shared out as in the pooled matrix.
    """
    n_classes = len(pooled)
    means = np.repeat(pooled[None], len(answers), axis=0)
    if n_classes == 1:
        return means
    # by class and then annotator: sums over classes are fast
    totals = np.ascontiguousarray(answers.sum(axis=1).T)
    right = np.ascontiguousarray(np.diagonal(answers, axis1=1, axis2=2).T)
    # answers to items of one class repeat what the annotator's own column says: more of them say no more of the skill
    worth = (1.0 + strength) / (totals + strength)
    totals, right = worth * totals, worth * right
    wrong = np.where(np.eye(n_classes, dtype=bool), 0.0, pooled).sum(axis=0)
    odds = np.log(np.diagonal(pooled) / wrong)[:, None]
    skill = np.zeros(len(answers))
    for _ in range(SKILL_STEPS):
        expected = expit(odds + skill)
        slope = (right - totals * expected).sum(axis=0) - skill / SKILL_SPREAD
        bend = (totals * expected * (1 - expected)).sum(axis=0) + 1 / SKILL_SPREAD
        skill += np.clip(slope / bend, -1.0, 1.0)
    means *= (expit(-odds - skill).T / wrong)[:, None, :]
    diagonal = np.arange(n_classes)
    means[:, diagonal, diagonal] = expit(odds + skill).T
    return means


def _learn_strength(answers: FloatArray, means: FloatArray, strength: float) -> float:
    """Raise the probability of the answers, given the prior's means, and of the strength itself, by a few steps."""
    totals = answers.sum(axis=1)
    for _ in range(STEPS):
        prior = strength * means
        gained = float((means * (digamma(answers + prior) - digamma(prior))).sum())
        spent = float((digamma(totals + strength) - digamma(strength)).sum())
        # the strength's own prior: shape 2, mode FIRST_STRENGTH
        renewed = (strength * gained + 1.0) / (spent + 1.0 / FIRST_STRENGTH)
        strength = float(np.clip(renewed, *STRENGTHS))
    return strength
