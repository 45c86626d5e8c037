"""EM of latent classes with forests: the family, its runs, the search for forests, and the memory of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pmflib.cluster.memory import MemoryPlan
from pmflib.core.arrays import Arrays, FloatArray, IntArray
from pmflib.core.blocks import Block, DenseBlock, split_block
from pmflib.core.defaults import Limits
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.blocks import ScoreRows, merge_duplicates
from pmflib.em.family import Family, State, run_em
from pmflib.em.forests.structure import grow_forest, measure_edge_gains
from pmflib.em.memory import PassMemory
from pmflib.model.forests.forest import Forest
from pmflib.model.forests.statistics import (
    TreeParameters,
    TreePasses,
    TreeStatistics,
    fill_below,
    measure_stars,
    tree_m_step,
)
from pmflib.solvers import PseudoCounts
from pmflib.store.sample_blocks import BlockGroup

LEAST_PASSES = 2
"""Passes from one search for the forests to the next, at first; they double as long as the forests change."""
PAIR_BYTES = 1 << 25
"""Size of the counts of pairs that a pass over stored samples makes at a time, bytes; those of one state may be larger:
each thread holds several."""
SEARCH_BYTES = 1 << 28
"""Size of those that a pass over samples in memory makes at a time, bytes."""
BLOCK_WORK = 5_000_000
"""Cells times rank in a block in memory, about: some milliseconds of work, which is worth a thread."""


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


def score_under_forests(parameters: TreeParameters, _: IntArray) -> ScoreRows:
    """Scores of rows under a model with forests; its logarithms are taken once."""
    return TreePasses(parameters).score


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
        return add_up_group([*blocks], parameters)

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
    limits: Limits,
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
    limits
        When the run ends, as for `pmflib.fit_em`.
    checkpoint
        File for the state after each pass.
    inputs
        Whatever else the states depend on, as for `pmflib.em.checkpoint.digest_fit`.
    on_pass
        As for `pmflib.em.family.run_em`.

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
        limits=limits,
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


def load_samples(
    samples: IntArray | DenseBlock, offsets: IntArray, rank: int, target: int | None = None
) -> BlocksInMemory:
    """Cut samples into blocks of distinct rows for forests; arguments are as for `BlocksInMemory.cut`."""
    given = samples if isinstance(samples, DenseBlock) else DenseBlock(samples)
    whole = merge_duplicates(replace(given, codes=np.ascontiguousarray(given.codes)))
    work = given.codes.shape[1] * whole.n_rows * rank
    n_blocks = max(1, min(MAX_BLOCKS, work // BLOCK_WORK, whole.n_rows))
    blocks = split_block(whole, n_blocks)
    return BlocksInMemory(blocks, offsets, target, n_observed=given.n_observed)


def add_up(source: BlockSource, parameters: TreeParameters) -> TreeStatistics:
    """Sufficient statistics of all samples under a model."""
    n_bytes = 8 * (parameters.forest.n_entries + parameters.prior.size)
    return source.map_blocks(
        add_up_group, TreeStatistics.merge, parameters, result_bytes=n_bytes, name="pass"
    )


def count_pairs(
    source: BlockSource, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Posterior-weighted counts of all pairs, symmetric, for some states: (n_states, n_levels, n_levels)."""
    n_bytes = 8 * n_states * int(source.offsets[-1]) ** 2
    shared = parameters, first, n_states
    mass = source.map_in_turn(
        count_pairs_by_state, add_tables, *shared, result_bytes=n_bytes, name="pairs"
    )
    fill_below(mass)
    return mass


def choose_states(n_levels: int, *, in_memory: bool = False) -> int:
    """Number of states whose pairs are counted in one pass; bits do not depend on it."""
    return max(1, (SEARCH_BYTES if in_memory else PAIR_BYTES) // (8 * n_levels**2))


def are_modest(offsets: IntArray, rank: int) -> bool:
    """Whether forests may be tried without being asked for: the choice must not depend on the memory of a machine."""
    return find_largest(offsets, rank) <= PAIR_BYTES


def find_largest(offsets: IntArray, rank: int) -> int:
    """Size of the larger of a forest's tables and of the counts of a state's pairs, bytes, whatever the forest."""
    return max(measure_tables(offsets, rank), 8 * int(offsets[-1]) ** 2)


def measure_tables(offsets: IntArray, rank: int) -> int:
    """Largest size of the tables of forests: every variable may have the parent of most levels."""
    return 8 * rank * int(offsets[-1]) * int(np.diff(offsets).max())


def plan_trees(
    offsets: IntArray, rank: int, n_threads: int, n_models: int = 1, *, n_waiting: int = 10
) -> MemoryPlan:
    """Plan the memory of passes with forests over stored samples.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    rank
        Latent states of a model.
    n_threads
        Threads of a worker.
    n_models
        Models whose average is evaluated.
    n_waiting
        Most results that a task holds at once: `TaskPlan.n_waiting` of a pass.
    """
    n_levels, table = int(offsets[-1]), measure_tables(offsets, rank)
    pairs = 8 * min(rank, choose_states(n_levels)) * n_levels**2
    parameters = f"tables of forests of {n_levels} levels x rank {rank}"
    return PassMemory(
        "EM with forests",
        "Merge levels, lower the rank, use fewer threads, raise cluster.memory_limit, or leave out the dependence.",
        (
            f"sufficient statistics, or counts of pairs of {n_levels} levels",
            max(table, pairs),
        ),
        thread={
            f"{parameters}, and by stars, for every thread": n_models
            * (3 * table + measure_stars(offsets, rank))
        },
        client={
            f"{parameters}, before and after a pass": 10 * n_models * table,
            # counts, what is expected, and what the comparison of the two takes
            f"counts of all pairs of {n_levels} levels": 10 * 8 * n_levels**2
            + max(2 * pairs, SEARCH_BYTES),
        },
    ).plan(n_threads, n_waiting)


def add_up_group(group: BlockGroup, parameters: TreeParameters) -> TreeStatistics:
    """Sufficient statistics of a group of blocks under a model."""
    passes = TreePasses(parameters)
    return TreeStatistics.merge([passes.add_up(block) for block in iterate_distinct(group)])


def count_pairs_by_state(
    group: BlockGroup, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Posterior-weighted counts of the pairs of a group: (n_states, n_levels, n_levels), the upper triangle."""
    passes = TreePasses(parameters)
    n_levels = int(parameters.forest.offsets[-1])
    mass = np.zeros((n_states, n_levels, n_levels))
    for block in iterate_distinct(group):
        passes.add_pairs(block, first, mass)
    return mass


def add_tables(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum of tables, at least one, in the order given; no more than one is made."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
