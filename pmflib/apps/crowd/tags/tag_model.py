"""Tags as a family that EM fits: latent classes of tasks, and a confusion matrix of each worker for each tag.

Given the latent class of a task, its tags are independent, each with a probability of its own: the latent classes are
a joint PMF of binary variables, one for each tag (`pmflib.JointPMF`). Each worker has a confusion matrix of two by two
for each tag. Evidence for one tag of a task thus informs its other tags; with one latent class the tags are
independent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pmflib.apps.crowd.confidence import CALIBRATION_PRIOR, MOST_PREDICTED, choose_power
from pmflib.apps.crowd.left_out_labels import POWERS, weigh_labels
from pmflib.apps.crowd.pairs.annotator_model import AnnotatorModel, CrowdModel
from pmflib.base.arrays import FLOOR, Arrays, BoolArray, FloatArray, IntArray
from pmflib.base.blocks import SparseBlock
from pmflib.base.defaults import Limits
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.family import Family, State, run_em
from pmflib.model.sufficient_statistics import sum_fields

WORKERS = AnnotatorModel(votes=False)
"""Annotator model of the workers: labels are weighed by means of logarithms."""
PSEUDO_WEIGHT = 30.0
"""Number of votes that a worker's behaviour with all tags is worth relative to the votes on one tag. Chosen on the
tuned seeds of benchmarks/crowd/tags.py, like the next."""
PSEUDO_RIGHT = 10.0
"""Number of votes that the behaviour of all workers is worth relative to that of one worker."""
PSEUDO_POOLED = 0.5
"""Pseudo-count of yes and of no of all workers for every tag and truth."""
PSEUDO_TASKS = 1.0
"""Pseudo-count of tasks with average tags in every latent class."""
PSEUDO_VOTES = 0.5
"""Pseudo-count of yes and of no for every tag of a task, in the start."""
LEAST_GAIN = 1e-4
"""Smallest gain in log-likelihood after which passes continue, nats per task."""
CELLS = 1 << 22
"""Limit of tasks times tags times latent classes in memory at a time."""


class Taggings:
    """A block of tasks with their taggings.

    Parameters
    ----------
    taggings, given
        As in `pmflib.apps.crowd.tags.tag_log.TagLog`.
    n_tasks, n_workers, n_tags
        Numbers of tasks, workers and tags.
    hidden
        bool of shape (n_tasks, n_tags): tags of tasks whose votes are ignored; None ignores none.
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
        self.taggings, self.given, self.hidden = taggings, given, hidden

    @cached_property
    def seen(self) -> FloatArray:
        """Whether the votes on a tag of a task are used, 1 or 0, (n_tasks, n_tags)."""
        shape = self.n_tasks, self.n_tags
        return np.ones(shape) if self.hidden is None else (~self.hidden).astype(np.float64)

    @cached_property
    def votes(self) -> FloatArray:
        """Share of the workers of each task who gave each tag, with pseudo-counts, (n_tasks, n_tags)."""
        yes = np.bincount(self.cells, minlength=self.n_tasks * self.n_tags)
        asked = np.asarray(self.asked.sum(axis=1))[:, None]
        return np.asarray(
            (yes.reshape(-1, self.n_tags) + PSEUDO_VOTES) / (asked + 2 * PSEUDO_VOTES)
        )

    def take_votes(self, tag: int) -> SparseBlock:
        """Votes on a tag: tasks as rows, levels ``2 * worker`` for no and ``2 * worker + 1`` for yes."""
        levels = 2 * self.taggings[:, 1]
        levels[self.given[self.given[:, 1] == tag, 0]] += 1
        starts = np.searchsorted(self.taggings[:, 0], np.arange(self.n_tasks + 1))
        return SparseBlock(starts, levels.astype(np.int32))

    def weigh(self, logs: FloatArray) -> FloatArray:
        """Sum the log-weights of the votes on each tag by its truth, (n_tasks, n_tags, 2), nats.

        Parameters
        ----------
        logs
            float64 of shape (n_workers, n_tags, 2, 2): log-weight of a vote (third axis) by the truth (fourth).
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
    """Latent classes of tags, and confusion matrices of the workers.

    Parameters
    ----------
    prior
        float64 of shape (rank,): shares of the latent classes.
    chances
        float64 of shape (n_tags, rank): probability of each tag in each class.
    workers
        Confusion matrices of all workers for each tag, with the classes no and yes.
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
class TagStatistics:
    """Sufficient statistics of a pass over the taggings.

    Parameters
    ----------
    n_tasks
        Number of tasks.
    true
        float64 of shape (n_tags,): expected tasks of which each tag is true.
    votes
        float64 of shape (n_workers, n_tags, 2, 2): expected votes of each worker by tag, vote and truth.
    classes
        float64 of shape (rank,): expected tasks of each latent class.
    tags
        float64 of shape (n_tags, rank): expected tasks of each class of which a tag is true.
    log_likelihood
        Nats, up to a constant where weights are means of logarithms.
    """

    n_tasks: int
    true: FloatArray
    votes: FloatArray
    classes: FloatArray
    tags: FloatArray
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class Tags(Family[TagModel, TagStatistics]):
    """The family: latent classes of tags, and workers with a confusion matrix for each tag.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28; Goodman (1974), Biometrika 61, for latent classes.
    """

    def add(self, parameters: TagModel, blocks: Iterable[Taggings]) -> TagStatistics:
        """E-step: expected votes of every worker, and expected tasks of every class and tag."""
        return sum_fields([score_tags(block, parameters)[1] for block in blocks])

    def update(self, state: State[TagModel], statistics: TagStatistics) -> State[TagModel]:
        """M-step."""
        usual = (statistics.true / statistics.n_tasks)[:, None]
        sizes = statistics.classes + PSEUDO_TASKS
        chances = (statistics.tags + PSEUDO_TASKS * usual) / sizes
        workers = _estimate_workers(statistics.votes, statistics.true, statistics.n_tasks)
        model = TagModel(sizes / sizes.sum(), chances, workers)
        return state.after(model, statistics.log_likelihood / max(statistics.n_tasks, 1))

    def has_converged(self, state: State[TagModel], limits: Limits) -> bool:
        """Whether the last pass gained less than ``limits.tol`` nats per task."""
        gained = state.log_likelihoods[-2:]
        return len(gained) == 2 and gained[1] - gained[0] < limits.tol

    def pack(self, parameters: TagModel) -> Arrays:
        """Arrays of a model."""
        return {
            "prior": parameters.prior,
            "chances": parameters.chances,
            "states": np.stack([each.states for each in parameters.workers]),
            "mass": np.stack([each.mass for each in parameters.workers]),
        }

    def unpack(self, arrays: Arrays) -> TagModel:
        """The model that `pack` was called on."""
        workers = tuple(
            CrowdModel(states, mass, PSEUDO_WEIGHT, WORKERS)
            for states, mass in zip(arrays["states"], arrays["mass"], strict=True)
        )
        return TagModel(arrays["prior"], arrays["chances"], workers)


def score_tags(taggings: Taggings, model: TagModel) -> tuple[FloatArray, TagStatistics]:
    """Find the probability of every tag of every task, (n_tasks, n_tags), and the sufficient statistics.

    Parameters
    ----------
    taggings
        Taggings of the workers.
    model
        Model under which they are scored.
    """
    scores = taggings.weigh(model.take_logs()) * taggings.seen[:, :, None]
    shares, classes, tags, total = _join_tags(scores, model)
    votes, n_tasks = taggings.count(shares), taggings.n_tasks
    return shares, TagStatistics(n_tasks, shares.sum(axis=0), votes, classes, tags, total)


def _join_tags(
    scores: FloatArray, model: TagModel
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Probability of every tag by the log-weights of the votes on all tags of a row, (n_rows, n_tags, 2).

    Beside it the expected rows of each latent class, those of which a tag is true, and the log-likelihood.
    """
    rank, (n_rows, n_tags, _) = model.prior.size, scores.shape
    shares = np.empty((n_rows, n_tags))
    classes, tags, total = np.zeros(rank), np.zeros((n_tags, rank)), 0.0
    log_prior = np.log(np.maximum(model.prior, FLOOR))
    step = max(1, CELLS // (n_tags * rank))
    for start in range(0, n_rows, step):
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
    return np.minimum(shares, 1.0), classes, tags, total


def find_tags(taggings: Taggings, model: TagModel) -> FloatArray:
    """Probability of every tag of every task under a model, (n_tasks, n_tags)."""
    return score_tags(taggings, model)[0]


def calibrate_tags(taggings: Taggings, model: TagModel) -> FloatArray:
    """Calibrated probability of every tag of every task, (n_tasks, n_tags).

    As for labels with one class per task, votes are scored under confusion matrices without the task's own share, with
    the power that predicts left-out votes best, times the factor that other logs show; some tags look either way. See
    `pmflib.apps.crowd.confidence`. Votes of a worker on all tags of a task are left out together.

    Parameters
    ----------
    taggings
        Taggings of the workers.
    model
        Model fitted to them.
    """
    shares, (tasks, _) = find_tags(taggings, model), taggings.taggings.T
    n_taggings = np.bincount(tasks, minlength=taggings.n_tasks)
    every = max(1, taggings.n_tasks // MOST_PREDICTED)
    predicted = np.flatnonzero((n_taggings[tasks] > 1) & (tasks % every == 0))
    scores = np.empty((*shares.shape, 2))
    others, means = np.empty((2, predicted.size, taggings.n_tags, 2))
    for tag, workers in enumerate(model.workers):
        own = np.stack([1 - shares[:, tag], shares[:, tag]], axis=1)
        found = weigh_labels(taggings.take_votes(tag), own, workers.mass, each=True)
        scores[:, tag], means[:, tag] = found[0], found[2][predicted]
        others[:, tag] = found[0][tasks[predicted]] - found[1][predicted]
    log_probs = np.zeros(POWERS.size)
    for index, power in enumerate(POWERS):
        true = _join_tags(power * others, model)[0]
        given = (1 - true) * means[:, :, 0] + true * means[:, :, 1]
        log_probs[index] = np.log(np.maximum(given, FLOOR)).sum()
    joined = _join_tags(CALIBRATION_PRIOR.evidence * choose_power(log_probs) * scores, model)[0]
    error = CALIBRATION_PRIOR.shared_error * (n_taggings > 0)[:, None]
    return np.asarray((1 - error) * joined + error / 2)


def start_tags(taggings: Taggings) -> TagModel:
    """Estimate a model with one latent class from the shares of the votes."""
    shares = np.where(taggings.seen > 0, taggings.votes, taggings.votes.mean(axis=0))
    chances = shares.mean(axis=0)[:, None]
    workers = _estimate_workers(taggings.count(shares), shares.sum(axis=0), taggings.n_tasks)
    return TagModel(np.ones(1), chances, workers)


def split_classes(model: TagModel, shares: FloatArray, rank: int, seed: int) -> TagModel:
    """Start several latent classes at tasks that are far from each other.

    Parameters
    ----------
    model
        Model with one latent class.
    shares
        float64 of shape (n_tasks, n_tags): probability that each tag is true.
    rank
        Number of latent classes.
    seed
        Seed of the drawn tasks.

    References
    ----------
    Arthur, Vassilvitskii (2007), k-means++: tasks are drawn by squared distance from the nearest earlier one.
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


def fit_tags(taggings: Taggings, start: TagModel, max_passes: int) -> State[TagModel]:
    """Estimate latent classes and workers by passes over the taggings.

    Parameters
    ----------
    taggings
        Taggings of the workers.
    start
        Model to start from.
    max_passes
        Limit of the number of passes.
    """
    blocks: Any = [taggings]
    offsets = 2 * np.arange(taggings.n_tags + 1)
    source = BlocksInMemory(blocks, offsets, n_observed=taggings.cells.size)
    return run_em(Tags(), source, State(start), limits=Limits(max_passes, LEAST_GAIN))


def _estimate_workers(counts: FloatArray, true: FloatArray, n_tasks: int) -> tuple[CrowdModel, ...]:
    """Confusion matrices by tag, of each worker shrunk toward what the worker does with all tags.

    A tag is true of few tasks, and a worker saw few of these, so that little is known of one worker and one tag. More
    is known of a worker and all tags, and of a tag and all workers. Pseudo-votes are therefore those of all workers to
    the tag, shifted by how much more often the worker is right about all tags, in log odds: separately for tags that
    are true and tags that are not.

    Parameters
    ----------
    counts
        float64 of shape (n_workers, n_tags, 2, 2): expected votes by tag, vote and truth.
    true
        float64 of shape (n_tags,): expected tasks of which each tag is true.
    n_tasks
        Number of tasks.
    """
    from scipy.special import expit

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
    states = np.stack([n_tasks - true, true], axis=1)
    return tuple(
        CrowdModel(states[tag], np.ascontiguousarray(mass[:, tag]), PSEUDO_WEIGHT, WORKERS)
        for tag in range(true.size)
    )


def _take_log_odds(right: FloatArray, totals: FloatArray) -> FloatArray:
    """Log odds of a share, nats; finite for shares of 0 and 1."""
    return np.asarray(np.log(np.maximum(right, FLOOR) / np.maximum(totals - right, FLOOR)))


def predict_hidden(taggings: Taggings, hidden: BoolArray, model: TagModel) -> FloatArray:
    """Log-probability of the votes on hidden tags of each task by its other tags, (n_tasks,), nats.

    Parameters
    ----------
    taggings
        Taggings in which these tags are hidden.
    hidden
        As in `Taggings`.
    model
        Model fitted to these taggings.
    """
    scores = taggings.weigh(np.log(np.maximum(model.confusion, FLOOR)))
    shares = find_tags(taggings, model)
    no, yes = (np.log(np.maximum(each, FLOOR)) for each in (1 - shares, shares))
    log_probs = np.logaddexp(no + scores[:, :, 0], yes + scores[:, :, 1])
    return np.asarray((log_probs * hidden).sum(axis=1))
