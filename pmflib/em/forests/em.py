"""EM of latent classes with forests: the family, its runs, and the search for the forests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray
from pmflib.core.blocks import Block
from pmflib.core.defaults import Limits
from pmflib.em.block_source import BlocksInMemory, BlockSource
from pmflib.em.driver import run_em
from pmflib.em.family import Family, State
from pmflib.em.forests.samples import add_up, choose_states, count_pairs, score_under_forests
from pmflib.em.forests.structure import grow_forest, measure_edge_gains
from pmflib.model.forests.forest import Forest
from pmflib.model.forests.statistics import (
    TreeParameters,
    TreePasses,
    TreeStatistics,
    tree_m_step,
)
from pmflib.solvers import PseudoCounts

LEAST_PASSES = 2
"""Passes from one search for the forests to the next, at first; they double as long as the forests change."""


class TreeOptions(NamedTuple):
    """How forests are found, and how tables are shrunk.

    Parameters
    ----------
    shared
        Whether all states have one forest; else each has its own.
    pseudo_count
        Mean pseudo-count per level and state, as for `pmflib.fit_em`.
    edge_pseudo_count
        Samples per level of a parent that are added to those of a state.
    pooled_share
        Share of these that are as in all states with the edge; the others are as if the variable did not depend on it.
    penalty
        What a free parameter of an edge costs, as a share of the Bayesian information criterion.
    """

    shared: bool = False
    pseudo_count: float = 0.3
    edge_pseudo_count: float = 4.0
    pooled_share: float = 0.5
    penalty: float = 1.0


@dataclass(frozen=True, eq=False)
class TreeRun:
    """A run of EM.

    Parameters
    ----------
    parameters
        The model: that of the best held-out log-likelihood, or else the last.
    options
        How it was fitted.
    log_likelihoods
        Training log-likelihood before each pass, nats per sample.
    held_out
        Held-out log-likelihood after each pass, nats per sample, that of the start first, -inf where it was not to be
        kept; empty without held-out samples.
    best_pass
        Passes after which the model was reached.
    converged
        Whether the run ended before its limit of passes.
    """

    parameters: TreeParameters
    options: TreeOptions
    log_likelihoods: tuple[float, ...]
    held_out: tuple[float, ...]
    best_pass: int
    converged: bool

    @classmethod
    def begin(cls, start: TreeParameters, options: TreeOptions) -> TreeRun:
        """A run without passes."""
        return cls(start, options, (), (), 0, False)

    @property
    def score(self) -> float:
        """Best held-out log-likelihood, nats per sample."""
        return max(self.held_out)


class TreePass(NamedTuple):
    """Result of a pass.

    Parameters
    ----------
    statistics
        Sufficient statistics.
    adopted
        The model that the M-step starts from, with the forests of the statistics.
    """

    statistics: TreeStatistics
    adopted: TreeParameters


TreeState: TypeAlias = State[TreeParameters]
"""State of EM with forests."""


@dataclass(frozen=True, eq=False)
class Forests(Family[TreeParameters, Any]):
    """Latent classes within which the variables form a forest; the forests are found anew from time to time.

    The numbers of a state are ``due``, the number of passes after which the forests are found anew, ``gap``, the passes
    from then to the next time, and ``last_change``, the pass after which the forests last changed.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    options
        How forests are found and tables shrunk.
    pseudo_counts
        Pseudo-counts of levels and states.
    """

    offsets: IntArray
    options: TreeOptions
    pseudo_counts: PseudoCounts

    score_under = staticmethod(score_under_forests)
    merge = staticmethod(TreeStatistics.merge)

    def begin(self, start: TreeParameters) -> TreeState:
        """State before the first pass."""
        return State(start, numbers={"due": 0, "gap": LEAST_PASSES, "last_change": 0})

    def add(self, parameters: TreeParameters, blocks: Iterable[Block]) -> TreeStatistics:
        """Posterior mass of the states and of the entries of their tables."""
        passes = TreePasses(parameters)
        return TreeStatistics.merge([passes.add_up(block) for block in blocks])

    def measure(self, parameters: TreeParameters) -> int:
        """Size of the tables, bytes."""
        return 8 * (parameters.forest.n_entries + parameters.prior.size)

    def start(self, source: BlockSource, state: TreeState) -> Callable[[], TreePass]:
        """Return the pass, which finds the forests anew where this is due."""
        if state.n_passes == state.numbers["due"]:
            return lambda: find_forest(source, state.parameters, self)
        wait = super().start(source, state)
        return lambda: TreePass(wait(), state.parameters)

    def update(self, state: TreeState, made: TreePass) -> TreeState:
        """M-step, and when the forests are found anew next."""
        number, numbers = state.n_passes, dict(state.numbers)
        if number == numbers["due"]:
            numbers |= {"due": number + numbers["gap"], "gap": 2 * numbers["gap"]}
            old, new = state.parameters.forest.parents, made.adopted.forest.parents
            if number and np.array_equal(old, new):
                numbers["due"] = max(numbers["due"], 4 * number)
            else:
                numbers["last_change"] = number
        shrinkage = self.options.edge_pseudo_count, self.options.pooled_share
        updated = tree_m_step(made.statistics, made.adopted, self.pseudo_counts, *shrinkage)
        log_likelihood = made.statistics.log_likelihood / max(made.statistics.n_rows, 1)
        return state.after(updated, log_likelihood, **numbers)

    def is_best(self, value: float, state: TreeState, limits: Limits) -> bool:
        """Whether a held-out log-likelihood rises by more than the tolerance."""
        return value > max(state.held_out) + limits.tol * abs(value)

    def has_converged(self, state: TreeState, limits: Limits) -> bool:
        """Whether no further pass is needed; new forests get some passes of their own."""
        last_change = state.numbers["last_change"]
        if state.held_out:
            return state.n_passes - max(state.best_pass, last_change) >= limits.patience
        if state.n_passes < 2 or state.n_passes <= last_change + 2:
            return False
        before, last = state.log_likelihoods[-2:]
        return abs(last - before) <= limits.tol * abs(last)

    def pack(self, parameters: TreeParameters) -> Arrays:
        """Prior, parents and tables."""
        return parameters.to_arrays("model")

    def unpack(self, arrays: Arrays) -> TreeParameters:
        """The model that `pack` was called on, to the same bits."""
        return TreeParameters.from_arrays("model", self.offsets, arrays)


def run_tree_em(
    samples: BlockSource,
    start: TreeParameters,
    options: TreeOptions,
    singles: FloatArray,
    *,
    held_out: BlockSource | None = None,
    keeps_start: bool = True,
    max_passes: int,
    tol: float,
    patience: int,
    checkpoint: Path | None = None,
    inputs: Sequence[object] = (),
    on_pass: Callable[[TreeState], None] | None = None,
) -> TreeRun:
    """Make passes until the likelihood has converged, or that of held-out samples has stopped rising.

    Parameters
    ----------
    samples
        Training samples.
    start
        Where to begin; without edges, or with some.
    options
        How forests are found and tables shrunk.
    singles
        float64 of shape (n_levels,), PMF of each variable, as `pmflib.counting.marginals.estimate_singles` has it.
    held_out
        Held-out samples that each pass is evaluated on.
    keeps_start
        Whether the start itself may be the best model; else only what these options have led to.
    max_passes, tol, patience
        As for `pmflib.fit_em`.
    checkpoint
        File for the state after each pass.
    inputs
        Whatever else the states depend on, as for `pmflib.em.checkpoint.digest_fit`.
    on_pass
        As for `pmflib.em.driver.run_em`.

    Returns
    -------
    The run. Equal arguments give equal bits, whatever the number of threads or workers.
    """
    shape = PseudoCounts.shaped_by(singles, samples.offsets, options.pseudo_count)
    family = Forests(samples.offsets, options, shape)
    state = run_em(
        family,
        samples,
        family.begin(start),
        held_out=held_out,
        keeps_start=keeps_start,
        limits=Limits(max_passes, tol, patience),
        checkpoint=family.open_checkpoint(checkpoint, samples, *inputs),
        on_pass=on_pass,
    )
    best = state.parameters if state.best is None else state.best
    return TreeRun(
        best, options, state.log_likelihoods, state.held_out, state.best_pass, state.converged
    )


def find_forest(samples: BlockSource, parameters: TreeParameters, family: Forests) -> TreePass:
    """Find forests under the current posteriors, in a pass that counts all pairs by state.

    Returns
    -------
    Statistics for the new forests, and the parameters as far as they are known: variables keep the PMF that they have.
    Where cells are missing, statistics are of the samples that hold both variables; the next pass takes all.
    """
    offsets, options, rank = family.offsets, family.options, parameters.prior.size
    n_chunk = choose_states(int(offsets[-1]), in_memory=isinstance(samples, BlocksInMemory))
    chunks = [range(first, min(first + n_chunk, rank)) for first in range(0, rank, n_chunk)]
    singles = add_up(samples, parameters)
    parents = np.full((rank, offsets.size - 1), -1, np.int32)
    total: FloatArray | float = 0.0
    mass = np.zeros(0)
    for chunk in chunks:
        mass = count_pairs(samples, parameters, chunk.start, len(chunk))
        for state in chunk:
            gains = measure_edge_gains(mass[state - chunk.start], offsets, options.penalty)
            if options.shared:
                total = total + gains
            else:
                parents[state] = grow_forest(gains)
    if options.shared:
        parents[:] = grow_forest(np.asarray(total))
    forest = Forest(parents, offsets)
    counts = forest.spread_levels(parameters.forest.sum_levels(singles.mass))
    for chunk in chunks:
        if len(chunks) > 1:
            mass = count_pairs(samples, parameters, chunk.start, len(chunk))
        is_in = (forest.states >= chunk.start) & (forest.states < chunk.stop)
        joined = np.flatnonzero(forest.has_parent & is_in)
        states, above = forest.states[joined] - chunk.start, forest.levels_above[joined]
        counts[joined] = mass[states, above, forest.levels[joined]]
    # without mass, variables keep the PMF that they have
    own = parameters.forest.find_marginals(parameters.tables)
    adopted = TreeParameters(parameters.prior, forest, forest.spread_levels(own))
    return TreePass(replace(singles, mass=counts), adopted)
