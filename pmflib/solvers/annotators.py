"""Confusion matrices of annotators from expected counts: shrunk toward the pooled one, by a strength that is learnt.

Every column of a confusion matrix, the PMF of an annotator's answers to items of one class, has a Dirichlet prior whose
mean is the column that all annotators have together. How far annotators differ says how strong that prior is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError, SchemaError
from pmflib.solvers.pairwise import FLOOR

FIRST_STRENGTH = 4.0
"""Strength to begin with, and the mode of its own prior, a Gamma distribution of shape 2."""
STRENGTHS = (0.5, 100.0)
"""Limits of a strength that is learnt, in answers."""
CAUTION = 0.5
"""Power of a learnt strength that is used. Items of one class are not alike: what annotators get wrong together makes
them look more alike than they are, and too much shrinkage loses whom to trust."""
STEPS = 4
"""Steps of the strength in one update: each costs as much as the rest of it."""
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
        Pseudo-answers, shared out as all annotators answer, for each annotator and class; None learns their number
        from how much annotators differ, 0 is maximum likelihood.
    variational
        Whether an annotator's answers weigh by the mean of the logarithm of a probability, and not by the logarithm of
        its mean: what is known of few answers counts for less.
    balanced
        Whether all classes are equally probable, whatever is found.
    one_coin
        Whether an annotator is right with one probability for all classes, and wrong alike in all ways.
    votes
        Weight of the votes as evidence of their own, as if of one more annotator; at least 0. It keeps an item's
        posterior near its votes where the annotators' answers say little about them.
    """

    strength: float | None = None
    variational: bool = True
    balanced: bool = False
    one_coin: bool = False
    votes: float = 0.75

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
        How alike annotators are, in answers: given, or as learnt. Of a strength that is learnt, each column of ``mass``
        has its power ``CAUTION`` as pseudo-answers.
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
    pooled = _pool(answers, rule.one_coin)
    used = strength
    if rule.strength is None:
        strength = _learn_strength(answers, pooled, strength)
        used = strength**CAUTION
    return Annotators(states, answers + used * pooled, strength, rule)


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


def _learn_strength(answers: FloatArray, pooled: FloatArray, strength: float) -> float:
    """Raise the probability of the answers, given the pooled matrix, and of the strength itself, by a few steps."""
    totals = answers.sum(axis=1)
    for _ in range(STEPS):
        prior = strength * pooled
        gained = float((pooled * (digamma(answers + prior) - digamma(prior))).sum())
        spent = float((digamma(totals + strength) - digamma(strength)).sum())
        # the strength's own prior: shape 2, mode FIRST_STRENGTH
        renewed = (strength * gained + 1.0) / (spent + 1.0 / FIRST_STRENGTH)
        strength = float(np.clip(renewed, *STRENGTHS))
    return strength
