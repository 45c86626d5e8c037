"""Fits of trait models by EM, and what they are chosen by: cells held out of known people."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray
from pmflib.core.comparison import Comparison, Setting, compare_candidates, compare_samples
from pmflib.em.checkpoint import Checkpoint
from pmflib.em.driver import run_em
from pmflib.em.traits.passes import Coefficients, PassModel, TraitSums, multiply
from pmflib.em.traits.samples import HeldOutCells, LevelCounts, TraitSamples
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

COEFFICIENT_ARRAYS = ("values", "centres", "variances")


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


@dataclass(frozen=True, eq=False)
class TraitState:
    """State of EM after some passes: the next one goes on from it, to the same bits.

    Parameters
    ----------
    coefficients
        What the next pass is made under.
    log_likelihoods
        Before each pass, nats, by Laplace's approximation.
    """

    coefficients: Coefficients
    log_likelihoods: tuple[float, ...] = ()

    @property
    def parameters(self) -> FloatArray:
        """Intercepts and slopes of the directions."""
        return self.coefficients.values

    @property
    def n_passes(self) -> int:
        """Number of passes made."""
        return len(self.log_likelihoods)

    def to_arrays(self) -> Arrays:
        """The state as a checkpoint keeps it."""
        found = self.coefficients
        coefficients = {name: getattr(found, name) for name in COEFFICIENT_ARRAYS}
        return coefficients | {"log_likelihoods": np.array(self.log_likelihoods)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> TraitState:
        """The state that `to_arrays` was called on, to the same bits."""
        coefficients = Coefficients(*(arrays[name] for name in COEFFICIENT_ARRAYS))
        return cls(coefficients, tuple(arrays["log_likelihoods"].tolist()))


@dataclass(frozen=True, eq=False)
class TraitFit:
    """EM of one trait model.

    Parameters
    ----------
    samples
        What it is fitted to.
    counts
        Counts of their levels.
    settings
        How to fit; its passes are the most.
    seed
        Seed of the start.
    checkpoint, on_pass
        As for `pmflib.em.driver.run_em`.
    """

    samples: TraitSamples
    counts: LevelCounts
    settings: TraitSettings
    seed: int
    checkpoint: Checkpoint[TraitState] | None = None
    on_pass: Callable[[TraitState], None] | None = None

    @cached_property
    def scores(self) -> LevelScores:
        """Directions of the variables."""
        return LevelScores.make(self.samples.schema, self.counts.levels)

    def start(self) -> TraitState:
        """State before the first pass."""
        rng = np.random.default_rng(self.seed)
        return TraitState(Coefficients.draw(self.scores, self.settings.dimensions, rng))

    def go_on(self, state: TraitState | Callable[[], TraitState], passes: int) -> TraitState:
        """Make passes from a state, or from what makes it, until there were so many."""
        return run_em(
            self._evaluate,
            self._update,
            state,
            has_converged=lambda _: False,
            max_passes=passes,
            checkpoint=self.checkpoint,
            on_pass=self.on_pass,
        )

    def make_model(self, state: TraitState) -> TraitModel:
        """Trait model of a state."""
        base, slopes = self.scores.spread(state.parameters)
        return make_model(self.samples.schema, self.scores, self.counts.levels, base, slopes)

    def _evaluate(self, values: FloatArray) -> TraitSums:
        return self.samples.run_pass(PassModel(self.scores, values))

    def _update(self, state: TraitState, sums: TraitSums) -> TraitState:
        coefficients = state.coefficients.update(self.scores, sums, self.settings.shrinkage)
        return TraitState(coefficients, (*state.log_likelihoods, sums.log_likelihood))


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
    samples = TraitSamples.load(held_out.block, schema)
    counts, most = samples.count(), int(schema.cardinalities.max())

    def run(dimensions: int, shrinkage: float) -> bool:
        """Whether something is better than all before."""
        nonlocal best
        before, settings = best, TraitSettings(dimensions, shrinkage, max(grids[2]))

        def report(state: TraitState) -> None:
            on_pass(f"{dimensions} dimensions, shrinkage {shrinkage:g}: pass {state.n_passes}")

        fit = TraitFit(samples, counts, settings, seed, on_pass=report)
        state = fit.start()
        for passes in sorted(grids[2]):
            state = fit.go_on(state, passes)
            model = fit.make_model(state)
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
