"""Fits for a choice of the rank, on workers or in this process, within a budget of processor time.

What is compared depends on the sizes of the data and of the fits and on constants measured once, but never on a clock:
equal data give equal choices on fast, slow and busy machines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from pmflib.base.arrays import FloatArray, Parameters
from pmflib.base.constraints import Interval, check
from pmflib.fits.ranks.choice import (
    REPORT_SECONDS,
    OnRankProgress,
    ProgressReporter,
    RankCriterion,
    find_listener,
)
from pmflib.store.checkpoints import load_arrays, save_arrays

DEFAULT_BUDGET = 600.0
"""Processor time for a choice, seconds: ten minutes."""

UPDATE_SECONDS = (1e-9, 4e-11)
"""Time of an update of the composite likelihood in seconds, per n_levels^2, and per n_levels^2 and state. Measured on
one core of a 2023 server and doubled, because memory bandwidth is shared with other work.
"""

PASS_SECONDS = (1e-3, 4e-10, 2e-8)
"""Time of an EM pass with its evaluation in seconds: constant, per observed cell and state, and per level and state;
measured as above.
"""

USUAL_UPDATES = 80
"""Typical number of updates until a fit of pairs converges."""
USUAL_PASSES = 40
"""Typical number of passes until held-out samples stop a fit."""
SEARCH_UPDATES = 12_000
"""Number of updates of a whole search by pairs in wide tables."""
SEARCH_RANK = 0.1
"""Rank reached by such a search, as a fraction of the number of levels."""


def estimate_update(n_levels: int, rank: int) -> float:
    """Estimate the time of an update of the composite likelihood by the cost model, seconds."""
    table, product = UPDATE_SECONDS
    return n_levels**2 * (table + product * rank)


def estimate_pass(n_observed: int, n_levels: int, rank: int) -> float:
    """Estimate the time of an EM pass, evaluated on held-out samples, by the cost model, seconds.

    Parameters
    ----------
    n_observed
        Number of observed cells in the training samples.
    n_levels, rank
        Size of the model; the summed rank for an average.
    """
    any_pass, cells, levels = PASS_SECONDS
    return any_pass + rank * (cells * n_observed + levels * n_levels)


def limit_levels(budget: float, most: int) -> int:
    """Return how many levels a search by pairs can afford: ``most``, or as many hundreds as fit the budget.

    Parameters
    ----------
    budget
        Time of the search, seconds.
    most
        Maximum number of levels.
    """
    n_levels = most
    while n_levels > 100:
        cost = SEARCH_UPDATES * estimate_update(n_levels, round(SEARCH_RANK * n_levels))
        if cost <= budget:
            break
        n_levels = max(100, n_levels - 100)
    return n_levels


class WorkBudget:
    """Budget of processor time, and the part used according to the cost model.

    Parameters
    ----------
    limit
        Seconds, above 0; infinity for no limit.

    Raises
    ------
    PmfError
        If the limit is not above 0.
    """

    def __init__(self, limit: float) -> None:
        check(Interval(0, closed="right", hint="in seconds, math.inf for no limit"), budget=limit)
        self.limit = float(limit)
        self.spent = 0.0

    @classmethod
    def share(cls, budget: float | WorkBudget) -> WorkBudget:
        """Return a budget of so many seconds, or the given one, which several comparisons share."""
        return budget if isinstance(budget, WorkBudget) else cls(budget)

    @property
    def left(self) -> float:
        """Return the remaining seconds; negative if fits took longer than estimated."""
        return self.limit - self.spent

    def affords(self, cost: float) -> bool:
        """Return whether the remaining time is sufficient for a cost."""
        return cost <= self.left

    def spend(self, cost: float) -> None:
        """Subtract the cost of finished work, according to the cost model."""
        self.spent += cost


KEPT_SECONDS = 0.02
"""Estimated time of a fit in seconds from which it is saved: writing a file takes a few milliseconds, and a killed run
loses far less than ten seconds.
"""

PARALLEL_SECONDS = 0.5
"""Estimated total time of the fits of a step in seconds from which they are sent to workers; below, messages cost
more.
"""


@dataclass(frozen=True, eq=False)
class RankFit:
    """A fit of the training part, with its scores on the held-out part.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    loss
        For pairs, the loss of `fit_composite`, comparable for equal pseudo-counts; for samples, the negated best
        held-out log-likelihood, nats per sample.
    scores
        float64, held-out log-likelihoods, nats: for pairs the total of each part, for samples that of each sample.
    n_steps
        Number of updates or passes, which gives its cost in the cost model.
    pseudo_count
        Mean pseudo-count per level and state if chosen by the fit itself; NaN if given.
    """

    parameters: Parameters
    loss: float
    scores: FloatArray
    n_steps: int
    pseudo_count: float = math.nan


Fit = Callable[[Any], RankFit]
"""A fitting function: called with one item, which can be pickled."""


class RunOptions(TypedDict, total=False):
    """Where the fits of a choice run, their budget, their checkpoint folder, and progress reports.

    Parameters
    ----------
    client
        Dask client for the independent fits of a step; None runs them sequentially in this thread, with equal bits.
    budget
        Processor time for fits in seconds, according to a cost model rather than a clock, so that the comparisons do
        not depend on the machine; or the `WorkBudget` of comparisons that share one. Notes mention what was left out.
    checkpoint
        Folder for finished fits: the same call resumes from them with equal bits. None saves none.
    on_progress
        Called with a `RankProgress` after every fit, and every two seconds from another thread; None reports to
        `pmflib.progress`.
    """

    client: Any
    budget: float | WorkBudget
    checkpoint: Path | None
    on_progress: OnRankProgress | None


class FitRuns:
    """Runner for the fits of a choice, which are independent within a step.

    Parameters
    ----------
    choice
        Digest of the choice; saved fits of another choice are not used.
    **run
        Fields of `RunOptions`.

    Raises
    ------
    PmfError
        If the budget is not above 0.
    """

    def __init__(self, choice: str = "", **run: Unpack[RunOptions]) -> None:
        self.budget = WorkBudget.share(run.get("budget", DEFAULT_BUDGET))
        self._client, self._folder = run.get("client"), run.get("checkpoint")
        self._choice = choice
        self._reporter = ProgressReporter(find_listener(run.get("on_progress")))
        self._sent: dict[int, tuple[Any, list[Any]]] = {}

    def do(
        self,
        fit: Fit,
        data: Sequence[Any],
        jobs: Sequence[Any],
        names: Sequence[str],
        costs: Sequence[float],
        *,
        criterion: RankCriterion,
        doing: str,
        ranks: Sequence[int],
    ) -> list[RankFit]:
        """Run the fits of a step.

        Parameters
        ----------
        fit
            Called with a pair of data and job.
        data
            Data of each job, kept on the workers between steps if it is the same object; a single item is used by all
            jobs.
        jobs, names, costs
            Settings of each fit; a name that is unique within this choice; estimated time in seconds.
        criterion, doing, ranks
            As in `RankProgress`.

        Returns
        -------
        Fits in the order of the jobs.
        """
        from pmflib.base.machine import call_regularly
        from pmflib.cluster.item_maps import map_items

        pays = len(jobs) > 1 and sum(costs) >= PARALLEL_SECONDS
        client = self._client if pays else None
        sent = self._send(data) if client is not None else list(data)
        if len(sent) == 1:
            sent = sent * len(jobs)
        paths = [
            None if self._folder is None or cost < KEPT_SECONDS else self._folder / f"{name}.npz"
            for name, cost in zip(names, costs, strict=True)
        ]
        work = [
            (fit, (each, job), path, self._choice)
            for each, job, path in zip(sent, jobs, paths, strict=True)
        ]
        self._reporter.plan(criterion, doing, ranks, costs)
        with call_regularly(self._reporter.heartbeat, REPORT_SECONDS):
            return map_items(client, fit_once, work, on_result=self._reporter.count)

    def _send(self, data: Sequence[Any]) -> list[Any]:
        """Send data to the workers, once."""
        from pmflib.cluster.item_maps import send_items

        if id(data) not in self._sent:
            # data are kept with their futures, so that another object cannot take their identity
            self._sent[id(data)] = data, send_items(self._client, data)
        return self._sent[id(data)][1]


def fit_once(work: tuple[Fit, tuple[Any, Any], Path | None, str]) -> RankFit:
    """Run a fit and save it, or load a saved one.

    Parameters
    ----------
    work
        The fit; its data and job; the file of a saved fit, or None; the digest of the choice. A single argument, for
        maps on Dask.
    """
    fit, item, path, choice = work
    if path is None:
        return fit(item)
    kept = load_arrays(path)
    if kept is not None and str(kept["choice"]) == choice:
        return RankFit(
            (kept["prior"], kept["factors"]),
            float(kept["loss"]),
            kept["scores"],
            int(kept["n_steps"]),
            float(kept["pseudo_count"]),
        )
    found = fit(item)
    arrays = {
        "prior": found.parameters[0],
        "factors": found.parameters[1],
        "loss": np.array(found.loss),
        "scores": found.scores,
        "n_steps": np.array(found.n_steps),
        "pseudo_count": np.array(found.pseudo_count),
        "choice": np.array(choice),
    }
    save_arrays(path, arrays)
    return found
