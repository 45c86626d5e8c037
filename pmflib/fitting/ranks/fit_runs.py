"""Fits that a choice of the rank is made of: on workers or here, within a budget of processor time.

What is compared follows from the sizes of the data and of the fits, and from constants measured once, and never from a
clock: the same data give the same choice on a fast machine, a slow one and a busy one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from pmflib.core.arrays import FloatArray, Parameters
from pmflib.core.errors import PmfError
from pmflib.fitting.ranks.choice import (
    REPORT_SECONDS,
    OnRankProgress,
    ProgressReporter,
    RankCriterion,
)
from pmflib.store.checkpoints import load_arrays, save_arrays

DEFAULT_BUDGET = 600.0
"""Seconds of processor time that a choice may take: ten minutes."""

UPDATE_SECONDS = (4e-9, 1.5e-10)
"""Seconds of an update of the composite likelihood per n_levels^2, and per n_levels^2 and state. Measured on one core
of a server of 2023, and doubled: memory that other work shares is slower."""

PASS_SECONDS = (1e-3, 4e-10, 2e-8)
"""Seconds of a pass of EM and of its evaluation: of any, per observed cell and state, and per level and state; as
above."""

USUAL_UPDATES = 80
"""Updates of a fit of pairs until it has converged, mostly."""
USUAL_PASSES = 40
"""Passes until held-out samples stop a fit, mostly."""
SEARCH_UPDATES = 12_000
"""Updates of a whole search by pairs, in wide tables."""
SEARCH_RANK = 0.1
"""Rank that such a search comes to, as a share of the levels."""


def estimate_update(n_levels: int, rank: int) -> float:
    """Seconds of an update of the composite likelihood, by the model of costs."""
    table, product = UPDATE_SECONDS
    return n_levels**2 * (table + product * rank)


def estimate_pass(n_observed: int, n_levels: int, rank: int) -> float:
    """Seconds of a pass of EM over training samples, evaluated on held-out ones, by the model of costs.

    Parameters
    ----------
    n_observed
        Observed cells of the training samples.
    n_levels, rank
        Size of the model; the summed rank where several are averaged.
    """
    any_pass, cells, levels = PASS_SECONDS
    return any_pass + rank * (cells * n_observed + levels * n_levels)


def limit_levels(budget: float, most: int) -> int:
    """Levels of a table that a search by pairs can afford: the most, or as many hundreds as its budget has room for.

    Parameters
    ----------
    budget
        Seconds of the search.
    most
        Limit of the levels.
    """
    n_levels = most
    while n_levels > 100:
        cost = SEARCH_UPDATES * estimate_update(n_levels, round(SEARCH_RANK * n_levels))
        if cost <= budget:
            break
        n_levels = max(100, n_levels - 100)
    return n_levels


class WorkBudget:
    """Seconds of processor time, and what has been spent of them by the model of costs.

    Parameters
    ----------
    limit
        Seconds, above 0; infinite is no limit.

    Raises
    ------
    PmfError
        If the limit is not above 0.
    """

    def __init__(self, limit: float) -> None:
        if not limit > 0:
            raise PmfError(f"budget is {limit} seconds; give more than 0, or math.inf for no limit")
        self.limit = float(limit)
        self.spent = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 where fits took more than was expected of them."""
        return self.limit - self.spent

    def affords(self, cost: float) -> bool:
        """Whether so many seconds are left."""
        return cost <= self.left

    def spend(self, cost: float) -> None:
        """Take off what the work done has cost, by the model."""
        self.spent += cost


KEPT_SECONDS = 0.02
"""Seconds of a fit, by the model of costs, from which it is kept: a file takes a few milliseconds, and what is lost
with a run that was killed stays far below ten seconds."""

PARALLEL_SECONDS = 0.5
"""Seconds of all fits of a step, by the model of costs, from which they go to workers: below, messages cost more."""


@dataclass(frozen=True, eq=False)
class RankFit:
    """A fit of the training part, and its scores on what was held out.

    Parameters
    ----------
    parameters
        Prior (rank,) and factors (n_levels, rank).
    loss
        That of `fit_composite` for pairs, comparable under one pseudo-count; for samples the negated best held-out
        log-likelihood, nats per sample.
    scores
        float64, held-out log-likelihoods, nats: of pairs the sums of each part, of samples that of each.
    n_steps
        Updates, or passes, that it took: what it has cost, by the model.
    pseudo_count
        Mean pseudo-count per level and state that the fit has chosen itself; NaN where it was given one.
    """

    parameters: Parameters
    loss: float
    scores: FloatArray
    n_steps: int
    pseudo_count: float = math.nan


Fit = Callable[[Any], RankFit]
"""A fit: called with one item, which can be pickled."""


class RunOptions(TypedDict, total=False):
    """Where the fits of a choice are made, how much they may cost, where they are kept, and who is told.

    Parameters
    ----------
    client
        Dask client for the fits of a step, which do not depend on each other; None does them one after another in this
        thread, to the same bits.
    budget
        Seconds of processor time that fits may take, by a model of what they cost, and not by a clock: what is compared
        does not depend on the machine. What is left out for it is among the notes.
    checkpoint
        Folder for the fits: the same call continues from those that it finds there, to the same bits. None keeps none.
    on_progress
        Called with a `RankProgress` after every fit, and every other second meanwhile, then from another thread; None
        reports to `pmflib.progress`.
    """

    client: Any
    budget: float
    checkpoint: Path | None
    on_progress: OnRankProgress | None


class FitRuns:
    """Runs the fits of a choice, which do not depend on each other within a step.

    Parameters
    ----------
    choice
        Digest of the choice: fits of another one are not gone on from.
    **run
        As `RunOptions`.

    Raises
    ------
    PmfError
        If the budget is not above 0.
    """

    def __init__(self, choice: str = "", **run: Unpack[RunOptions]) -> None:
        self.budget = WorkBudget(run.get("budget", DEFAULT_BUDGET))
        self._client, self._folder = run.get("client"), run.get("checkpoint")
        self._choice = choice
        self._reporter = ProgressReporter(run.get("on_progress"))
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
        """Do the fits of a step.

        Parameters
        ----------
        fit
            Called with a pair of data and a job.
        data
            What each job fits, kept on the workers from step to step as long as it is the same object; of one item all
            jobs take that.
        jobs, names, costs
            Settings of each fit; a name that no other fit of this choice has; seconds by the model of costs.
        criterion, doing, ranks
            As in `RankProgress`.

        Returns
        -------
        Fits in the order of the jobs.
        """
        from pmflib.cluster.item_maps import map_items
        from pmflib.core.machine import call_regularly

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
            # the data are kept with their futures: another object cannot take their place
            self._sent[id(data)] = data, send_items(self._client, data)
        return self._sent[id(data)][1]


def fit_once(work: tuple[Fit, tuple[Any, Any], Path | None, str]) -> RankFit:
    """Do a fit and keep it, or read the one that was kept.

    Parameters
    ----------
    work
        The fit; its data and job; the file of the kept one, or None; the digest of the choice. One argument, for maps
        on Dask.
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
