"""The joint PMF of true tags, from tags of workers who may be wrong: latent classes over confusion matrices.

A latent class of tasks has a probability of every tag, and given the class tags are independent: together they are a
joint PMF of as many binary variables as there are tags (`pmflib.JointPMF`). Of every tag, each worker has a confusion
matrix of two by two. So what is known of one tag of a task says something of the others, which one aggregation per tag
does not see; with one latent class the model is just that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pmflib.core.arrays import FLOOR, BoolArray, FloatArray, IntArray
from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel

WORKERS = AnnotatorModel(votes=False)
"""How labels of workers are weighed: by means of logarithms."""
PSEUDO_WEIGHT = 30.0
"""Votes that what a worker does with all tags is worth beside those to one tag, true or not. Chosen on the tuned
seeds of benchmarks/crowd/tags.py, as the next."""
PSEUDO_RIGHT = 10.0
"""Votes that what all workers do is worth beside those of one."""
PSEUDO_POOLED = 0.5
"""Votes of yes and of no of all workers to every tag, true or not: nothing is ruled out."""
PSEUDO_TASKS = 1.0
"""Tasks of average tags in every latent class: nothing is ruled out."""
PSEUDO_VOTES = 0.5
"""Votes of yes and of no that every tag of a task is given beforehand where passes begin."""
PATIENCE = 1e-4
"""Log-likelihood that a pass must gain for another to follow, nats per task."""
CELLS = 1 << 22
"""Tasks times tags times latent classes that are worked on at a time."""


class Taggings:
    """Taggings of workers about tags of tasks, for passes over them.

    Parameters
    ----------
    taggings, given
        As in `pmflib.crowd.tag_log.TagLog`.
    n_tasks, n_workers, n_tags
        Numbers.
    hidden
        bool of shape (n_tasks, n_tags): tags of tasks whose votes are not looked at; None hides none.
    """

    def __init__(
        self,
        taggings: IntArray,
        given: IntArray,
        n_tasks: int,
        n_workers: int,
        n_tags: int,
        hidden: BoolArray | None = None,
    ) -> None:
        from scipy.sparse import csr_array

        self.n_tasks, self.n_workers, self.n_tags = n_tasks, n_workers, n_tags
        tasks, workers = taggings.T
        self.asked = csr_array((np.ones(len(taggings)), (tasks, workers)), (n_tasks, n_workers))
        tags = given[:, 1]
        self.cells = tasks[given[:, 0]] * n_tags + tags
        self.levels = workers[given[:, 0]] * n_tags + tags
        self.hidden = hidden

    @cached_property
    def seen(self) -> FloatArray:
        """Whether the votes on a tag of a task are looked at, 1 or 0, (n_tasks, n_tags)."""
        shape = self.n_tasks, self.n_tags
        return np.ones(shape) if self.hidden is None else (~self.hidden).astype(np.float64)

    @cached_property
    def votes(self) -> FloatArray:
        """Share of the workers who gave each tag, of those who tagged the task, (n_tasks, n_tags)."""
        yes = np.bincount(self.cells, minlength=self.n_tasks * self.n_tags)
        asked = np.asarray(self.asked.sum(axis=1))[:, None]
        return np.asarray(
            (yes.reshape(-1, self.n_tags) + PSEUDO_VOTES) / (asked + 2 * PSEUDO_VOTES)
        )

    def weigh(self, logs: FloatArray) -> FloatArray:
        """Sums of the log-weights of the votes on each tag by its true value, (n_tasks, n_tags, 2), nats.

        Parameters
        ----------
        logs
            float64 of shape (n_workers, n_tags, 2, 2): of a vote (third axis) by the truth (fourth).
        """
        sums = self.asked @ logs[:, :, 0].reshape(self.n_workers, -1)
        sums = sums.reshape(-1, 2)
        more = (logs[:, :, 1] - logs[:, :, 0]).reshape(-1, 2)
        for truth in range(2):
            sums[:, truth] += np.bincount(self.cells, more[self.levels, truth], minlength=len(sums))
        return sums.reshape(self.n_tasks, self.n_tags, 2)

    def count(self, shares: FloatArray) -> FloatArray:
        """Expected votes of each worker by tag, vote and truth, (n_workers, n_tags, 2, 2).

        Parameters
        ----------
        shares
            float64 of shape (n_tasks, n_tags): probability that each tag is true.
        """
        mass = np.empty((self.n_workers, self.n_tags, 2, 2))
        for truth, part in enumerate(((1 - shares) * self.seen, shares * self.seen)):
            yes = np.bincount(
                self.levels, part.ravel()[self.cells], minlength=self.n_workers * self.n_tags
            ).reshape(-1, self.n_tags)
            mass[:, :, 1, truth] = yes
            mass[:, :, 0, truth] = np.maximum(self.asked.T @ part - yes, 0.0)
        return mass


@dataclass(frozen=True, eq=False)
class TagModel:
    """Latent classes of tags, and the workers.

    Parameters
    ----------
    prior
        float64 of shape (rank,): shares of the latent classes.
    chances
        float64 of shape (n_tags, rank): probability of each tag in each class.
    workers
        Confusion matrices of all workers, by tag: classes are no and yes.
    """

    prior: FloatArray
    chances: FloatArray
    workers: tuple[CrowdModel, ...]

    @property
    def confusion(self) -> FloatArray:
        """PMF of a vote (third axis) by the truth (fourth), (n_workers, n_tags, 2, 2)."""
        return np.stack([each.confusion for each in self.workers], axis=1)

    def take_logs(self) -> FloatArray:
        """Log-weights of votes by truth, (n_workers, n_tags, 2, 2), nats."""
        logs = [each.take_logs()[1].reshape(-1, 2, 2) for each in self.workers]
        return np.stack(logs, axis=1)


@dataclass(frozen=True, eq=False)
class TagSums:
    """What a pass finds: the expected values that the next model is made of.

    Parameters
    ----------
    shares
        float64 of shape (n_tasks, n_tags): probability that each tag is true.
    classes
        float64 of shape (rank,): expected tasks of each latent class.
    tags
        float64 of shape (n_tags, rank): expected tasks of each class of which a tag is true.
    log_likelihood
        Nats, but for a constant where weights are means of logarithms.
    """

    shares: FloatArray
    classes: FloatArray
    tags: FloatArray
    log_likelihood: float


def score_tags(taggings: Taggings, model: TagModel) -> TagSums:
    """Find the probability of every tag of every task: the E-step.

    Parameters
    ----------
    taggings
        What workers said.
    model
        Under what.
    """
    scores = taggings.weigh(model.take_logs()) * taggings.seen[:, :, None]
    rank, (n_tags, _) = model.prior.size, model.chances.shape
    shares = np.empty((taggings.n_tasks, n_tags))
    classes, tags, total = np.zeros(rank), np.zeros((n_tags, rank)), 0.0
    log_prior = np.log(np.maximum(model.prior, FLOOR))
    step = max(1, CELLS // (n_tags * rank))
    for start in range(0, taggings.n_tasks, step):
        part = scores[start : start + step]
        peaks = part.max(axis=2)
        no, yes = np.exp(part - peaks[:, :, None]).transpose(2, 0, 1)[:, :, :, None]
        true = yes * model.chances
        either = true + no * (1 - model.chances)
        logs = np.log(np.maximum(either, FLOOR)).sum(axis=1) + log_prior
        top = logs.max(axis=1, keepdims=True)
        weights = np.exp(logs - top)
        norms = weights.sum(axis=1, keepdims=True)
        weights /= norms
        true /= either
        true *= weights[:, None, :]
        shares[start : start + step] = true.sum(axis=2)
        classes += weights.sum(axis=0)
        tags += true.sum(axis=0)
        total += float((top + np.log(norms)).sum() + peaks.sum())
    return TagSums(np.minimum(shares, 1.0), classes, tags, total)


@dataclass(frozen=True, eq=False)
class TagFit:
    """State of the passes."""

    model: TagModel
    log_likelihoods: tuple[float, ...] = ()

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.log_likelihoods)

    @property
    def has_converged(self) -> bool:
        """Whether the last pass has gained next to nothing."""
        return len(self.log_likelihoods) > 1 and (
            self.log_likelihoods[-1] - self.log_likelihoods[-2] < PATIENCE
        )


def start_tags(taggings: Taggings) -> TagModel:
    """Model with one latent class, from the shares of the votes."""
    shares = np.where(taggings.seen > 0, taggings.votes, taggings.votes.mean(axis=0))
    chances = shares.mean(axis=0)[:, None]
    return TagModel(np.ones(1), chances, _update_workers(taggings, shares))


def split_classes(model: TagModel, shares: FloatArray, rank: int, seed: int) -> TagModel:
    """Model with more latent classes than one, which begin at tasks that are far from each other.

    Parameters
    ----------
    model
        With one latent class.
    shares
        float64 of shape (n_tasks, n_tags): probability that each tag is true.
    rank
        Number of latent classes.
    seed
        Seed of the tasks that are drawn.

    References
    ----------
    Arthur, Vassilvitskii (2007), k-means++: the next task is drawn by its squared distance from the nearest so far.
    """
    rng = np.random.default_rng([seed, rank])
    scaled = shares / np.sqrt(np.maximum(shares.var(axis=0), FLOOR))
    chosen = [int(rng.integers(len(shares)))]
    nearest = np.full(len(shares), np.inf)
    for _ in range(rank - 1):
        nearest = np.minimum(nearest, ((scaled - scaled[chosen[-1]]) ** 2).sum(axis=1))
        total = nearest.sum()
        drawn = rng.choice(len(shares), p=nearest / total if total > 0 else None)
        chosen.append(int(drawn))
    chances = 0.5 * shares[chosen].T + 0.5 * model.chances
    return replace(model, prior=np.full(rank, 1.0 / rank), chances=chances)


def fit_tags(taggings: Taggings, start: TagModel, max_passes: int) -> TagFit:
    """Estimate latent classes and workers by passes over the taggings.

    Parameters
    ----------
    taggings
        What workers said.
    start
        Model to start from.
    max_passes
        Limit of passes.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28; Goodman (1974), Biometrika 61, for latent classes.
    """
    fit = TagFit(start)
    while fit.n_passes < max_passes and not fit.has_converged:
        fit = _update(taggings, fit, score_tags(taggings, fit.model))
    return fit


def _update(taggings: Taggings, fit: TagFit, sums: TagSums) -> TagFit:
    """M-step."""
    usual = sums.shares.mean(axis=0)[:, None]
    chances = (sums.tags + PSEUDO_TASKS * usual) / (sums.classes + PSEUDO_TASKS)
    prior = (sums.classes + PSEUDO_TASKS) / (sums.classes + PSEUDO_TASKS).sum()
    workers = _update_workers(taggings, sums.shares)
    per_task = sums.log_likelihood / max(taggings.n_tasks, 1)
    return TagFit(TagModel(prior, chances, workers), (*fit.log_likelihoods, per_task))


def _update_workers(taggings: Taggings, shares: FloatArray) -> tuple[CrowdModel, ...]:
    """Confusion matrices by tag, of each worker shrunk towards what it does with all tags.

    A tag is true of few tasks, and a worker saw some of these: of one worker and one tag little is known. Of a worker
    and all tags much is, and of a tag and all workers. So pseudo-votes are those of all workers to the tag, moved by
    how much oftener the worker is right about all tags, in log odds: of tags that are true, and of those that are not.
    """
    from scipy.special import expit

    counts = taggings.count(shares)
    pooled = counts.sum(axis=0) + PSEUDO_POOLED
    pooled /= pooled.sum(axis=1, keepdims=True)
    asked = counts.sum(axis=2)
    # by truth: votes of yes of each worker, and as many as all workers would have given
    yes = counts[:, :, 1].sum(axis=1)
    totals = asked.sum(axis=1)
    expected = (asked * pooled[:, 1]).sum(axis=1)
    offsets = _take_log_odds(
        yes + PSEUDO_RIGHT * expected / np.maximum(totals, FLOOR), totals + PSEUDO_RIGHT
    )
    offsets -= _take_log_odds(expected, totals)
    given = expit(np.log(pooled[:, 1] / pooled[:, 0]) + offsets[:, None, :])
    mass = counts + PSEUDO_WEIGHT * np.stack([1 - given, given], axis=2)
    states = np.stack([taggings.n_tasks - shares.sum(axis=0), shares.sum(axis=0)], axis=1)
    return tuple(
        CrowdModel(states[tag], np.ascontiguousarray(mass[:, tag]), PSEUDO_WEIGHT, WORKERS)
        for tag in range(taggings.n_tags)
    )


def _take_log_odds(right: FloatArray, totals: FloatArray) -> FloatArray:
    """Log odds of a share, nats; even where there is nothing."""
    return np.asarray(np.log(np.maximum(right, FLOOR) / np.maximum(totals - right, FLOOR)))


def predict_hidden(taggings: Taggings, hidden: BoolArray, model: TagModel) -> FloatArray:
    """Log-probability of the votes on hidden tags of each task by its other tags, (n_tasks,), nats.

    Parameters
    ----------
    taggings
        With these tags hidden.
    hidden
        As in `Taggings`.
    model
        From these taggings.
    """
    scores = taggings.weigh(np.log(np.maximum(model.confusion, FLOOR)))
    shares = score_tags(taggings, model).shares
    no, yes = (np.log(np.maximum(each, FLOOR)) for each in (1 - shares, shares))
    log_probs = np.logaddexp(no + scores[:, :, 0], yes + scores[:, :, 1])
    return np.asarray((log_probs * hidden).sum(axis=1))
