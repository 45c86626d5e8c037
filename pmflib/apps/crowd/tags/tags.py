"""Estimate the true tags of tasks with several labels each, their joint PMF, and the accuracy of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pmflib.apps.crowd.tags.tag_log import TagLog, read_tags
from pmflib.apps.crowd.tags.tag_model import (
    Taggings,
    TagModel,
    calibrate_tags,
    find_tags,
    fit_tags,
    predict_hidden,
    split_classes,
    start_tags,
)
from pmflib.base.arrays import BoolArray, FloatArray
from pmflib.base.comparison import Comparison, compare_candidates, compare_samples
from pmflib.base.constraints import at_least, check
from pmflib.base.display.progress import report_step, reports_progress
from pmflib.em.family import State
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.schema import Schema, Variable

RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of latent classes that are compared."""
HIDDEN_SHARE = 0.2
"""Share of the tags of tasks that are hidden for this comparison."""
MOST_COMPARED = 20_000
"""Approximate limit of the tasks in this comparison; larger logs are thinned evenly."""
SEARCH_PASSES = 40
"""Limit of the passes of a compared fit."""
MAX_PASSES = 200
"""Default limit of the passes."""
LEVELS = ("no", "yes")
"""Levels of a tag as a variable of the joint PMF."""


@dataclass(frozen=True, eq=False)
class TagAggregation:
    """A log of tags, aggregated.

    Parameters
    ----------
    log
        The tags that workers gave.
    probabilities
        float64 of shape (n_tasks, n_tags): calibrated probability that each tag is true.
    model
        Joint PMF of the tags, each a variable with levels "no" and "yes": it answers which tags occur together.
    confusion
        float64 of shape (n_workers, n_tags, 2, 2): PMF of a worker's vote (third axis) by the truth (fourth).
    n_passes
        Passes made.
    comparison
        Comparison of numbers of latent classes by the log-probability of hidden tags; None if the number was given.
    """

    log: TagLog
    probabilities: FloatArray
    model: JointPMF
    confusion: FloatArray
    n_passes: int
    comparison: Comparison | None

    def __repr__(self) -> str:
        """Sizes of the log and of the model."""
        return f"TagAggregation({self.log!r}, {self.model.rank} latent classes, {self.n_passes} passes)"

    @property
    def reason(self) -> str:
        """Why this number of latent classes was chosen; empty if it was given."""
        return "" if self.comparison is None else self.comparison.reason

    @property
    def codes(self) -> BoolArray:
        """Whether each tag is more probable than not, bool of shape (n_tasks, n_tags)."""
        return np.asarray(self.probabilities > 0.5)

    @cached_property
    def labels(self) -> pa.Table:
        """Arrow table with a row per task: task, list of tags, n_taggings, and the probability of every tag."""
        rows, tags = np.nonzero(self.codes)
        ends = np.searchsorted(rows, np.arange(self.log.n_tasks + 1)).astype(np.int32)
        names = self.log.tags.take(pa.array(tags))
        columns = {
            "task": self.log.tasks,
            "tags": pa.ListArray.from_arrays(pa.array(ends), names),
            "n_taggings": np.bincount(self.log.taggings[:, 0], minlength=self.log.n_tasks),
        }
        shares = zip(self.log.tags.to_pylist(), self.probabilities.T, strict=True)
        return pa.table({**columns, **{f"probability.{name}": column for name, column in shares}})

    @cached_property
    def workers(self) -> pa.Table:
        """Arrow table with a row per worker: worker, n_taggings, sensitivity and specificity.

        Sensitivity is the probability that a true tag is given, specificity the probability that a false tag is not
        given; both are means over the tags, weighted by their frequencies.
        """
        true = self.probabilities.mean(axis=0)
        sensitivity = self.confusion[:, :, 1, 1] @ (true / max(true.sum(), 1e-300))
        specificity = self.confusion[:, :, 0, 0] @ ((1 - true) / max((1 - true).sum(), 1e-300))
        return pa.table(
            {
                "worker": self.log.workers,
                "n_taggings": np.bincount(self.log.taggings[:, 1], minlength=self.log.n_workers),
                "sensitivity": sensitivity,
                "specificity": specificity,
            }
        )


@reports_progress
def aggregate_tags(
    labels: object,
    *,
    rank: int | Literal["auto"] = "auto",
    tags: Sequence[Any] | None = None,
    rng: int = 0,
    max_passes: int = MAX_PASSES,
) -> TagAggregation:
    """Estimate the true tags of tasks, which may have several each, and the accuracy of the workers.

    Latent classes of tasks are a joint PMF of all tags. Every worker has a confusion matrix for each tag, shrunk toward
    the worker's behaviour with all tags. A tag is thus more probable if tags that occur with it are probable, which
    separate aggregations of each tag would miss. With one latent class, the tags of a task are independent.

    Parameters
    ----------
    labels
        Columns task, worker, label, with a row for each tag that a worker gave, or lists of tags: see
        `pmflib.apps.crowd.tags.tag_log.read_tags`; or a `TagLog`.
    rank
        Number of latent classes; "auto" chooses the smallest number within a standard error of the best, by the
        log-probability of hidden tags.
    tags
        All possible tags; None takes all tags of the table.
    rng
        Seed of the random starts and of the hidden tags.
    max_passes
        Limit of the passes of a fit.

    Returns
    -------
    The aggregation.

    Raises
    ------
    SchemaError, PmfError
        If the table cannot be read, or an argument is out of range.

    References
    ----------
    Dawid, Skene (1979), Applied Statistics 28; Duan, Oyama, Sato, Kurihara (2014), Expert Systems with Applications 41,
    for joint estimation with several labels per task.

    Examples
    --------
    >>> rows = {"task": [1, 1, 1, 2, 2], "worker": list("aabab"), "label": ["sea", "sky", "sea", "sky", None]}
    >>> aggregate_tags(rows).log
    TagLog(2 tasks, 2 workers, 2 tags, 4 taggings with 4 tags, 0 rows set aside)
    """
    check(at_least(1, whole=True, also=("auto",)), rank=rank)
    check(at_least(1), max_passes=max_passes)
    log = labels if isinstance(labels, TagLog) else read_tags(labels, tags=tags)
    sizes = log.n_tasks, log.n_workers, log.n_tags
    comparison = _compare_ranks(log, rng) if rank == "auto" else None
    chosen = rank if comparison is None else comparison.chosen.settings["rank"]
    taggings = Taggings(log.taggings, log.given, *sizes)
    fit = _fit(taggings, int(chosen), rng, max_passes)
    model, shares = fit.parameters, calibrate_tags(taggings, fit.parameters)
    pmf = _make_pmf(log, model)
    return TagAggregation(log, shares, pmf, model.confusion, fit.n_passes, comparison)


def _fit(taggings: Taggings, rank: int, seed: int, max_passes: int) -> State[TagModel]:
    """Fit latent classes, starting from independent tags."""
    single = fit_tags(taggings, start_tags(taggings), max_passes)
    if rank == 1:
        return single
    return _split(taggings, single, rank, seed, max_passes)


def _split(
    taggings: Taggings, single: State[TagModel], rank: int, seed: int, max_passes: int
) -> State[TagModel]:
    shares = find_tags(taggings, single.parameters)
    return fit_tags(taggings, split_classes(single.parameters, shares, rank, seed), max_passes)


def _compare_ranks(log: TagLog, seed: int) -> Comparison:
    """Compare numbers of latent classes, until two larger ones in a row predict hidden tags worse than the best."""
    kept, given = log.taggings, log.given
    every = max(1, log.n_tasks // MOST_COMPARED)
    if every > 1:
        rows = kept[:, 0] % every == 0
        numbers = np.cumsum(rows) - 1
        mine = rows[given[:, 0]]
        kept = np.stack([kept[rows, 0] // every, kept[rows, 1]], axis=1)
        given = np.stack([numbers[given[mine, 0]], given[mine, 1]], axis=1)
    n_tasks = -(-log.n_tasks // every)
    hidden = np.random.default_rng([seed, n_tasks]).random((n_tasks, log.n_tags)) < HIDDEN_SHARE
    taggings = Taggings(kept, given, n_tasks, log.n_workers, log.n_tags, hidden)
    single = fit_tags(taggings, start_tags(taggings), SEARCH_PASSES)
    found: list[FloatArray] = []
    ranks = [each for each in RANKS if each == 1 or each < min(n_tasks, 2.0 ** min(log.n_tags, 9))]
    for rank in ranks:
        fit = single if rank == 1 else _split(taggings, single, rank, seed, SEARCH_PASSES)
        found.append(predict_hidden(taggings, hidden, fit.parameters))
        report_step(len(found), len(ranks), f"{rank} latent classes")
        best = max(range(len(found)), key=lambda index: float(found[index].mean()))
        if len(found) > best + 2:
            break
    return compare_candidates(
        "task",
        [{"rank": each} for each in ranks[: len(found)]],
        [float(each.mean()) for each in found],
        subtract=lambda one, other: compare_samples(found[one], found[other]),
        rule="first",
    )


def _make_pmf(log: TagLog, model: TagModel) -> JointPMF:
    """Make the joint PMF of the tags, with the largest class first."""
    order = np.argsort(-model.prior, kind="stable")
    chances = model.chances[:, order]
    factors = np.stack([1 - chances, chances], axis=1).reshape(-1, order.size)
    schema = Schema(tuple(Variable(str(name), LEVELS) for name in log.tags.to_pylist()))
    return JointPMF(model.prior[order], factors, schema, ModelOrigin(method="tags"))
