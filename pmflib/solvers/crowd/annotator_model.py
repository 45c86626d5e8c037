"""Confusion matrices of annotators from expected counts: shrunk toward their like, by a strength that is learnt.

Every column of a confusion matrix, the PMF of an annotator's answers to items of one class, has a Dirichlet prior. Its
mean is the column that all annotators have together, but for how often this annotator is right: of that, answers to
items of all classes tell together, so that few do. How far annotators differ otherwise says how strong that prior is.

A class may have items of two kinds, which annotators answer in different ways: a latent state is a kind of a class.
States are in the order of the kinds, then of the classes: state ``s`` is of class ``s % n_classes``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import PmfError, SchemaError
from pmflib.level_blocks import FLOOR

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
VOTES = 0.75
"""Weight of the votes as evidence of their own, as if of so many more annotators: see benchmarks/crowd/stress.py."""
ENOUGH = 300.0
"""Mean number of answers of an annotator that halves it: the more there are, the more they tell by themselves."""
SCARCITY = 20.0
"""What is added to it, divided by the mean number of answers of an annotator."""
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
        Whether the votes are evidence of their own while annotators are estimated. It keeps an item's posterior near
        its votes where the annotators' answers say little about them, or mistakes have a common cause.
    kinds
        Kinds of items of every class that are told apart, 1 or 2. Where items differ otherwise than in their class,
        answers depend on each other given the class, and one state per class would be used for that: two classes come
        to share one, and a class to fill two. With states to spare, classes stay what the votes say they are.
    """

    strength: float | None = None
    variational: bool = True
    balanced: bool = False
    one_coin: bool = False
    votes: bool = True
    kinds: int = 1

    def __post_init__(self) -> None:
        if self.strength is not None and not 0 <= self.strength < np.inf:
            raise PmfError(f"strength is {self.strength}; give a finite number of at least 0")
        if self.kinds not in (1, 2):
            raise PmfError(f"kinds is {self.kinds}; give 1 or 2")
        if self.kinds == 2 and (self.one_coin or self.balanced or self.strength == 0):
            raise PmfError(
                f"kinds is 2, with strength {self.strength}, one_coin {self.one_coin} and balanced {self.balanced}; "
                "give 1, or leave these as they are: kinds are told apart by matrices that are free, and shrunk"
            )


@dataclass(frozen=True, eq=False)
class Annotators:
    """What is known of annotators and classes: parameters of Dirichlet distributions.

    Parameters
    ----------
    states
        float64 of shape (n_states,), of the probabilities of the states: as many for each class as the rule has kinds.
    mass
        float64 of shape (n_annotators, n_classes, n_states), of the answers (second axis) by true state (third).
    strength
        How alike annotators are, in answers, given or as learnt: the pseudo-answers in each column of ``mass``.
    rule
        How they were estimated.
    votes
        Weight of the votes beside the answers, as if of so many more annotators.
    """

    states: FloatArray
    mass: FloatArray
    strength: float
    rule: Rule
    votes: float = 0.0

    @property
    def prior(self) -> FloatArray:
        """Probabilities of the classes, (n_classes,); even where no item was seen."""
        return np.asarray(self._state_prior.reshape(self.rule.kinds, -1).sum(axis=0))

    @property
    def confusion(self) -> FloatArray:
        """PMF of each annotator's answers by true class, the mean; uniform where nothing is known."""
        by_state = self._state_confusion
        if self.rule.kinds == 1:
            return by_state
        shares = self._state_prior.reshape(self.rule.kinds, -1)
        by_kind = by_state.reshape(*by_state.shape[:2], *shares.shape)
        return np.asarray((by_kind * (shares / shares.sum(axis=0))).sum(axis=2))

    @property
    def _state_prior(self) -> FloatArray:
        if self.rule.balanced or not self.states.any():
            return np.full(self.states.size, 1.0 / self.states.size)
        return np.asarray(self.states / self.states.sum())

    @property
    def _state_confusion(self) -> FloatArray:
        mass = _turn(self.mass)
        totals = mass.sum(axis=0)
        even = 1.0 / len(mass)
        return _turn_back(np.where(totals > 0, mass / np.where(totals > 0, totals, 1.0), even))

    def take_logs(self) -> tuple[FloatArray, FloatArray]:
        """Weights of the states, (n_states,), and of answers, (n_annotators * n_classes, n_states); nats."""
        if self.rule.variational:
            weights = _take_mean_logs(self.mass)
        else:
            weights = np.log(np.maximum(self._state_confusion, FLOOR))
        return np.log(np.maximum(self._state_prior, FLOOR)), weights.reshape(-1, self.states.size)


def split_kinds(alike: Annotators) -> Annotators:
    """Start with two kinds of items of every class, as many of each: answered as is known, and nearer to guesses.

    Parameters
    ----------
    alike
        Annotators for whom all items of a class are of one kind.
    """
    blurred = alike.confusion**BLUR
    blurred *= alike.mass.sum(axis=1, keepdims=True) / blurred.sum(axis=1, keepdims=True)
    return replace(
        alike,
        states=np.tile(alike.states / 2, 2),
        mass=np.concatenate([alike.mass, blurred], axis=2),
        rule=replace(alike.rule, kinds=2),
    )


def update_annotators(
    level_mass: FloatArray, state_mass: FloatArray, rule: Rule, strength: float = FIRST_STRENGTH
) -> Annotators:
    """Estimate confusion matrices and the class prior from expected counts.

    Parameters
    ----------
    level_mass
        float64 of shape (n_annotators * n_classes, n_states): each annotator's answers of each label, by posterior
        state.
    state_mass
        float64 of shape (n_states,): items by posterior state.
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
    n_states = state_mass.size
    n_classes, left = divmod(n_states, rule.kinds)
    if left:
        raise SchemaError(
            f"state_mass has {n_states} states; {rule.kinds} kinds of every class ask for a multiple of {rule.kinds}"
        )
    if level_mass.ndim != 2 or level_mass.shape[1] != n_states or len(level_mass) % n_classes:
        raise SchemaError(
            f"level_mass has shape {level_mass.shape}; the {n_states} states of state_mass ask for "
            f"(n_annotators * {n_classes}, {n_states})"
        )
    answers = _turn(level_mass.reshape(-1, n_classes, n_states))
    votes = _weigh_votes(answers) if rule.votes else 0.0
    if rule.one_coin:
        answers = _share_evenly(answers)
    strength = strength if rule.strength is None else rule.strength
    states = state_mass + (1.0 if strength else 0.0)
    if not strength:
        return Annotators(states, _turn_back(answers), strength, rule, votes)
    means = _tilt(answers, _pool(answers, rule.one_coin), strength)
    if rule.strength is None:
        strength = _learn_strength(answers, means, strength)
    return Annotators(states, _turn_back(answers + strength * means), strength, rule, votes)


def _weigh_votes(answers: FloatArray) -> float:
    """Weight of the votes: the larger the fewer answers there are of an annotator, for these are then little known.

    It vanishes as answers grow: what annotators do is then known without the votes.
    """
    given = answers.sum(axis=(0, 1))
    # masses of posteriors, which add up to numbers of answers but for rounding
    n_answers = max(round(float(given.sum())), 1)
    # one over the mean number of answers of those who gave any
    scarcity = int((given > 0.5).sum()) / n_answers
    need = (ENOUGH * scarcity) ** 2
    return VOTES * need / (1.0 + need) + SCARCITY * scarcity


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
