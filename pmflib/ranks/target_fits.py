"""One rank judged by a target of held-out samples: fitted for it, with states of its levels, as the model will be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pmflib.arrays import IntArray
from pmflib.em.in_memory import SamplesInMemory
from pmflib.fitting.candidates import START_METHODS, Options
from pmflib.fitting.em_fit import EMFit, Passes
from pmflib.fitting.target_fit import MAX_STEPS, TARGET_CELLS, TARGET_WORK
from pmflib.ranks import budget
from pmflib.ranks.fit_runs import RankFit
from pmflib.ranks.sample_fits import BLOCK_RANK, RankSamples
from pmflib.schema import Schema

MAX_TABLE_LEVELS = 2000
"""Levels up to which ranks are fitted for their target: starts are made of all pairs, some seconds of counting."""

USUAL_STEPS = 600
"""Steps of all candidates of a rank, mostly: shares and pseudo-counts."""

STEP_PASSES = 2.5
"""Passes of EM that a step takes: the objective needs one with the target and one without, and is found anew where a
step was too long."""


@dataclass(frozen=True, eq=False)
class TargetFits:
    """Samples that ranks are fitted to for a target.

    Parameters
    ----------
    samples
        Training samples, and those to judge on.
    pseudo_counts
        Mean pseudo-counts per level and state, as the options of the fit list them.
    least, most
        Ranks that are fitted for the target: the number of its levels at least.
    """

    samples: RankSamples
    pseudo_counts: tuple[float, ...]
    least: int
    most: int

    @classmethod
    def plan(
        cls,
        samples: RankSamples,
        n_rows: int,
        n_observed: int,
        pseudo_counts: tuple[float, ...],
    ) -> TargetFits | None:
        """Plan fits for a target of as many samples and observed cells as the model will be fitted to.

        Parameters
        ----------
        samples
            Some of these samples, and those to judge on, with a target.
        n_rows, n_observed
            All training samples and their observed cells.
        pseudo_counts
            Those to compare, or the one that is given.

        Returns
        -------
        None where the model will be fitted by EM alone.
        """
        schema, target = samples.schema, samples.target
        assert target is not None
        least, most = schema[target].cardinality, TARGET_WORK // max(n_observed, 1)
        is_large = n_rows * schema.n_variables > TARGET_CELLS or schema.n_levels > MAX_TABLE_LEVELS
        if is_large or not 1 < least <= most:
            return None
        return cls(samples, pseudo_counts, least, most)

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to workers: threads are not."""
        return {name: value for name, value in self.__dict__.items() if name != "judged"}

    @cached_property
    def judged(self) -> SamplesInMemory:
        """Held-out samples for the steps."""
        samples = self.samples
        return SamplesInMemory(samples.held_out, samples.schema.offsets, BLOCK_RANK, samples.target)

    def estimate(self, rank: int, n_steps: int = USUAL_STEPS) -> float:
        """Seconds of so many steps, by the model of costs."""
        schema: Schema = self.samples.schema
        one = budget.estimate_pass(self.samples.n_observed, schema.n_levels, rank)
        return STEP_PASSES * n_steps * one


@dataclass(frozen=True)
class TargetJob:
    """Work of `fit_for_target`: a rank, and the seed of its start."""

    rank: int
    seed: int

    @property
    def name(self) -> str:
        """Name that no other fit of its choice has."""
        return f"target-{self.rank}"


def fit_for_target(work: tuple[TargetFits, TargetJob]) -> RankFit:
    """Fit a rank for its target, in the way that is best on held-out samples, and score these.

    Parameters
    ----------
    work
        Samples and settings: one argument, for maps on Dask.

    Returns
    -------
    The fit, without its parameters: only its scores are compared.
    """
    given, job = work
    samples = given.samples
    codes: IntArray = samples.codes
    fit = EMFit(
        samples.schema,
        job.rank,
        Options(START_METHODS, given.pseudo_counts),
        job.seed,
        Passes(MAX_STEPS, 0.0, 1, accelerate=False),
        samples.target,
    )
    training = SamplesInMemory(codes, samples.schema.offsets, job.rank)
    runs = fit.try_for_target(training, given.judged, fit.make_starts(fit.count(codes)))
    recipe, result = fit.report_best(runs, given.judged)
    n_steps = sum(len(run.losses) for run in runs.values())
    model = result.model.prior, result.model.factors
    nothing = np.empty(0), np.empty((0, 0))
    return RankFit(
        nothing, -max(result.held_out), samples.score(model), n_steps, recipe.pseudo_count
    )
