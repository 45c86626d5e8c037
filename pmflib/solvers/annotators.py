"""Confusion matrices of annotators from expected counts: shrunk toward their like, by a strength that is learnt.

Every column of a confusion matrix, the PMF of an annotator's answers to items of one class, has a Dirichlet prior. Its
mean is the column that all annotators have together, but for how often this annotator is right: of that, answers to
items of all classes tell together, so that few do. How far annotators differ otherwise says how strong that prior is.

A class may have items of several kinds, which annotators answer in different ways: a latent state is a kind of a class.
States are in the order of their kinds, then of their classes: state ``s`` is of class ``s % n_classes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

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
BLUR = 0.3
"""Power of the probabilities of answers to items of the second kind, to begin with: nearer to guesses."""


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
    kinds
        Most kinds of items of a class that are told apart, 1 or 2; a second is only where the answers ask for it.
    """

    strength: float | None = None
    variational: bool = True
    balanced: bool = False
    one_coin: bool = False
    votes: float = 1.5
    kinds: int = 1

    def __post_init__(self) -> None:
        for name, value in (("strength", self.strength), ("votes", self.votes)):
            if value is not None and not 0 <= value < np.inf:
                raise PmfError(f"{name} is {value}; give a finite number of at least 0")
        if self.kinds not in (1, 2):
            raise PmfError(f"kinds is {self.kinds}; give 1 or 2")
        if self.kinds > 1 and (self.one_coin or self.balanced or self.strength == 0):
            raise PmfError(
                f"kinds is {self.kinds}, with strength {self.strength}, one_coin {self.one_coin} and balanced "
                f"{self.balanced}; give 1, or leave these as they are: a second kind takes matrices that are free and "
                "shrunk, and a class prior that is free"
            )


@dataclass(frozen=True, eq=False)
class Annotators:
    """What is known of annotators and classes: parameters of Dirichlet distributions.

    Parameters
    ----------
    states
        float64 of shape (n_states,), of the probabilities of the states: kinds of items, times classes.
    mass
        float64 of shape (n_annotators, n_classes, n_states), of the answers (second axis) by true state (third).
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
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.mass.shape[1])

    @property
    def n_kinds(self) -> int:
        """Kinds of items of every class that are told apart."""
        return self.states.size // max(self.n_classes, 1)

    @property
    def prior(self) -> FloatArray:
        """Probabilities of the classes, (n_classes,); even where no item was seen."""
        return np.asarray(self._state_prior.reshape(self.n_kinds, self.n_classes).sum(axis=0))

    @property
    def confusion(self) -> FloatArray:
        """PMF of each annotator's answers by true class, the mean; uniform where nothing is known."""
        by_state = self._state_confusion
        if self.n_kinds == 1:
            return by_state
        shares = self._state_prior.reshape(self.n_kinds, self.n_classes)
        shares = shares / shares.sum(axis=0)
        by_kind = by_state.reshape(*by_state.shape[:2], self.n_kinds, self.n_classes)
        return np.asarray((by_kind * shares).sum(axis=2))

    @property
    def _state_prior(self) -> FloatArray:
        if self.rule.balanced or not self.states.any():
            return np.full(self.states.size, 1.0 / self.states.size)
        return np.asarray(self.states / self.states.sum())

    @property
    def _state_confusion(self) -> FloatArray:
        mass = _turn(self.mass)
        totals = mass.sum(axis=0)
        even = 1.0 / self.n_classes
        return _turn_back(np.where(totals > 0, mass / np.where(totals > 0, totals, 1.0), even))

    def take_logs(self) -> tuple[FloatArray, FloatArray]:
        """Weights of the states, (n_states,), and of answers, (n_annotators * n_classes, n_states); nats."""
        if self.rule.variational:
            weights = _take_mean_logs(self.mass)
        else:
            weights = np.log(np.maximum(self._state_confusion, FLOOR))
        return np.log(np.maximum(self._state_prior, FLOOR)), weights.reshape(-1, self.states.size)


def split_kinds(known: Annotators) -> Annotators:
    """Start of two kinds of items of every class: those that annotators answer as is known, and as many that they blur.

    Parameters
    ----------
    known
        Annotators of one kind.
    """
    totals = known.mass.sum(axis=1, keepdims=True)
    blurred = known.confusion**BLUR
    blurred *= totals / blurred.sum(axis=1, keepdims=True)
    mass = np.concatenate([known.mass, blurred], axis=2)
    return replace(known, states=np.tile(known.states / 2, 2), mass=mass)


def measure_divergence(known: Annotators, answers: FloatArray) -> float:
    """What the answers have taught of the annotators: divergence from what was known beforehand, nats.

    The log-likelihood of the items under the mean logarithms, less this, is a lower bound of the logarithm of their
    probability (but for what the prior's own parameters were chosen by), by which models of more and of fewer states
    can be compared.

    Parameters
    ----------
    known
        Annotators, of a strength above 0.
    answers
        float64 of shape (n_annotators * n_classes, n_states), what they were estimated from.

    References
    ----------
    Kim, Ghahramani (2012), Bayesian classifier combination; Bishop (2006), section 10.2, for the bound.
    """
    mass = _turn(known.mass)
    gained = _turn(answers.reshape(known.mass.shape))
    first = np.maximum(mass - gained, FLOOR)
    logs = _turn(_take_mean_logs(known.mass))
    norms = gammaln(mass.sum(axis=0)) - gammaln(first.sum(axis=0))
    return float(norms.sum() + (gammaln(first) - gammaln(mass) + gained * logs).sum())


def update_annotators(
    level_mass: FloatArray,
    state_mass: FloatArray,
    rule: Rule,
    strength: float = FIRST_STRENGTH,
    *,
    n_kinds: int = 1,
) -> Annotators:
    """Estimate confusion matrices and the class prior from expected counts.

    Parameters
    ----------
    level_mass
        float64 of shape (n_annotators * n_classes, n_states): answers of each annotator and sort, by posterior state.
    state_mass
        float64 of shape (n_states,): items by posterior state.
    rule
        What is estimated.
    strength
        The one before, where it is learnt.
    n_kinds
        Kinds of items of every class.

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
    n_states = state_mass.size
    n_classes = n_states // n_kinds
    if level_mass.ndim != 2 or level_mass.shape[1] != n_states or len(level_mass) % n_classes:
        raise SchemaError(
            f"level_mass has shape {level_mass.shape}; the {n_states} states of state_mass ask for "
            f"(n_annotators * {n_classes}, {n_states})"
        )
    answers = _turn(level_mass.reshape(-1, n_classes, n_states))
    if rule.one_coin:
        answers = _share_evenly(answers)
    strength = strength if rule.strength is None else rule.strength
    states = state_mass + (1.0 if strength else 0.0)
    if not strength:
        return Annotators(states, _turn_back(answers), strength, rule)
    means = _tilt(answers, _pool(answers, rule.one_coin), strength)
    if rule.strength is None:
        strength = _learn_strength(answers, means, strength)
    return Annotators(states, _turn_back(answers + strength * means), strength, rule)


def _turn(by_annotator: FloatArray) -> FloatArray:
    """From (n_annotators, n_classes, n_states) to (n_classes, n_states, n_annotators), in which sums are fast."""
    return np.ascontiguousarray(by_annotator.transpose(1, 2, 0))


def _turn_back(by_cell: FloatArray) -> FloatArray:
    return np.ascontiguousarray(by_cell.transpose(2, 0, 1))


def _take_mean_logs(mass: FloatArray) -> FloatArray:
    """Means of the logarithms of PMFs that have Dirichlet distributions, of the shape of their parameters."""
    from pmflib.kernels.digamma import digamma

    mass = _turn(mass)
    logs = digamma(np.maximum(mass, FLOOR))
    logs -= digamma(np.maximum(mass.sum(axis=0), FLOOR))
    # unnormalised weights below this are as good as zero, and safe to add up
    return _turn_back(np.maximum(logs, np.log(FLOOR), out=logs))


def _pool(answers: FloatArray, one_coin: bool) -> FloatArray:
    """Confusion matrix of all annotators together, (n_classes, n_states)."""
    total = answers.sum(axis=2) + SPREAD + HALF * _mark_right(*answers.shape[:2])
    if one_coin:
        total = _share_evenly(total[:, :, None])[:, :, 0]
    return np.asarray(total / total.sum(axis=0))


def _mark_right(n_classes: int, n_states: int) -> FloatArray:
    """Where answers are right, (n_classes, n_states): 1, and 0 elsewhere."""
    return np.tile(np.eye(n_classes), n_states // n_classes)


def _share_evenly(answers: FloatArray) -> FloatArray:
    """Answers as right and wrong alone, every class and every mistake alike."""
    n_classes = len(answers)
    right = np.trace(answers)
    wrong = answers.sum(axis=(0, 1)) - right
    even = np.empty_like(answers)
    even[:] = np.maximum(wrong, 0.0) / max(n_classes * (n_classes - 1), 1)
    diagonal = np.arange(n_classes)
    even[diagonal, diagonal] = right / n_classes
    return even


def _tilt(answers: FloatArray, pooled: FloatArray, strength: float) -> FloatArray:
    """Pooled matrix as it is for annotators who are right as often as each: (n_classes, n_states, n_annotators).

    The odds of being right are those of the pooled matrix times a factor of the annotator, the same for all classes,
    whose logarithm is normal and found by Newton's steps; mistakes are shared out as in the pooled matrix.
    """
    from pmflib.kernels.skills import step_skills

    n_classes, n_states, n_annotators = answers.shape
    if n_classes == 1:
        return np.ones_like(answers)
    states = np.arange(n_states)
    named = states % n_classes
    totals, right = answers.sum(axis=0), answers[named, states]
    # answers to items of one state repeat what the annotator's own column says: more of them say no more of the skill
    worth = (1.0 + strength) / (totals + strength)
    totals *= worth
    right *= worth
    wrong = np.where(_mark_right(n_classes, n_states) > 0, 0.0, pooled).sum(axis=0)
    odds = pooled[named, states] / wrong
    skills = np.zeros(n_annotators)
    slopes, bends = np.empty_like(skills), np.empty_like(skills)
    for _ in range(SKILL_STEPS):
        step_skills(right, totals, odds, np.exp(skills), SKILL_SPREAD, slopes, bends, skills)
    ahead = odds[:, None] * np.exp(skills)
    missed = 1.0 / (1.0 + ahead)
    means: FloatArray = pooled[:, :, None] * (missed / wrong[:, None])
    means[named, states] = ahead * missed
    return means


def _learn_strength(answers: FloatArray, means: FloatArray, strength: float) -> float:
    """Raise the probability of the answers, given the prior's means, and of the strength itself, by a few steps."""
    from pmflib.kernels.digamma import digamma, sum_rises

    totals = answers.sum(axis=0)
    for _ in range(STEPS):
        gained = sum_rises(answers, means, strength)
        spent = float((digamma(totals + strength) - digamma(np.full(1, strength))).sum())
        # the strength's own prior: shape 2, mode FIRST_STRENGTH
        renewed = (strength * gained + 1.0) / (spent + 1.0 / FIRST_STRENGTH)
        strength = float(np.clip(renewed, *STRENGTHS))
    return strength
