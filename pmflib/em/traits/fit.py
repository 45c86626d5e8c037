"""Fits of trait models by EM, and what they are chosen by: cells held out of known people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray
from pmflib.core.blocks import Block
from pmflib.core.comparison import Comparison, Setting, compare_candidates, compare_samples
from pmflib.core.defaults import Limits
from pmflib.em.family import Family, State, run_em
from pmflib.em.traits.passes import (
    Coefficients,
    PassModel,
    TraitSums,
    count_sum_bytes,
    multiply,
    sum_traits,
)
from pmflib.em.traits.samples import HeldOutCells, count_levels, cut_people
from pmflib.model.traits.level_scores import NOMINAL, LevelScores
from pmflib.model.traits.trait_model import TraitModel
from pmflib.schema import Schema

DIMENSIONS = (0, 1, 2, 4, 8, 16)
"""Numbers of dimensions that are compared, as long as more of them gain."""
SHRINKAGES = (1.0, 0.9, 0.8)
"""Shrinkages that are compared for the best number of dimensions; the first is that of all others."""
PASSES = (8, 16, 24, 32)
"""Numbers of passes that are compared: few passes of many dimensions are a fit of few."""
PATIENCE = 2
"""Numbers of dimensions without a gain after which there are no more."""


@dataclass(frozen=True)
class TraitSettings:
    """How to fit.

    Parameters
    ----------
    dimensions
        Traits besides the biases of people, at least 0.
    shrinkage
        In (0, 1], as for `pmflib.em.traits.passes.Coefficients.update`.
    passes
        Number of passes, at least 1.
    """

    dimensions: int
    shrinkage: float
    passes: int

    def to_json(self) -> dict[str, Setting]:
        """Settings by name."""
        return {
            "dimensions": self.dimensions,
            "shrinkage": self.shrinkage,
            "passes": self.passes,
        }


TraitState: TypeAlias = State[Coefficients]
"""State of EM of traits; log-likelihoods are sums over the samples, by Laplace's approximation."""


@dataclass(frozen=True, eq=False)
class Traits(Family[Coefficients, TraitSums]):
    """Trait models: logits of the levels are linear in normal traits of people.

    Passes have no test of convergence: their number is a setting.

    Parameters
    ----------
    scores
        Directions of the variables.
    shrinkage
        As for `pmflib.em.traits.passes.Coefficients.update`.
    """

    scores: LevelScores
    shrinkage: float

    merge = staticmethod(TraitSums.merge)

    def begin(self, dimensions: int, seed: int) -> TraitState:
        """State before the first pass, with random slopes."""
        return State(Coefficients.draw(self.scores, dimensions, np.random.default_rng(seed)))

    def add(self, parameters: Coefficients, blocks: Iterable[Block]) -> TraitSums:
        """Gradients and curvatures of the coefficients, and moments of the traits."""
        return sum_traits(blocks, PassModel(self.scores, parameters.values))

    def measure(self, parameters: Coefficients) -> int:
        """Size of the sums, bytes."""
        return count_sum_bytes(self.scores, PassModel(self.scores, parameters.values).n_traits)

    def update(self, state: TraitState, sums: TraitSums) -> TraitState:
        """M-step: a step of each coefficient."""
        updated = state.parameters.update(self.scores, sums, self.shrinkage)
        return state.after(updated, sums.log_likelihood)

    def has_converged(self, state: TraitState, limits: Limits) -> bool:
        """Never: the number of passes is a setting."""
        return False

    def pack(self, parameters: Coefficients) -> Arrays:
        """Values, centres and variances."""
        return {field.name: getattr(parameters, field.name) for field in fields(Coefficients)}

    def unpack(self, arrays: Arrays) -> Coefficients:
        """The model that `pack` was called on, to the same bits."""
        return Coefficients(**arrays)

    def make_model(self, state: TraitState, schema: Schema, level_counts: FloatArray) -> TraitModel:
        """Trait model of a state."""
        base, slopes = self.scores.spread(state.parameters.values)
        return make_model(schema, self.scores, level_counts, base, slopes)


@dataclass(frozen=True)
class TraitChoice:
    """What a fit has chosen, or was given.

    Parameters
    ----------
    settings
        How to fit.
    n_states
        Latent states of the joint PMF.
    comparisons
        What was compared.
    """

    settings: TraitSettings
    n_states: int
    comparisons: tuple[Comparison, ...] = ()

    def to_arrays(self) -> Arrays:
        """The choice as a checkpoint keeps it."""
        content = {
            "settings": self.settings.to_json(),
            "states": self.n_states,
            "comparisons": [each.to_json() for each in self.comparisons],
        }
        return {"json": np.array(json.dumps(content))}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> TraitChoice:
        """The choice that `to_arrays` was called on."""
        content = json.loads(str(arrays["json"]))
        comparisons = tuple(Comparison.from_json(each) for each in content["comparisons"])
        return cls(TraitSettings(**content["settings"]), content["states"], comparisons)


def make_model(
    schema: Schema, scores: LevelScores, counts: FloatArray, base: FloatArray, slopes: FloatArray
) -> TraitModel:
    """Trait model of standard normal traits, turned to principal axes: the first trait moves the observed cells most.

    A trait is positive where levels of greater value are likelier, or, where none has a value, where the level that it
    moves most is.
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
    """Weights of the levels (n_levels,) and slopes less their means, by which principal axes are found."""
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
    """Choose dimensions, shrinkage and passes by the log-probability of the held-out cells.

    Dimensions grow until two numbers of them have not gained; then other shrinkages are tried for the best.

    Parameters
    ----------
    held_out
        Cells, and what is left of their people.
    schema
        Variables.
    grids
        Dimensions, from the least to the largest, shrinkages, the usual one first, and numbers of passes.
    seed
        Seed of the starts.
    on_pass
        Called after each pass with words on it.

    Returns
    -------
    The settings, the model that was the best without the held-out cells, and what was compared.
    """
    tried: list[tuple[TraitSettings, TraitModel, FloatArray]] = []
    best = -1
    source = cut_people(held_out.block, schema)
    counts, most = count_levels(source), int(schema.cardinalities.max())
    scores = LevelScores.make(schema, counts.levels)

    def run(dimensions: int, shrinkage: float) -> bool:
        """Whether something is better than all before."""
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
