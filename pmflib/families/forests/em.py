"""EM for latent classes with forests: the family, its runs, the structure search, and the memory of passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pmflib.base.arrays import Arrays, FloatArray, IntArray
from pmflib.base.blocks import Block, DenseBlock, split_block
from pmflib.base.defaults import Limits
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.cluster.memory import MemoryPlan
from pmflib.em.block_source import MAX_BLOCKS, BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.blocks import ScoreRows, merge_duplicates
from pmflib.em.family import Family, State, run_em
from pmflib.em.memory import PassMemory
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.split_states import SplitStates
from pmflib.families.forests.statistics import (
    TreeParameters,
    TreePasses,
    TreeStatistics,
    fill_below,
    measure_stars,
    tree_m_step,
)
from pmflib.families.forests.structure import grow_forest, measure_edge_gains
from pmflib.store.sample_blocks import BlockGroup

LEAST_PASSES = 2
"""Initial number of passes between structure searches; it doubles while the forests keep changing."""
PAIR_BYTES = 1 << 25
"""Target size in bytes of the pair counts made in one pass over stored samples. The counts of a single state may be
larger, and each thread holds several.
"""
SEARCH_BYTES = 1 << 28
"""Target size in bytes of the pair counts made in one pass over samples in memory."""
BLOCK_WORK = 5_000_000
"""Approximate cells times rank per block in memory: a few milliseconds of work, enough for a thread."""


class TreeOptions(NamedTuple):
    """Options of the structure search and of the shrinkage of tables.

    Parameters
    ----------
    shared
        Whether all states share one forest; otherwise each state has its own.
    pseudo_count
        Mean pseudo-count per level and state, as for `pmflib.fit_em`.
    edge_pseudo_count
        Pseudo-count per level of the parent, added to the table of each edge.
    pooled_share
        Share of these pseudo-counts that follows the edge's table pooled over states; the rest follows independence.
    penalty
        Penalty per free parameter of an edge, as a multiple of the Bayesian information criterion.
    """

    shared: bool = False
    pseudo_count: float = 0.3
    edge_pseudo_count: float = 4.0
    pooled_share: float = 0.5
    penalty: float = 1.0


@dataclass(frozen=True, eq=False)
class TreeRun:
    """Result of an EM run with forests.

    Parameters
    ----------
    parameters
        Fitted model: the one with the best held-out log-likelihood, or the last one without held-out samples.
    options
        Options of the fit.
    log_likelihoods
        Training log-likelihood before each pass, nats per sample.
    held_out
        Held-out log-likelihood of the start and after each pass, nats per sample; -inf for models that were not
        eligible. Empty without held-out samples.
    best_pass
        Number of passes after which the model was reached.
    converged
        Whether EM converged before the limit of passes.
    """

    parameters: TreeParameters
    options: TreeOptions
    log_likelihoods: tuple[float, ...]
    held_out: tuple[float, ...]
    best_pass: int
    converged: bool

    @classmethod
    def begin(cls, start: TreeParameters, options: TreeOptions) -> TreeRun:
        """Return a run without passes."""
        return cls(start, options, (), (), 0, False)

    @property
    def score(self) -> float:
        """Best held-out log-likelihood, nats per sample."""
        return max(self.held_out)


class TreePass(NamedTuple):
    """Result of one pass.

    Parameters
    ----------
    statistics
        Sufficient statistics.
    adopted
        Model that the M-step starts from, with the forests that the statistics are for.
    """

    statistics: TreeStatistics
    adopted: TreeParameters


TreeState: TypeAlias = State[TreeParameters]
"""State of EM with forests."""


def score_under_forests(parameters: TreeParameters, _: IntArray) -> ScoreRows:
    """Return a function that scores rows under a model with forests; logarithms are computed once."""
    return SplitStates(parameters).score


@dataclass(frozen=True, eq=False)
class Forests(Family[TreeParameters, Any]):
    """Latent class models whose variables form a forest within each class; the forests are re-estimated periodically.

    A state keeps three numbers: ``due``, the pass after which the forests are re-estimated; ``gap``, the number of
    passes until the next time; and ``last_change``, the pass after which the forests last changed.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    options
        Options of the structure search and of the shrinkage of tables.
    pseudo_counts
        Pseudo-counts of levels and states.
    """

    offsets: IntArray
    options: TreeOptions
    pseudo_counts: PseudoCounts

    score_under = staticmethod(score_under_forests)
    merge = staticmethod(TreeStatistics.merge)

    def begin(self, start: TreeParameters, due: int = 0) -> TreeState:
        """Return the state before the first pass, given the number of passes before the first structure search."""
        return State(start, numbers={"due": due, "gap": LEAST_PASSES, "last_change": 0})

    def add(self, parameters: TreeParameters, blocks: Iterable[Block]) -> TreeStatistics:
        """Compute the posterior mass of the states and of the table entries."""
        return add_up_group([*blocks], parameters)

    def measure(self, parameters: TreeParameters) -> int:
        """Return the size of the tables in bytes."""
        return 8 * (parameters.forest.n_entries + parameters.prior.size)

    def is_plain(self, state: TreeState) -> bool:
        """Return whether the next pass keeps the forests."""
        return state.n_passes != state.numbers["due"]

    def start(self, source: BlockSource, state: TreeState) -> Callable[[], Any]:
        """Start a pass, which re-estimates the forests when that is due."""
        if self.is_plain(state):
            return super().start(source, state)
        return lambda: find_forest(source, state.parameters, self)

    def update(self, state: TreeState, made: TreePass | TreeStatistics) -> TreeState:
        """Perform the M-step and schedule the next structure search."""
        if isinstance(made, TreeStatistics):
            made = TreePass(made, state.parameters)
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
        """Return whether the held-out log-likelihood improved by more than the tolerance."""
        return value > max(state.held_out) + limits.tol * abs(value)

    def has_converged(self, state: TreeState, limits: Limits) -> bool:
        """Return whether to stop; a new forest is always given a few passes."""
        last_change = state.numbers["last_change"]
        if state.held_out:
            return state.n_passes - max(state.best_pass, last_change) >= limits.patience
        if state.n_passes < 2 or state.n_passes <= last_change + 2:
            return False
        before, last = state.log_likelihoods[-2:]
        return abs(last - before) <= limits.tol * abs(last)

    def pack(self, parameters: TreeParameters) -> Arrays:
        """Return the prior, parents and tables as arrays."""
        return parameters.to_arrays("model")

    def unpack(self, arrays: Arrays) -> TreeParameters:
        """Restore the model given to `pack`, bit for bit."""
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
    """Run EM until the training log-likelihood converges or the held-out log-likelihood stops improving.

    Parameters
    ----------
    samples
        Training samples.
    start
        Initial model, with or without edges.
    options
        Options of the structure search and of the shrinkage of tables.
    singles
        float64 of shape (n_levels,): PMF of each variable, as returned by `pmflib.counts.marginals.estimate_singles`.
    held_out
        Held-out samples, evaluated after each pass.
    keeps_start
        Whether the start is eligible as the best model; otherwise only models fitted with these options are.
    limits
        Stopping criteria, as for `pmflib.fit_em`.
    checkpoint
        File in which the state is saved after each pass.
    inputs
        Other inputs that determine the states, as for `pmflib.em.checkpoint.digest_fit`.
    on_pass
        As for `pmflib.em.family.run_em`.

    Returns
    -------
    The run. Equal arguments give equal bits for any number of threads or workers.
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
    """Estimate forests from the pair counts of each state under the current posteriors.

    Returns
    -------
    The statistics for the new forests and the current parameters, in which the PMF of each variable is unchanged. With
    missing cells, the statistics include only samples in which both variables of an edge are observed; the next pass
    uses all samples.
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
    # without mass, variables keep their current PMF
    own = parameters.forest.find_marginals(parameters.tables)
    adopted = TreeParameters(parameters.prior, forest, forest.spread_levels(own))
    return TreePass(replace(singles, mass=counts), adopted)


def load_samples(
    samples: IntArray | DenseBlock, offsets: IntArray, rank: int, target: int | None = None
) -> BlocksInMemory:
    """Group samples into blocks of distinct rows; for the arguments see `BlocksInMemory.cut`."""
    given = samples if isinstance(samples, DenseBlock) else DenseBlock(samples)
    whole = merge_duplicates(replace(given, codes=np.ascontiguousarray(given.codes)))
    work = given.codes.shape[1] * whole.n_rows * rank
    n_blocks = max(1, min(MAX_BLOCKS, work // BLOCK_WORK, whole.n_rows))
    blocks = split_block(whole, n_blocks)
    return BlocksInMemory(blocks, offsets, target, n_observed=given.n_observed)


def add_up(source: BlockSource, parameters: TreeParameters) -> TreeStatistics:
    """Compute the sufficient statistics of all samples under a model."""
    n_bytes = 8 * (parameters.forest.n_entries + parameters.prior.size)
    return source.map_blocks(
        add_up_group, TreeStatistics.merge, parameters, result_bytes=n_bytes, name="pass"
    )


def count_pairs(
    source: BlockSource, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Compute posterior-weighted counts of all pairs for some states, symmetric: (n_states, n_levels, n_levels)."""
    n_bytes = 8 * n_states * int(source.offsets[-1]) ** 2
    shared = parameters, first, n_states
    mass = source.map_in_turn(
        count_pairs_by_state, add_tables, *shared, result_bytes=n_bytes, name="pairs"
    )
    fill_below(mass)
    return mass


def choose_states(n_levels: int, *, in_memory: bool = False) -> int:
    """Return the number of states whose pairs are counted in one pass; it does not affect the bits of the result."""
    return max(1, (SEARCH_BYTES if in_memory else PAIR_BYTES) // (8 * n_levels**2))


def are_modest(offsets: IntArray, rank: int) -> bool:
    """Return whether forests are tried by default; the answer must not depend on the memory of the machine."""
    return find_largest(offsets, rank) <= PAIR_BYTES


def find_largest(offsets: IntArray, rank: int) -> int:
    """Return the size in bytes of the largest possible forest tables or of one state's pair counts, if larger."""
    return max(measure_tables(offsets, rank), 8 * int(offsets[-1]) ** 2)


def measure_tables(offsets: IntArray, rank: int) -> int:
    """Return the largest possible size of forest tables: every variable has the parent with the most levels."""
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
        Number of latent states.
    n_threads
        Number of threads per worker.
    n_models
        Number of models whose average is evaluated.
    n_waiting
        Largest number of results that a task holds at once: `TaskPlan.n_waiting` of a pass.
    """
    n_levels, table = int(offsets[-1]), measure_tables(offsets, rank)
    pairs = 8 * min(rank, choose_states(n_levels)) * n_levels**2
    parameters = f"tables of forests of {n_levels} levels x rank {rank}"
    return PassMemory(
        "EM with forests",
        "Merge levels, lower the rank, use fewer threads, raise cluster.memory_limit, or fit without dependence.",
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
            # observed counts, expected counts, and work space for comparing them
            f"counts of all pairs of {n_levels} levels": 10 * 8 * n_levels**2
            + max(2 * pairs, SEARCH_BYTES),
        },
    ).plan(n_threads, n_waiting)


def add_up_group(group: BlockGroup, parameters: TreeParameters) -> TreeStatistics:
    """Compute the sufficient statistics of a group of blocks under a model."""
    passes = TreePasses(parameters)
    return TreeStatistics.merge([passes.add_up(block) for block in iterate_distinct(group)])


def count_pairs_by_state(
    group: BlockGroup, parameters: TreeParameters, first: int, n_states: int
) -> FloatArray:
    """Compute posterior-weighted pair counts of a group: (n_states, n_levels, n_levels), upper triangle only."""
    passes = TreePasses(parameters)
    n_levels = int(parameters.forest.offsets[-1])
    mass = np.zeros((n_states, n_levels, n_levels))
    for block in iterate_distinct(group):
        passes.add_pairs(block, first, mass)
    return mass


def add_tables(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum tables, at least one, in the given order into a new table."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
