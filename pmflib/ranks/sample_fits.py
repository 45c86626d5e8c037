"""One rank judged by held-out samples: EM from starts of pairs, stopped where these samples do, alone or averaged."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray, IntArray, Parameters
from pmflib.counting.groups import list_levels
from pmflib.counting.pair_counts import PairCounts
from pmflib.em.in_memory import SamplesInMemory
from pmflib.em.members import Runs
from pmflib.fitting.from_pairs import fit
from pmflib.fitting.starts import open_for_em
from pmflib.model import JointPMF
from pmflib.ranks import budget
from pmflib.ranks.fit_runs import RankFit
from pmflib.schema import Schema

MAX_PASSES = 200
"""Passes of each fit at most: most stop earlier, where held-out samples do."""

BLOCK_RANK = 64
"""Rank that blocks of samples are cut for: the same blocks for all ranks."""

START_UPDATES = 150
"""Updates of a start, at most: see `pmflib.fitting.auto_method.run_pairs`."""

SAVED_SECONDS = 5.0
"""Seconds of a fit, by the model of costs, from which the state after each of its passes is saved."""


@dataclass(frozen=True, eq=False)
class RankSamples:
    """Samples that ranks are fitted to and judged on.

    Parameters
    ----------
    schema
        All variables.
    codes, held_out
        Codes of shape (n_rows, n_variables), -1 missing: training samples, and those to judge on.
    counts
        Co-occurrence counts that starts are made of, of all variables or some.
    variables
        int64, places of the variables of the counts, in order.
    singles
        float64 of shape (n_levels,), PMF of each variable.
    target
        Place of the variable whose log-likelihood given the others models are judged by; None is that of all.
    start_method
        Method of `fit` that starts are made by: "pairs" or "random".
    """

    schema: Schema
    codes: IntArray
    held_out: IntArray
    counts: PairCounts
    variables: IntArray
    singles: FloatArray
    target: int | None = None
    start_method: str = "pairs"

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to workers: threads are not."""
        hidden = ("training", "judged")
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    @cached_property
    def n_observed(self) -> int:
        """Observed cells of the training samples."""
        return int(np.count_nonzero(self.codes >= 0))

    @cached_property
    def training(self) -> SamplesInMemory:
        """Training samples for EM."""
        return SamplesInMemory(self.codes, self.schema.offsets, BLOCK_RANK)

    @cached_property
    def judged(self) -> SamplesInMemory:
        """Held-out samples for EM."""
        return SamplesInMemory(self.held_out, self.schema.offsets, BLOCK_RANK, self.target)

    def start(self, rank: int, seed: int, number: int) -> Parameters:
        """Start of EM number so many; variables that are not counted have their own PMFs."""
        rng = np.random.default_rng([seed, number])
        model = fit(self.counts, rank, method=self.start_method, rng=rng).model
        factors = np.repeat(self.singles[:, None], rank, axis=1)
        factors[list_levels(self.schema, self.variables)] = model.factors
        return open_for_em((model.prior, factors), self.singles)

    def score(self, parameters: Parameters) -> FloatArray:
        """Log-likelihood of each held-out sample, or of its target given the rest where that was observed, nats."""
        model = JointPMF(*parameters, self.schema, {})
        if self.target is None:
            return model.log_prob(self.held_out)
        known = self.held_out[self.held_out[:, self.target] >= 0]
        rest = known.copy()
        rest[:, self.target] = -1
        return model.log_prob(known) - model.log_prob(rest)

    def estimate_pass(self, job: SampleJob) -> float:
        """Seconds of a pass of a fit, by the model of costs."""
        return budget.estimate_pass(self.n_observed, self.schema.n_levels, job.members * job.rank)

    def estimate_start(self, job: SampleJob) -> float:
        """Seconds of the starts of a fit, by the model of costs."""
        if self.start_method == "random":
            return 0.0
        update = budget.estimate_update(self.counts.schema.n_levels, job.rank)
        return job.members * START_UPDATES * update


@dataclass(frozen=True, eq=False)
class SampleJob:
    """Work of `fit_samples`.

    Parameters
    ----------
    rank
        Latent states of each model, at least 1.
    pseudo_count
        Mean pseudo-count per level and state.
    members
        Models to average, at least 1.
    seed
        Seed of the starts.
    folder
        Folder for the states of EM; None saves none.
    choice
        Digest of the choice that the fit is part of.
    """

    rank: int
    pseudo_count: float
    members: int
    seed: int
    folder: Path | None = None
    choice: str = ""

    @property
    def name(self) -> str:
        """Name that no other fit of its choice has."""
        return f"samples-{self.pseudo_count:g}-{self.rank}"


def fit_samples(work: tuple[RankSamples, SampleJob]) -> RankFit:
    """Fit a rank to samples by EM, until held-out samples stop it, and score them.

    Parameters
    ----------
    work
        Samples and settings: one argument, for maps on Dask.

    Returns
    -------
    The fit, without its parameters: only its scores are compared.
    """
    samples, job = work
    runs = Runs(
        samples.training,
        samples.judged,
        samples.schema.offsets,
        samples.singles,
        MAX_PASSES,
        checkpoint=job.folder,
        options=job.choice,
    )
    starts = [samples.start(job.rank, job.seed, number) for number in range(job.members)]
    state = runs.run(job.name, starts, job.pseudo_count)
    assert state.best_prior is not None
    assert state.best_factors is not None
    scores = samples.score((state.best_prior, state.best_factors))
    nothing = np.empty(0), np.empty((0, 0))
    return RankFit(nothing, -max(state.held_out), scores, state.n_passes)
