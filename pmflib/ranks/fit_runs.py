"""Fits that a choice of the rank is made of: on workers or here, kept as they are done, within a budget, reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray, Parameters
from pmflib.ranks.budget import WorkBudget
from pmflib.ranks.rank_progress import BEAT_SECONDS, Judged, OnRankProgress, ProgressReporter
from pmflib.store.checkpoints import load_arrays, save_arrays

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


class FitRuns:
    """Runs the fits of a choice, which do not depend on each other within a step.

    Parameters
    ----------
    budget
        What the fits take their cost from.
    client
        Dask client, or None to do all fits in this thread: the same bits.
    folder
        Where fits are kept, so that a choice that was killed goes on from them; None keeps none.
    choice
        Digest of the choice: fits of another one are not gone on from.
    on_progress
        Called when a fit is done, and every ``BEAT_SECONDS`` meanwhile.
    """

    def __init__(
        self,
        budget: WorkBudget,
        client: Any = None,
        folder: Path | None = None,
        choice: str = "",
        on_progress: OnRankProgress | None = None,
    ) -> None:
        self.budget = budget
        self._client, self._folder, self._choice = client, folder, choice
        self._reporter = ProgressReporter(on_progress)
        self._sent: dict[int, tuple[Any, list[Any]]] = {}

    def do(
        self,
        fit: Fit,
        data: Sequence[Any],
        jobs: Sequence[Any],
        names: Sequence[str],
        costs: Sequence[float],
        *,
        judged: Judged,
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
        judged, doing, ranks
            As in `RankProgress`.

        Returns
        -------
        Fits in the order of the jobs.
        """
        from pmflib.running.heartbeats import beat
        from pmflib.running.item_maps import map_items

        pays = len(jobs) > 1 and sum(costs) >= PARALLEL_SECONDS
        client = self._client if pays else None
        sent = self._send(data) if client is not None else list(data)
        if len(sent) == 1:
            sent *= len(jobs)
        paths = [
            None if self._folder is None or cost < KEPT_SECONDS else self._folder / f"{name}.npz"
            for name, cost in zip(names, costs, strict=True)
        ]
        work = [
            (fit, (each, job), path, self._choice)
            for each, job, path in zip(sent, jobs, paths, strict=True)
        ]
        self._reporter.plan(judged, doing, ranks, costs)
        with beat(self._reporter.beat, BEAT_SECONDS):
            return map_items(client, fit_once, work, on_result=self._reporter.count)

    def _send(self, data: Sequence[Any]) -> list[Any]:
        """Send data to the workers, once."""
        from pmflib.running.held_items import send_items

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
