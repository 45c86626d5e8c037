"""Label logs drawn at random: the published experiments' crowds, and crowds that break what models assume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError

Version: TypeAlias = Literal["code", "text"]
Flavour: TypeAlias = Literal["plain", "coin", "hard", "spam", "bias", "clique"]

CONCENTRATIONS = (3.0, 6.0, 15.0, 40.0)
"""How much annotators of a crowd are alike: pseudo-answers of the pooled matrix."""
LEAST_PRIOR = 0.05
"""Least probability of a class in the text's published crowd."""
ATTEMPTS = 100


@dataclass(frozen=True, eq=False)
class Crowd:
    """A label log and its truth.

    Parameters
    ----------
    task, worker, label
        int64 of shape (n_answers,), the columns of the log.
    truth
        int64 of shape (n_tasks,).
    prior, confusion
        What it was drawn from: (n_classes,), and (n_workers, n_classes, n_classes), answers by true class.
    """

    task: IntArray
    worker: IntArray
    label: IntArray
    truth: IntArray
    prior: FloatArray
    confusion: FloatArray

    @property
    def answers(self) -> dict[str, IntArray]:
        """The log as a table."""
        return {"task": self.task, "worker": self.worker, "label": self.label}

    def measure(self, prior: FloatArray, confusion: FloatArray) -> float:
        """Mean squared error of an estimate, under the order of classes that suits it best.

        Parameters
        ----------
        prior, confusion
            As those of the crowd: (n_classes,), and (n_workers, n_classes, n_classes).

        References
        ----------
        Ibrahim, Fu (2021), ICML, equation (19).
        """
        n_classes = prior.size
        actual, found = self.confusion.reshape(-1, n_classes), confusion.reshape(-1, n_classes)
        costs = ((actual[:, :, None] - found[:, None, :]) ** 2).sum(axis=0)
        columns = linear_sum_assignment(costs)[1]
        error = ((self.prior - prior[columns]) ** 2).sum()
        error += ((actual - found[:, columns]) ** 2).sum()
        return float(error / (len(actual) + 1))


def draw_published_crowd(
    n_tasks: int,
    rng: np.random.Generator,
    *,
    version: Version = "code",
    n_workers: int = 25,
    n_classes: int = 3,
    observed: float = 0.3,
) -> Crowd:
    """Draw a crowd as the published synthetic experiment does.

    Parameters
    ----------
    n_tasks, n_workers, n_classes
        Sizes.
    rng
        Source of randomness.
    version
        "code": one annotator near the identity, the others' columns uniform numbers scaled to sum 1, all classes
        equally probable. "text": columns and prior are Dirichlet(1, ..., 1), no class rarer than ``LEAST_PRIOR``, and
        one annotator within 0.1 of the identity.
    observed
        Probability that an annotator answers a task.

    Raises
    ------
    PmfError
        If the version is unknown.

    References
    ----------
    Ibrahim, Fu (2021), ICML, section 5; its released code draws otherwise than its text says.
    """
    if version == "code":
        confusion = rng.random((n_workers, n_classes, n_classes))
        expert = np.eye(n_classes) + rng.uniform(0, 0.25, (n_classes, 1))
        prior = np.full(n_classes, 1.0 / n_classes)
    elif version == "text":
        confusion = rng.dirichlet(np.ones(n_classes), (n_workers, n_classes)).transpose(0, 2, 1)
        noise = rng.dirichlet(np.ones(n_classes), n_classes).T
        expert = 0.9 * np.eye(n_classes) + 0.1 * noise
        prior = rng.dirichlet(np.ones(n_classes))
        while prior.min() < LEAST_PRIOR:
            prior = rng.dirichlet(np.ones(n_classes))
    else:
        raise PmfError(f"version is {version!r}; give 'code' or 'text'")
    confusion[rng.integers(n_workers)] = expert
    confusion /= confusion.sum(axis=1, keepdims=True)
    truth = rng.choice(n_classes, n_tasks, p=prior)
    task, worker = np.nonzero(rng.random((n_tasks, n_workers)) < observed)
    label = _answer(confusion[worker, :, truth[task]], rng)
    return Crowd(task, worker, label, truth, prior, confusion)


def draw_crowd(
    n_tasks: int,
    n_workers: int,
    n_classes: int,
    n_answers: float,
    rng: np.random.Generator,
    *,
    flavour: Flavour = "plain",
    rare: bool = False,
) -> Crowd:
    """Draw a crowd of which some answer little, or nonsense, better than chance on the whole.

    Parameters
    ----------
    n_tasks, n_workers, n_classes
        Sizes.
    n_answers
        Mean number of answers of a task, at least 1; as many as there are workers means that all answer.
    rng
        Source of randomness.
    flavour
        "plain": confusion matrices about a common one. "coin": each worker right alike for all classes. "hard": a
        fifth of the tasks has a tempting wrong label. "spam": three workers in ten guess, or always give the same
        label. "bias": one class is often taken for others. "clique": workers of a clique repeat each other. All but
        "hard" have a few hard tasks, all but "spam" a few spammers.
    rare
        Whether all classes but one or two have a probability of a few per cent.
    """
    prior = _draw_prior(n_classes, rare, rng)
    pooled = _draw_pooled(n_classes, flavour, rng)
    confusion = _draw_annotators(pooled, n_workers, flavour, rng)
    truth = rng.choice(n_classes, n_tasks, p=prior)
    task, worker = _assign(n_tasks, n_workers, n_answers, rng)
    chances = confusion[worker, :, truth[task]]
    hard = (rng.random(n_tasks) < (0.2 if flavour == "hard" else 0.05))[task]
    if flavour == "hard":
        tempting = _answer(pooled.T[truth], rng)
        chances[hard] *= 0.65
        chances[hard, tempting[task[hard]]] += 0.35
    else:
        chances[hard] = 0.7 * chances[hard] + 0.3 / n_classes
    label = _answer(chances, rng)
    if flavour == "clique":
        label = _copy(task, worker, label, n_workers, rng)
    return Crowd(task, worker, label, truth, prior, confusion)


def _answer(chances: FloatArray, rng: np.random.Generator) -> IntArray:
    """One answer for each row of probabilities."""
    edges = np.cumsum(chances[:, :-1], axis=1)
    answers: IntArray = (rng.random((len(chances), 1)) > edges).sum(axis=1)
    return answers


def _draw_prior(n_classes: int, rare: bool, rng: np.random.Generator) -> FloatArray:
    if not rare:
        if rng.random() < 0.5:
            return np.full(n_classes, 1.0 / n_classes)
        prior = np.maximum(rng.dirichlet(np.full(n_classes, 2.0)), 0.03)
        return np.asarray(prior / prior.sum())
    prior = rng.uniform(0.02, 0.08, n_classes)
    prior[-1] = 1 - prior[:-1].sum()
    if n_classes >= 5:
        prior[-2:] += [0.25, -0.25]
    return np.asarray(prior)


def _draw_pooled(n_classes: int, flavour: str, rng: np.random.Generator) -> FloatArray:
    """Common confusion matrix, answers by true class, in which every class is most often called by its name."""
    others = ~np.eye(n_classes, dtype=bool)
    pooled = np.eye(n_classes)
    for _ in range(ATTEMPTS):
        accuracy = rng.uniform(0.6, 0.88) if n_classes == 2 else rng.uniform(0.5, 0.85)
        right = np.full(n_classes, accuracy)
        wrong = np.full((n_classes, n_classes - 1), 1.0 / max(n_classes - 1, 1))
        if flavour != "coin":
            right = np.clip(right + rng.normal(0, 0.08, n_classes), 0.4, 0.97)
            wrong = rng.dirichlet(np.full(n_classes - 1, 0.7), n_classes)
        if flavour == "bias":
            right[rng.integers(n_classes)] -= 0.2
        pooled.T[others] = (wrong * (1 - right)[:, None]).ravel()
        np.fill_diagonal(pooled, right)
        rival = np.where(others, pooled, 0.0).max(axis=0)
        if (right >= 1.15 * rival).all() and right.min() > 1.2 / n_classes:
            break
    return pooled


def _draw_annotators(
    pooled: FloatArray, n_workers: int, flavour: str, rng: np.random.Generator
) -> FloatArray:
    n_classes = len(pooled)
    if flavour == "coin":
        accuracy = float(pooled[0, 0])
        right = rng.beta(8 * accuracy, 8 * (1 - accuracy), n_workers)[:, None, None]
        confusion = np.where(
            np.eye(n_classes, dtype=bool), right, (1 - right) / max(n_classes - 1, 1)
        )
    else:
        strength = rng.choice(CONCENTRATIONS)
        columns = [rng.dirichlet(strength * column + 0.02, n_workers) for column in pooled.T]
        confusion = np.stack(columns, axis=2)
    kind = rng.random(n_workers)
    spam = 0.3 if flavour == "spam" else 0.06
    confusion[kind < spam / 2] = 1.0 / n_classes
    for worker in np.flatnonzero((kind >= spam / 2) & (kind < spam)):
        confusion[worker] = 0.02 / n_classes
        confusion[worker, rng.integers(n_classes)] += 0.98
    for worker in np.flatnonzero((kind >= spam) & (kind < spam + 0.02)):
        confusion[worker] = confusion[worker][:, rng.permutation(n_classes)]
    return confusion


def _assign(
    n_tasks: int, n_workers: int, n_answers: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Who answers what; some workers answer much more than others."""
    if n_answers >= n_workers:
        return np.divmod(np.arange(n_tasks * n_workers), n_workers)
    activity = np.log(rng.gamma(0.7, 1.0, n_workers) + 0.02)
    even = n_answers >= 3 and rng.random() < 0.6
    wanted = np.full(n_tasks, round(n_answers)) if even else 1 + rng.poisson(n_answers - 1, n_tasks)
    # the largest of perturbed log weights are a draw without replacement
    order = np.argsort(-(activity + rng.gumbel(size=(n_tasks, n_workers))), axis=1)
    taken = np.arange(n_workers) < wanted[:, None]
    task, _ = np.nonzero(taken)
    return task, order[taken]


def _copy(
    task: IntArray, worker: IntArray, label: IntArray, n_workers: int, rng: np.random.Generator
) -> IntArray:
    """Let a quarter of the workers, in three cliques, repeat half of the time who of the clique was first."""
    clique = np.where(rng.random(n_workers) < 0.25, rng.integers(0, 3, n_workers), -1)[worker]
    inside = np.flatnonzero(clique >= 0)
    _, first, group = np.unique(
        task[inside] * 3 + clique[inside], return_index=True, return_inverse=True
    )
    copied = label.copy()
    follows = rng.random(inside.size) < 0.5
    copied[inside[follows]] = label[inside[first[group]]][follows]
    return copied
