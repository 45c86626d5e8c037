"""Label logs drawn at random that break what models assume, each in a way that the literature knows of real ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import ndtr

from benchmarks.crowd.planted_crowds import Crowd, draw_labels
from pmflib.base.arrays import FloatArray, IntArray

ScenarioName: TypeAlias = Literal[
    "plain", "coin", "bias", "grade", "tempt", "school", "order", "types", "spam", "adversary",
    "clique", "busy", "mixed",
]  # fmt: skip

CONCENTRATIONS = (3.0, 6.0, 15.0, 40.0)
"""Pseudo-labels of the pooled matrix in a worker's own, one of these for a crowd: how much workers are alike."""
MAX_ATTEMPTS = 100
"""Limit of the draws of a pooled matrix until every class is most often called by its name."""
N_CLIQUES = 3
"""Number of cliques whose workers repeat each other."""
GUESSED = np.array([0.0, 0.3, 0.6, 0.9])
"""Shares of guesses among the labels of tasks from easy to hard."""
POSITIONS = np.array([1, 3, 5, 7, 9]) / 10
"""Positions of tasks in the band of a scale that is their class."""


@dataclass(frozen=True)
class Scenario:
    """What is wrong with a crowd and its tasks: shares and probabilities, in [0, 1].

    Parameters
    ----------
    spammers, adversaries
        Shares of the workers.
    hardness
        Shares of the tasks from easy to hard, (4,).
    tempting, pull
        Share of the tasks with a tempting wrong label, and probability that a worker who is tempted gives it.
    followers
        Share of the workers who are tempted.
    copiers, copies
        Share of the workers in cliques, and of their labels that repeat another's.
    constants
        Share of the workers who give the same label to everything, whatever the task: each one of their own, or, if
        ``bought``, all of them the same.
    bought
        Whether these have one label together.
    """

    spammers: float = 0.06
    adversaries: float = 0.02
    hardness: tuple[float, ...] = (0.95, 0.05, 0.0, 0.0)
    tempting: float = 0.0
    pull: float = 0.0
    followers: float = 1.0
    copiers: float = 0.0
    copies: float = 0.0
    constants: float = 0.0
    bought: bool = False


def draw_crowd(
    n_tasks: int,
    n_workers: int,
    n_classes: int,
    n_labels: float,
    rng: np.random.Generator,
    *,
    scenario: ScenarioName = "plain",
    rare: bool = False,
    amounts: Scenario | None = None,
) -> Crowd:
    """Draw a crowd of whom some label little, or nonsense, better than chance on the whole.

    Parameters
    ----------
    n_tasks, n_workers, n_classes
        Sizes.
    n_labels
        Mean number of labels of a task, at least 1; as many as there are workers means that all label all tasks.
    rng
        Source of randomness.
    scenario
        What is unlike the model; how much of it there is, is drawn too. "plain": confusion matrices are about a common
        one [1]; a few spammers and a few guesses, as everywhere. "coin": each worker is right alike for all classes
        [2]. "bias": one class is often taken for others [3]. "grade": tasks are hard to many degrees [4]. "tempt": some
        tasks have a wrong label that tempts everybody, "school": that tempts some of the workers [5]. "order": classes
        are the bands of a scale, workers are lenient or severe, and tasks near an edge hard [6]. "types": workers are
        reliable, sloppy, or hardly better than chance [7]. "spam": many guess, or always give the same label [8].
        "adversary": many take classes for others on purpose [2]. "clique": workers repeat each other [9]. "busy": how
        good workers are goes with how many labels they give, either way. "mixed": some of everything.
    rare
        Whether all classes but one or two have a probability of a few per cent.
    amounts
        How much there is of everything, in place of what is drawn for the scenario.

    References
    ----------
    [1] Kim, Ghahramani (2012), AISTATS. [2] Karger, Oh, Shah (2014), Operations Research 62. [3] Ipeirotis, Provost,
    Wang (2010), HCOMP. [4] Whitehill et al. (2009), NIPS. [5] Welinder et al. (2010), NIPS. [6] Lakshminarayanan, Teh
    (2013), arXiv:1305.0015. [7] Venanzi et al. (2014), WWW. [8] Raykar, Yu (2012), JMLR 13. [9] Dong, Berti-Equille,
    Srivastava (2009), VLDB.
    """
    drawn = amounts or _draw_scenario(scenario, rng)
    prior = _draw_prior(n_classes, rare, rng)
    pooled = _draw_pooled(n_classes, scenario, rng)
    activity = np.log(rng.gamma(0.7, 1.0, n_workers) + 0.02)
    if scenario == "order":
        confusion, shares = _grade_scale(n_workers, n_classes, rng)
    else:
        confusion, shares = _draw_workers(pooled, n_workers, scenario, rng)[None], np.ones(1)
        if scenario == "busy" or (scenario == "mixed" and rng.random() < 0.5):
            confusion = confusion[:, _sort_by_skill(confusion[0], activity, rng)]
        confusion, shares = _make_hard(confusion, shares, drawn)
        confusion, shares = _tempt(confusion, shares, pooled, drawn, rng)
    _spoil(confusion, drawn, rng)
    truth = rng.choice(n_classes, n_tasks, p=prior)
    variety = rng.choice(shares.size, n_tasks, p=shares)
    task, worker = _assign(n_tasks, activity, n_labels, rng)
    label = draw_labels(confusion[variety[task], worker, :, truth[task]], rng)
    label = _copy(task, worker, label, n_workers, drawn, rng)
    return Crowd(task, worker, label, truth, prior, np.tensordot(shares, confusion, 1))


def _draw_scenario(name: ScenarioName, rng: np.random.Generator) -> Scenario:
    """Draw how much there is of what a scenario has."""
    many = Scenario(
        spammers=rng.uniform(0.15, 0.4),
        adversaries=rng.uniform(0.05, 0.15),
        hardness=tuple(rng.dirichlet([4.0, 2.0, 1.0, 1.0])),
        tempting=rng.uniform(0.05, 0.3),
        pull=rng.uniform(0.2, 0.6),
        followers=rng.uniform(0.3, 0.6),
        copiers=rng.uniform(0.1, 0.35),
        copies=rng.uniform(0.3, 0.7),
    )
    fields = {
        "spam": ("spammers",),
        "adversary": ("adversaries",),
        "grade": ("hardness",),
        "tempt": ("tempting", "pull"),
        "school": ("tempting", "pull", "followers"),
        "clique": ("copiers", "copies"),
    }
    if name == "mixed":
        halved = ("spammers", "adversaries", "tempting", "copiers")
        return replace(many, **{field: getattr(many, field) / 2 for field in halved})
    return Scenario(**{field: getattr(many, field) for field in fields.get(name, ())})


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


def _draw_pooled(n_classes: int, scenario: ScenarioName, rng: np.random.Generator) -> FloatArray:
    """Common confusion matrix, labels by true class, in which every class is most often called by its name."""
    others = ~np.eye(n_classes, dtype=bool)
    pooled = np.eye(n_classes)
    for _ in range(MAX_ATTEMPTS):
        accuracy = rng.uniform(0.6, 0.88) if n_classes == 2 else rng.uniform(0.5, 0.85)
        right = np.full(n_classes, accuracy)
        wrong = np.full((n_classes, n_classes - 1), 1.0 / max(n_classes - 1, 1))
        if scenario != "coin":
            right = np.clip(right + rng.normal(0, 0.08, n_classes), 0.4, 0.97)
            wrong = rng.dirichlet(np.full(n_classes - 1, 0.7), n_classes)
        if scenario == "bias":
            right[rng.integers(n_classes)] -= 0.2
        pooled.T[others] = (wrong * (1 - right)[:, None]).ravel()
        np.fill_diagonal(pooled, right)
        rival = np.where(others, pooled, 0.0).max(axis=0)
        if (right >= 1.15 * rival).all() and right.min() > 1.2 / n_classes:
            break
    return pooled


def _draw_workers(
    pooled: FloatArray, n_workers: int, scenario: ScenarioName, rng: np.random.Generator
) -> FloatArray:
    """Confusion matrices, (n_workers, n_classes, n_classes)."""
    n_classes = len(pooled)
    if scenario == "coin":
        accuracy = float(pooled[0, 0])
        right = rng.beta(8 * accuracy, 8 * (1 - accuracy), n_workers)[:, None, None]
        wrong = (1 - right) / max(n_classes - 1, 1)
        return np.where(np.eye(n_classes, dtype=bool), right, wrong)
    concentration = rng.choice(CONCENTRATIONS)
    columns = [rng.dirichlet(concentration * column + 0.02, n_workers) for column in pooled.T]
    confusion = np.stack(columns, axis=2)
    if scenario == "types":
        shares = rng.dirichlet([4.0, 3.0, 1.5])
        blur = rng.choice([0.0, 0.4, 0.85], n_workers, p=shares)[:, None, None]
        confusion = (1 - blur) * confusion + blur / n_classes
    return confusion


def _grade_scale(
    n_workers: int, n_classes: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Confusion matrices where classes are bands of a scale, by a task's position in its band; shares of positions."""
    lenience = rng.normal(0, rng.uniform(0.1, 0.4), n_workers)[:, None, None]
    noise = rng.lognormal(np.log(rng.uniform(0.35, 0.8)), 0.4, n_workers)[:, None, None]
    steps = np.arange(1, n_classes)[:, None] - np.arange(n_classes)
    below = ndtr((steps - POSITIONS[:, None, None, None] - lenience) / noise)
    confusion = np.diff(below, axis=2, prepend=0.0, append=1.0)
    return confusion, np.full(POSITIONS.size, 1 / POSITIONS.size)


def _sort_by_skill(
    confusion: FloatArray, activity: FloatArray, rng: np.random.Generator
) -> IntArray:
    """Order of workers that lets skill go with activity, one way or the other."""
    skill = np.trace(confusion, axis1=1, axis2=2)
    skill = skill + rng.normal(0, skill.std() + 1e-9, skill.size)
    order = np.empty(skill.size, np.int64)
    order[np.argsort(activity)] = np.argsort(rng.choice([-1, 1]) * skill)
    return order


def _make_hard(
    confusion: FloatArray, shares: FloatArray, scenario: Scenario
) -> tuple[FloatArray, FloatArray]:
    """Confusion matrices by how hard a task is, and by what it was before."""
    guessed = GUESSED[:, None, None, None, None]
    parts = (1 - guessed) * confusion + guessed / confusion.shape[-1]
    return parts.reshape(-1, *confusion.shape[1:]), np.outer(scenario.hardness, shares).ravel()


def _tempt(
    confusion: FloatArray,
    shares: FloatArray,
    pooled: FloatArray,
    scenario: Scenario,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Confusion matrices by whether a task tempts with a wrong label, and by what it was before."""
    if not scenario.tempting:
        return confusion, shares
    n_classes = len(pooled)
    wrong = np.where(np.eye(n_classes, dtype=bool), 0.0, pooled + 1e-3)
    wrong /= wrong.sum(axis=0)
    lure = np.zeros_like(pooled)
    lure[draw_labels(wrong.T, rng), np.arange(n_classes)] = 1.0
    tempted = rng.random((confusion.shape[1], 1, 1)) < scenario.followers
    pull = np.where(tempted, scenario.pull, 0.0)
    parts = np.concatenate([confusion, (1 - pull) * confusion + pull * lure])
    return parts, np.outer([1 - scenario.tempting, scenario.tempting], shares).ravel()


def _spoil(confusion: FloatArray, scenario: Scenario, rng: np.random.Generator) -> None:
    """Let some workers guess, some always give the same label, and some swap classes; in place, for all tasks."""
    n_classes = confusion.shape[-1]
    draw = rng.random(confusion.shape[1])
    spam = scenario.spammers
    confusion[:, draw < spam / 2] = 1.0 / n_classes
    for worker in np.flatnonzero((draw >= spam / 2) & (draw < spam)):
        confusion[:, worker] = 0.02 / n_classes
        confusion[:, worker, rng.integers(n_classes)] += 0.98
    for worker in np.flatnonzero((draw >= spam) & (draw < spam + scenario.adversaries)):
        confusion[:, worker] = confusion[:, worker][:, :, rng.permutation(n_classes)]
    # so many of them, not each with that probability: a share of a few workers is what the regime is named for
    n_constant = round(scenario.constants * confusion.shape[1])
    if n_constant:
        given = rng.integers(n_classes, size=1 if scenario.bought else n_constant)
        constant = rng.permutation(confusion.shape[1])[:n_constant]
        confusion[:, constant] = np.eye(n_classes)[np.broadcast_to(given, n_constant), :, None]


def _assign(
    n_tasks: int, activity: FloatArray, n_labels: float, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Task and worker of every label, by the logarithms of the workers' activity."""
    n_workers = activity.size
    if n_labels >= n_workers:
        return np.divmod(np.arange(n_tasks * n_workers), n_workers)
    even = n_labels >= 3 and rng.random() < 0.6
    sizes = np.full(n_tasks, round(n_labels)) if even else 1 + rng.poisson(n_labels - 1, n_tasks)
    # the largest of perturbed log weights are a draw without replacement
    order = np.argsort(-(activity + rng.gumbel(size=(n_tasks, n_workers))), axis=1)
    taken = np.arange(n_workers) < sizes[:, None]
    task, _ = np.nonzero(taken)
    return task, order[taken]


def _copy(
    task: IntArray,
    worker: IntArray,
    label: IntArray,
    n_workers: int,
    scenario: Scenario,
    rng: np.random.Generator,
) -> IntArray:
    """Let the workers of a clique repeat at times who of it was first."""
    inside = rng.random(n_workers) < scenario.copiers
    clique = np.where(inside, rng.integers(0, N_CLIQUES, n_workers), -1)[worker]
    indices = np.flatnonzero(clique >= 0)
    _, first, group = np.unique(
        task[indices] * N_CLIQUES + clique[indices], return_index=True, return_inverse=True
    )
    copied = label.copy()
    follows = rng.random(indices.size) < scenario.copies
    copied[indices[follows]] = label[indices[first[group]]][follows]
    return copied
