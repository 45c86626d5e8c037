"""EM for trait models, and the choice of their settings by prediction of held-out cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, TypeAlias

import numpy as np

from pmflib.base.arrays import Arrays, FloatArray
from pmflib.base.blocks import Block
from pmflib.base.comparison import Comparison, compare_candidates, compare_samples
from pmflib.base.defaults import Limits
from pmflib.base.json_records import JsonRecord
from pmflib.base.method_options import method_option
from pmflib.em.family import Family, State, run_em
from pmflib.families.traits.level_scores import NOMINAL, LevelScores
from pmflib.families.traits.passes import (
    Coefficients,
    PassModel,
    TraitSums,
    count_sum_bytes,
    multiply,
    sum_traits,
)
from pmflib.families.traits.samples import HeldOutCells, count_levels, cut_people
from pmflib.families.traits.trait_model import TraitModel
from pmflib.schema import Schema

DIMENSIONS = (0, 1, 2, 4, 8, 16)
"""Numbers of dimensions to compare, in increasing order while they improve."""
SHRINKAGES = (1.0, 0.9, 0.8)
"""Shrinkages to compare at the best number of dimensions; the first is used for all other comparisons."""
PASSES = (8, 16, 24, 32)
"""Numbers of passes to compare; stopping early with many dimensions acts like fewer dimensions."""
PATIENCE = 2
"""Number of consecutive dimensions without improvement after which the search stops."""


@dataclass(frozen=True)
class TraitSettings(JsonRecord):
    """Settings of a trait model fit.

    Parameters
    ----------
    dimensions
        Number of traits besides each person's biases, at least 0.
    shrinkage
        In (0, 1], as for `pmflib.families.traits.passes.Coefficients.update`.
    passes
        Number of EM passes, at least 1.
    """

    dimensions: int
    shrinkage: float
    passes: int


@dataclass(frozen=True)
class TraitOptions:
    """Settings of a trait model fit in a configuration; those that are not given are chosen on held-out cells."""

    dimensions: int | None = method_option(None, "traits besides the biases", least=0)
    shrinkage: float | None = method_option(
        None, "share of their estimated variance that slopes are given a priori", least=0, most=1
    )
    passes: int | None = method_option(None, "EM passes", least=1)


TraitState: TypeAlias = State[Coefficients]
"""EM state of a trait model; log-likelihoods are totals over samples, by Laplace's approximation."""


@dataclass(frozen=True, eq=False)
class Traits(Family[Coefficients, TraitSums]):
    """Trait models: the logits of levels are linear in normally distributed traits of people.

    There is no convergence test: the number of passes is a setting.

    Parameters
    ----------
    scores
        Directions of the variables.
    shrinkage
        As for `pmflib.families.traits.passes.Coefficients.update`.
    """

    scores: LevelScores
    shrinkage: float

    merge = staticmethod(TraitSums.merge)

    def begin(self, dimensions: int, seed: int) -> TraitState:
        """Return the state before the first pass, with random slopes."""
        return State(Coefficients.draw(self.scores, dimensions, np.random.default_rng(seed)))

    def add(self, parameters: Coefficients, blocks: Iterable[Block]) -> TraitSums:
        """Compute gradients and curvatures for the coefficients, and moments of the traits."""
        return sum_traits(blocks, PassModel(self.scores, parameters.values))

    def measure(self, parameters: Coefficients) -> int:
        """Return the size of the statistics in bytes."""
        return count_sum_bytes(self.scores, PassModel(self.scores, parameters.values).n_traits)

    def update(self, state: TraitState, sums: TraitSums) -> TraitState:
        """M-step: one Newton step for the coefficients of every variable."""
        updated = state.parameters.update(self.scores, sums, self.shrinkage)
        return state.after(updated, sums.log_likelihood)

    def has_converged(self, state: TraitState, limits: Limits) -> bool:
        """Return False: the number of passes is a setting."""
        return False

    def pack(self, parameters: Coefficients) -> Arrays:
        """Return values, centres and variances as arrays."""
        return {field.name: getattr(parameters, field.name) for field in fields(Coefficients)}

    def unpack(self, arrays: Arrays) -> Coefficients:
        """Restore the coefficients given to `pack`, bit for bit."""
        return Coefficients(**arrays)

    def make_model(self, state: TraitState, schema: Schema, level_counts: FloatArray) -> TraitModel:
        """Build the trait model of a state."""
        base, slopes = self.scores.spread(state.parameters.values)
        return make_model(schema, self.scores, level_counts, base, slopes)


@dataclass(frozen=True)
class TraitChoice(JsonRecord):
    """Settings chosen by a fit, or given to it.

    Parameters
    ----------
    settings
        Settings of the fit.
    n_states
        Number of latent states of the resulting joint PMF.
    comparisons
        Comparisons that the choice is based on.
    """

    settings: TraitSettings
    n_states: Annotated[int, "states"]
    comparisons: tuple[Comparison, ...] = ()

    def to_arrays(self) -> Arrays:
        """Convert the choice to checkpoint arrays."""
        return {"json": np.array(json.dumps(self.to_json()))}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> TraitChoice:
        """Restore the choice from `to_arrays`."""
        return cls.from_json(json.loads(str(arrays["json"])))


def make_model(
    schema: Schema, scores: LevelScores, counts: FloatArray, base: FloatArray, slopes: FloatArray
) -> TraitModel:
    """Build a trait model with standard normal traits rotated to principal axes of the logits.

    Traits are ordered by their effect on the observed cells. The sign of a trait is chosen so that larger values make
    levels with larger values more likely, or, if no level has a value, so that the most affected level becomes more
    likely.
    """
    n_traits = slopes.shape[1]
    weights, centred = weigh_slopes(schema, scores, counts, slopes)
    moved = (
        np.stack(
            [
                (weights[:, None] * centred * centred[:, f, None]).sum(axis=0)
                for f in range(n_traits)
            ]
        )
        if n_traits
        else np.zeros((0, 0))
    )
    axes = np.linalg.eigh((moved + moved.T) / 2)[1][:, ::-1]
    turned = multiply(slopes, axes)
    values = np.zeros(schema.n_levels)
    for position in range(schema.n_variables):
        table, at = scores.table(position), scores.starts[position, 1]
        if table.shape[1] and scores.kinds[at] != NOMINAL:
            values[schema.rows_of(position)] = table[:, 0]
    for f in range(n_traits):
        toward = float((weights * values * turned[:, f]).sum())
        if toward == 0:
            toward = float(turned[np.abs(turned[:, f]).argmax(), f])
        turned[:, f] *= -1.0 if toward < 0 else 1.0
    return TraitModel(schema, base, turned, np.zeros(n_traits), np.eye(n_traits))


def weigh_slopes(
    schema: Schema, scores: LevelScores, counts: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return level weights (n_levels,) and centred slopes, from which the principal axes are computed."""
    marginals = np.exp(scores.log_marginals)
    cells = np.add.reduceat(counts, schema.offsets[:-1])
    weights = np.repeat(cells + 1.0, schema.cardinalities) * marginals
    centres = np.add.reduceat(marginals[:, None] * slopes, schema.offsets[:-1])
    return weights, slopes - np.repeat(centres, schema.cardinalities, axis=0)


def choose_settings(
    held_out: HeldOutCells,
    schema: Schema,
    grids: tuple[Sequence[int], Sequence[float], Sequence[int]],
    seed: int,
    on_pass: Callable[[str], None] = lambda _: None,
) -> tuple[TraitSettings, TraitModel, Comparison]:
    """Choose dimensions, shrinkage and number of passes by the log-probability of held-out cells.

    The number of dimensions grows until two consecutive values bring no gain; then the other shrinkages are tried.

    Parameters
    ----------
    held_out
        Held-out cells and the remaining cells of the same people.
    schema
        Variables.
    grids
        Dimensions in increasing order; shrinkages with the default first; numbers of passes.
    seed
        Seed of the starts.
    on_pass
        Progress callback, given a one-line message.

    Returns
    -------
    The settings, the model that predicted the held-out cells best (fitted without them), and the comparison.
    """
    tried: list[tuple[TraitSettings, TraitModel, FloatArray]] = []
    best = -1
    source = cut_people(held_out.block, schema)
    counts, most = count_levels(source), int(schema.cardinalities.max())
    scores = LevelScores.make(schema, counts.levels)

    def run(dimensions: int, shrinkage: float) -> bool:
        """Fit with these settings and return whether they are the best so far."""
        nonlocal best
        before = best

        def report(state: TraitState) -> None:
            on_pass(f"{dimensions} dimensions, shrinkage {shrinkage:g}: pass {state.n_passes}")

        family = Traits(scores, shrinkage)
        state = family.begin(dimensions, seed)
        for passes in sorted(grids[2]):
            limits = Limits(max_passes=passes)
            state = run_em(family, source, state, limits=limits, on_pass=report)
            model = family.make_model(state, schema, counts.levels)
            logs = held_out.score(model.predict_cells, most)
            tried.append((TraitSettings(dimensions, shrinkage, passes), model, logs))
            if best < 0 or logs.mean() > tried[best][2].mean():
                best = len(tried) - 1
        return best != before

    since = 0
    for dimensions in grids[0]:
        since = 0 if run(dimensions, grids[1][0]) else since + 1
        if since == PATIENCE:
            break
    if tried[best][0].dimensions:
        for shrinkage in grids[1][1:]:
            run(tried[best][0].dimensions, shrinkage)
    by_size = sorted(
        range(len(tried)),
        key=lambda at: (tried[at][0].dimensions, tried[at][0].shrinkage, tried[at][0].passes),
    )
    logs = [tried[at][2] for at in by_size]
    comparison = compare_candidates(
        "cell",
        [tried[at][0].to_json() for at in by_size],
        [float(each.mean()) for each in logs],
        subtract=lambda a, b: compare_samples(logs[a], logs[b]),
    )
    return tried[best][0], tried[best][1], comparison
