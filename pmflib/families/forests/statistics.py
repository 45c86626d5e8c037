"""Sufficient statistics of latent classes with forests, and the parameter update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pmflib.base.arrays import (
    FLOOR,
    Arrays,
    FloatArray,
    IntArray,
    normalise_blocks,
    sum_blocks,
)
from pmflib.base.blocks import Block, weigh_rows
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.families.forests.forest import Forest
from pmflib.model.sufficient_statistics import sum_fields

if TYPE_CHECKING:
    from pmflib.families.forests.kernels.star_passes import StarWork
    from pmflib.families.forests.kernels.stars import Stars

BATCH_ROWS = 4096
"""Number of rows whose posteriors are in memory at a time."""


class TreeParameters(NamedTuple):
    """Prior (rank,), forests, and tables (n_entries,) whose rows sum to 1."""

    prior: FloatArray
    forest: Forest
    tables: FloatArray

    @classmethod
    def plain(cls, prior: FloatArray, factors: FloatArray, offsets: IntArray) -> TreeParameters:
        """Make the parameters of latent classes without edges."""
        forest = Forest.without_edges(prior.size, offsets)
        return cls(prior, forest, forest.spread_levels(factors))

    def to_arrays(self, name: str) -> Arrays:
        """Convert to arrays for a checkpoint, with names that start with ``name``."""
        return {
            f"{name}_prior": self.prior,
            f"{name}_parents": self.forest.parents,
            f"{name}_tables": self.tables,
        }

    @classmethod
    def from_arrays(cls, name: str, offsets: IntArray, arrays: Arrays) -> TreeParameters:
        """Read the output of `to_arrays`, bitwise equal."""
        forest = Forest(arrays[f"{name}_parents"], offsets)
        return cls(arrays[f"{name}_prior"], forest, arrays[f"{name}_tables"])

    @staticmethod
    def join(parts: Sequence[TreeParameters]) -> TreeParameters:
        """Average several models: the result has the sum of their ranks."""
        prior = np.concatenate([each.prior for each in parts]) / len(parts)
        tables = np.concatenate([each.tables for each in parts])
        return TreeParameters(prior, Forest.join([each.forest for each in parts]), tables)


@dataclass(frozen=True, eq=False)
class TreeStatistics:
    """Sufficient statistics of some samples under one model.

    Parameters
    ----------
    mass
        float64 of shape (n_entries,): expected number of samples by state, level, and level of its parent. Missing
        variables without observed descendants contribute nothing.
    state_mass
        float64 of shape (rank,): posterior mass of the samples with at least one observed cell.
    log_likelihood
        Log-likelihood of the samples, nats.
    n_rows
        Number of samples, or the sum of their weights.
    """

    mass: FloatArray
    state_mass: FloatArray
    log_likelihood: float
    n_rows: float

    @staticmethod
    def merge(parts: Sequence[TreeStatistics]) -> TreeStatistics:
        """Sum one or more statistics in the order given; the same order gives bitwise equal results."""
        return sum_fields(parts)


class TreePasses:
    """Passes over blocks of samples under one model, with precomputed tables.

    Rows are processed by stars; rows that are almost impossible under all states are processed in logarithms, one state
    at a time.

    Parameters
    ----------
    parameters
        The model.
    """

    def __init__(self, parameters: TreeParameters) -> None:
        self.parameters = parameters
        self._offsets = parameters.forest.offsets
        self._prior = np.maximum(parameters.prior, FLOOR)
        self._tables = np.maximum(parameters.tables, FLOOR)

    def find_posteriors(
        self, codes: IntArray, posteriors: FloatArray, log_probs: FloatArray
    ) -> None:
        """Fill in the posterior of every row, (n_rows, rank), and its log-probability, (n_rows,)."""
        for rows in iterate_batches(self._stars.find_posteriors(codes, posteriors, log_probs)):
            posteriors[rows], log_probs[rows] = self._find_by_logs(codes[rows])

    def _find_by_logs(self, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Compute posteriors and log-probabilities of rows in logarithms, also for very improbable rows."""
        from pmflib.families.forests.kernels.messages import find_posteriors

        vectors, work, gaps = self._make_work()
        posteriors, log_probs = np.empty((len(codes), self._prior.size)), np.empty(len(codes))
        find_posteriors(
            codes,
            self.parameters.forest.arrays,
            self._offsets,
            np.log(self._prior),
            self._logs,
            self._tables,
            (vectors[0], work, gaps),
            posteriors,
            log_probs,
        )
        return posteriors, log_probs

    @cached_property
    def _stars(self) -> StarPasses:
        return StarPasses(self._prior, self.parameters.forest, self._tables)

    @cached_property
    def _complete_stars(self) -> StarPasses:
        return StarPasses(self._prior, self.parameters.forest, self._tables, complete=True)

    @cached_property
    def _logs(self) -> FloatArray:
        return np.log(self._tables)

    def find_beliefs(self, codes: IntArray, posteriors: FloatArray) -> FloatArray:
        """Compute the PMFs of the missing variables of every row: (n_rows, n_levels), 0 for observed ones."""
        from pmflib.families.forests.kernels.messages import find_beliefs

        chances = np.empty((len(codes), int(self._offsets[-1])))
        forest = self.parameters.forest.arrays
        find_beliefs(
            codes,
            posteriors,
            forest,
            self._offsets,
            self._logs,
            self._tables,
            self._make_work(),
            chances,
        )
        return chances

    def invert_cells(
        self, codes: IntArray, posteriors: FloatArray
    ) -> tuple[FloatArray, npt.NDArray[np.uint8]]:
        """Return the inverse of the probability of each observed cell given the others of its row.

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 missing.
        posteriors
            float64 of shape (n_rows, rank), given all observed cells; sums below 1 are parts of a larger mixture.

        Returns
        -------
        float64 of shape (n_rows, n_variables), 0 for missing cells; and uint8 of shape (n_rows,), 0 for rows with
        cells too improbable to divide by, whose values are not valid.
        """
        from pmflib.families.forests.kernels.messages import add_inverses

        vectors, evidence, _ = self._make_work()
        sent = np.empty((evidence.size, int(np.diff(self._offsets).max())))
        inverses, safe = np.zeros(codes.shape), np.ones(len(codes), np.uint8)
        model = self.parameters.forest.arrays, self._offsets, self._tables
        add_inverses(codes, posteriors, *model, (vectors, sent, evidence), inverses, safe)
        return inverses, safe

    def add_up(self, block: Block) -> TreeStatistics:
        """Run the E-step on one block of valid samples."""
        from pmflib.families.forests.kernels.messages import add_masses

        forest, rank = self.parameters.forest, self.parameters.prior.size
        mass, state_mass = np.zeros(forest.n_entries), np.zeros(rank)
        codes, weights = unpack_block(block, self._offsets)
        stars = self._complete_stars if block.n_observed == codes.size else self._stars
        total, doubtful = stars.add_masses(codes, weights, mass, state_mass)
        for rows in iterate_batches(doubtful):
            part = codes[rows]
            posteriors, log_probs = self._find_by_logs(part)
            total += float(weights[rows] @ log_probs)
            add_masses(
                part,
                weights[rows],
                posteriors,
                forest.arrays,
                self._offsets,
                self._logs,
                self._tables,
                self._make_work(),
                mass,
                state_mass,
            )
        return TreeStatistics(mass, state_mass, total, block.n_samples)

    def list_masses(self, codes: IntArray) -> FloatArray:
        """Return each valid row's contribution to the masses of states and tables: (n_rows, rank + n_entries)."""
        from pmflib.families.forests.kernels.messages import add_masses

        forest, rank = self.parameters.forest, self.parameters.prior.size
        posteriors, log_probs = np.empty((len(codes), rank)), np.empty(len(codes))
        self.find_posteriors(codes, posteriors, log_probs)
        masses, one = np.zeros((len(codes), rank + forest.n_entries)), np.ones(1)
        model = forest.arrays, self._offsets, self._logs, self._tables, self._make_work()
        for row in range(len(codes)):
            own = slice(row, row + 1)
            of_row = masses[row, rank:], masses[row, :rank]
            add_masses(codes[own], one, posteriors[own], *model, *of_row)
        return masses

    def add_pairs(self, block: Block, first: int, mass: FloatArray) -> None:
        """Add the posterior-weighted counts of all pairs in a block, for the states from ``first`` on."""
        from pmflib.families.forests.kernels.messages import add_pair_masses

        codes, weights = unpack_block(block, self._offsets)
        levels = np.empty(codes.shape[1], np.int64)
        for start in range(0, len(codes), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            part = codes[rows]
            posteriors = np.empty((len(part), self.parameters.prior.size))
            self.find_posteriors(part, posteriors, np.empty(len(part)))
            add_pair_masses(part, weights[rows], posteriors, first, self._offsets, levels, mass)

    def _make_work(self) -> tuple[FloatArray, IntArray, IntArray]:
        n_variables = self._offsets.size - 1
        vectors = np.empty((2, int(self._offsets[-1])))
        return vectors, np.empty(n_variables, np.uint8), np.empty(n_variables, np.int32)


def iterate_batches(rows: IntArray) -> Iterator[IntArray]:
    """Yield rows in batches of ``BATCH_ROWS``."""
    return (rows[start : start + BATCH_ROWS] for start in range(0, rows.size, BATCH_ROWS))


def fill_below(mass: FloatArray) -> None:
    """Copy the upper triangle of tables of pairs, (n_states, n_levels, n_levels), to the lower one, in place."""
    for each in mass:
        levels = each.diagonal().copy()
        each += each.T
        np.fill_diagonal(each, levels)


def unpack_block(block: Block, offsets: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the codes, (n_rows, n_variables), and weights, (n_rows,), of a block."""
    codes = np.ascontiguousarray(block.to_codes(offsets))
    return codes, weigh_rows(block)


def tree_m_step(
    statistics: TreeStatistics,
    parameters: TreeParameters,
    pseudo_counts: PseudoCounts,
    edge_pseudo_count: float,
    pooled_share: float = 0.0,
) -> TreeParameters:
    """Update the parameters with fixed forests: the M-step.

    Parameters
    ----------
    statistics
        Sufficient statistics of all training samples.
    parameters
        The model under which they were computed; parameters without mass keep their values.
    pseudo_counts
        Pseudo-counts of the variables' PMFs given the state, and of the states.
    edge_pseudo_count
        Number of pseudo-samples per level of a parent and state, at least 0.
    pooled_share
        Share of these, in [0, 1], distributed as in all states with the same edge combined; the others follow the
        variable's PMF given the state alone, independent of the parent.

    Returns
    -------
    The new parameters. Without edges they equal those of `pmflib.model.sufficient_statistics.m_step`.
    """
    prior, forest, tables = parameters
    offsets = forest.offsets
    levels = forest.sum_levels(statistics.mass) + pseudo_counts.levels[:, None]
    # marginals along the forests are computed only if some variable has no mass: they are the most expensive step
    is_full = bool((sum_blocks(levels, offsets) > FLOOR).all())
    own = normalise_blocks(levels, offsets, levels if is_full else forest.find_marginals(tables))
    spread = forest.spread_levels(own)
    base = spread
    if pooled_share and forest.n_edges:
        pooled = forest.normalise(forest.pool_states(statistics.mass), spread)
        base = pooled_share * pooled + (1 - pooled_share) * spread
    shrunk = forest.normalise(statistics.mass + edge_pseudo_count * base, base)
    states = statistics.state_mass + pseudo_counts.state
    total = states.sum()
    return TreeParameters(
        states / total if total > 0 else prior, forest, np.where(forest.has_parent, shrunk, spread)
    )


MAX_ENTRIES = 1 << 10
"""Maximum number of entries of a star with more than one child: five variables of 4 levels or three of 8; with missing
cells, four and three. The entries of a star and their masses then stay in the first-level cache during a pass."""
BATCH_BYTES, MOST_ROWS, LEAST_ROWS = 1 << 23, 512, 32
"""Size of the messages of a batch of rows, bytes, and the maximum and minimum number of rows in a batch."""


class StarPasses:
    """Passes over samples under one model by stars of its forests: see `pmflib.families.forests.kernels.stars`.

    Parameters
    ----------
    prior, forest, tables
        As in `pmflib.families.forests.statistics.TreeParameters`, with all probabilities positive.
    complete
        Whether no cell of the samples is missing; stars can then combine more variables.
    """

    def __init__(
        self, prior: FloatArray, forest: Forest, tables: FloatArray, *, complete: bool = False
    ) -> None:
        from pmflib.families.forests.kernels.star_passes import StarModel
        from pmflib.families.forests.kernels.stars import fill_stars

        offsets = forest.offsets
        self._sizes = np.append(np.diff(offsets), 1)
        largest = np.zeros(int(offsets[-1]))
        np.maximum.at(largest, forest.levels, tables)
        stars = arrange_forest(forest, complete=complete)
        values = np.empty(int(stars.bases[-1]))
        fill_stars(
            stars, forest.starts, self._sizes, tables, tables / largest[forest.levels], values
        )
        self._model = StarModel(
            stars, forest.is_shared, forest.arrays, offsets, prior, tables, values, np.log(largest)
        )

    def find_posteriors(
        self, codes: IntArray, posteriors: FloatArray, log_probs: FloatArray
    ) -> IntArray:
        """Fill in the posterior of every row, (n_rows, rank), and its log-probability, (n_rows,).

        Not available for `complete` passes.

        Returns
        -------
        Skipped rows, int64, in ascending order: those whose products are close to 0.
        """
        from pmflib.families.forests.kernels.star_passes import find_star_posteriors

        is_doubtful = np.empty(len(codes), np.uint8)
        work = self._make_work()
        find_star_posteriors(codes, self._model, work, posteriors, log_probs, is_doubtful)
        return np.flatnonzero(is_doubtful)

    def add_masses(
        self, codes: IntArray, weights: FloatArray, mass: FloatArray, state_mass: FloatArray
    ) -> tuple[float, IntArray]:
        """Add the masses of weighted rows to those of tables, (n_entries,), and of states, (rank,).

        Returns
        -------
        Log-likelihood, nats, and the skipped rows, as for `find_posteriors`.
        """
        from pmflib.families.forests.kernels.star_passes import add_star_masses
        from pmflib.families.forests.kernels.stars import collect_stars

        model, is_doubtful = self._model, np.empty(len(codes), np.uint8)
        by_entry = np.zeros(model.values.size)
        total = add_star_masses(
            codes,
            weights,
            model,
            self._make_work(),
            by_entry,
            mass,
            is_doubtful,
        )
        total += collect_stars(
            model.stars,
            model.forest[2],
            self._sizes,
            model.offsets,
            model.tables,
            model.values,
            model.log_scales,
            by_entry,
            mass,
            state_mass,
        )
        return total, np.flatnonzero(is_doubtful)

    def _make_work(self) -> StarWork:
        """Allocate the work space of a batch of rows; each pass needs its own."""
        from pmflib.families.forests.kernels.star_passes import StarWork

        stars, (rank, n_variables) = self._model.stars, self._model.forest[0].shape
        n_kept = 1 if self._model.is_shared else rank
        n_levels = int(self._model.offsets[-1])
        n_batch = choose_batch(n_levels, rank)
        # the narrowest dtype for keys, so that one vector operation computes more of them
        narrow = int(np.diff(stars.bases).max()) <= np.iinfo(np.uint16).max
        digit = np.uint16 if narrow else np.uint32
        cells = n_variables * n_batch
        return StarWork(
            np.empty((n_variables + 1, n_batch), digit),
            (
                np.empty(cells + 1, np.uint32),
                np.empty(n_variables + 1, np.int32),
                np.empty((n_variables, n_batch), np.int32),
            ),
            np.empty((int(stars.first_stars[n_kept]), n_batch), digit),
            np.empty((n_kept, n_variables, n_batch), np.uint8),
            np.empty((rank, n_levels * n_batch)),
            np.empty((rank, n_batch)),
            np.empty(n_batch),
            np.empty(n_batch, np.int32),
            np.empty(int(self._sizes.max())),
            (np.empty(n_batch, np.int64), np.empty(n_batch)),
        )


def choose_batch(n_levels: int, rank: int) -> int:
    """Choose the number of rows in a batch; it depends only on the model, and so does the order of sums."""
    return min(MOST_ROWS, max(LEAST_ROWS, BATCH_BYTES // (8 * n_levels * rank)))


def measure_stars(offsets: IntArray, rank: int) -> int:
    """Compute the maximum size of a model's star entries, their masses, and the messages of a batch, bytes."""
    sizes = np.diff(offsets)
    pairs = int((sizes + 1).sum()) * int(sizes.max() + 1)
    entries = rank * (pairs + sizes.size * MAX_ENTRIES)
    n_levels = int(offsets[-1])
    return 8 * (2 * entries + choose_batch(n_levels, rank) * n_levels * rank)


def arrange_forest(forest: Forest, *, complete: bool = False) -> Stars:
    """Group the variables of every state into stars of at most ``MAX_ENTRIES`` entries, or with a single child."""
    from pmflib.families.forests.kernels.stars import Stars, arrange_stars

    rank, n_variables = forest.parents.shape
    most, sizes = rank * n_variables, np.append(np.diff(forest.offsets), 1)
    # a digit at least doubles the entries
    most_digits = most * MAX_ENTRIES.bit_length()

    def allocate(n: int, dtype: type = np.int32) -> IntArray:
        return np.empty(n, dtype)

    stars = Stars(
        first_stars=allocate(rank + 1),
        states=allocate(most),
        centres=allocate(most),
        bases=allocate(most + 1, np.int64),
        first_children=allocate(most + 1),
        children=allocate(most),
        steps=allocate(most, np.int64),
        inner=allocate(most),
        first_digits=allocate(most + 1),
        digits=allocate(most_digits),
        digit_steps=allocate(most_digits, np.int64),
        first_outer=allocate(rank + 1),
        outer=allocate(most + rank),
        begins=allocate(most + rank),
        ends=allocate(most + rank),
        gap=0 if complete else 1,
    )
    arrange_stars(forest.parents, forest.order, sizes, MAX_ENTRIES, stars)
    return stars._replace(bases=stars.bases[: stars.first_stars[-1] + 1])
