"""Parameters of a chain of latent states, and the tables in which EM keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    FloatArray,
    IntArray,
    Parameters,
    list_owners,
    normalise_blocks,
    spread_evenly,
)
from pmflib.base.blocks import Block, weigh_rows
from pmflib.base.pseudo_counts import PseudoCounts
from pmflib.families.panels.waves import Waves
from pmflib.schema import Schema


class Chain(NamedTuple):
    """Parameters of a chain: those of `TransitionModel`."""

    initial: FloatArray
    transitions: FloatArray
    emissions: FloatArray

    def take_logs(self) -> Chain:
        """Return the floored logarithms."""
        return Chain(*(np.log(np.maximum(each, FLOOR)) for each in self))

    def take_states(self, order: IntArray) -> Chain:
        """Return the chain with its states in another order."""
        initial, transitions, emissions = self
        moved = transitions[:, order[:, None], order]
        return Chain(initial[order], moved, np.ascontiguousarray(emissions[:, order]))


@dataclass(frozen=True, eq=False)
class ChainLayout:
    """Tables of a chain, laid out like the factors of latent classes, for any number of states.

    The tables are the PMFs of the questions, of one wave where measurement is invariant, followed by transition
    matrices: a matrix is a variable whose levels are the next states. Equalities are ties: several levels, or steps
    between waves, have one table.

    Parameters
    ----------
    waves, ties
        int64 of shape (n_levels,): wave of each level of the schema, and its row of the tables.
    steps
        int64 of shape (n_waves - 1,): number of the matrix from each wave to the next.
    base_offsets
        int64 of shape (n_questions + 1,): offsets of the questions in the tables.
    offsets
        int64 of shape (n_variables + 1,): offsets of the schema.
    """

    waves: IntArray
    ties: IntArray
    steps: IntArray
    base_offsets: IntArray
    offsets: IntArray

    @classmethod
    def make(
        cls, schema: Schema, waves: Waves, homogeneous: bool = True, invariant: bool = True
    ) -> ChainLayout:
        """Lay out the tables of models with equal transitions between all waves, and equal PMFs in all, or not."""
        own_waves, questions = waves.find_places(schema)
        offsets, owners = schema.offsets, list_owners(schema.offsets)
        sizes = schema.cardinalities
        if invariant:
            sizes = sizes[waves.first_positions]
        base = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        starts = base[questions] if invariant else offsets[:-1]
        ties = np.arange(schema.n_levels) + (starts - offsets[:-1])[owners]
        steps = np.zeros(waves.n_waves - 1, np.int64)
        if not homogeneous:
            steps = np.arange(waves.n_waves - 1)
        return cls(own_waves[owners], ties, steps, base, offsets)

    @property
    def n_matrices(self) -> int:
        """Return the number of transition matrices."""
        return int(self.steps.max(initial=-1)) + 1

    def find_offsets(self, rank: int) -> IntArray:
        """Return the offsets of questions and transition matrices: int64 of shape (n_tables + 1,)."""
        own = self.base_offsets[-1] + rank * np.arange(1, self.n_matrices + 1)
        return np.concatenate([self.base_offsets, own])

    def find_rows(self, rank: int) -> IntArray:
        """Return the rows of the transitions from each wave in the tables: int64 of shape (n_waves - 1, rank)."""
        return np.asarray(self.base_offsets[-1] + rank * self.steps[:, None] + np.arange(rank))

    def find_singles(self, level_mass: FloatArray) -> FloatArray:
        """Return the PMF of each question over all waves that share its table: float64 of shape (n_base_levels,).

        Parameters
        ----------
        level_mass
            float64 of shape (n_base_levels or more,): samples with each level.
        """
        even = spread_evenly(self.base_offsets)
        return normalise_blocks(level_mass[: even.size], self.base_offsets, even)

    def shape_pseudo_counts(self, singles: FloatArray, rank: int, mean: float) -> PseudoCounts:
        """Make pseudo-counts of the tables, of questions in proportion to their PMFs and of transitions even ones.

        Parameters
        ----------
        singles
            From `find_singles`.
        rank
            Number of states.
        mean
            Mean pseudo-count per level and state, at least 0; the levels of transitions are the next states.
        """
        shaped = PseudoCounts.shaped_by(singles, self.base_offsets, mean)
        moves = np.full(self.n_matrices * rank, float(mean))
        return PseudoCounts(np.concatenate([shaped.levels, moves]), shaped.state)

    def split(self, parameters: Parameters) -> Chain:
        """Return the chain of initial shares (rank,) and tables (n_table_rows, rank)."""
        initial, tables = parameters
        moved = np.ascontiguousarray(tables[self.find_rows(initial.size)].transpose(0, 2, 1))
        return Chain(initial, moved, np.ascontiguousarray(tables[self.ties]))

    def join(self, chain: Chain) -> Parameters:
        """Return initial shares and tables of a chain that has the equalities of the layout."""
        rank = chain.initial.size
        tables = np.empty((int(self.find_offsets(rank)[-1]), rank))
        tables[self.ties] = chain.emissions
        tables[self.find_rows(rank)] = chain.transitions.transpose(0, 2, 1)
        return chain.initial, tables

    def score(self, block: Block, chain: Chain, posteriors: FloatArray | None = None) -> FloatArray:
        """Compute the log-probability of valid rows, and fill in the posteriors of their states.

        Parameters
        ----------
        block
            The rows.
        chain
            The model.
        posteriors
            float64 of shape (n_rows, n_waves, n_states), or None.
        """
        from pmflib.families.panels.kernels.chains import score_paths  # Numba loads on first use

        rows, logs, work = self._open(block, chain)
        log_probs = np.empty(block.n_rows)
        if posteriors is None:
            posteriors = np.empty((0, *work[2].shape))
        score_paths(rows, self.waves, logs, work, log_probs, posteriors)
        return log_probs

    def count(
        self, block: Block, chain: Chain, n_sums: int = 1, n_least: int = 0
    ) -> tuple[FloatArray, FloatArray, float]:
        """Compute the expected counts of valid rows, and their log-likelihood.

        Parameters
        ----------
        block, chain
            The rows and the model.
        n_sums
            1 for the sums over all rows, n_rows for the counts of each.
        n_least
            Number of waves up to which transitions are counted at least; by default those up to each row's last answer.

        Returns
        -------
        Initial states, float64 of shape (n_sums, n_states); rows of the tables, (n_sums, n_table_rows, n_states); nats.
        """
        from pmflib.families.panels.kernels.chains import add_paths

        rank = chain.initial.size
        rows, logs, work = self._open(block, chain)
        layout = self.waves, self.ties, self.find_rows(rank)[:, 0]
        states = np.zeros((n_sums, rank))
        tables = np.zeros((n_sums, int(self.find_offsets(rank)[-1]), rank))
        weighted = *rows, weigh_rows(block)
        log_likelihood = add_paths(weighted, layout, n_least, logs, work, states, tables)
        return states, tables, float(log_likelihood)

    def find_paths(self, block: Block, chain: Chain) -> IntArray:
        """Find the most probable path of states of each row: int64 of shape (n_rows, n_waves)."""
        from pmflib.families.panels.kernels.chains import find_paths

        rows, (moves, log_emissions), (scores, *_) = self._open(block, chain)
        logs = np.log(np.maximum(moves, FLOOR)), log_emissions
        paths = np.empty((block.n_rows, len(moves)), np.int64)
        find_paths(rows, self.waves, logs, (scores, np.zeros(scores.shape, np.int64)), paths)
        return paths

    def _open(
        self, block: Block, chain: Chain
    ) -> tuple[tuple[IntArray, IntArray], tuple[FloatArray, FloatArray], tuple[FloatArray, ...]]:
        """Return rows, moves with logarithms of emissions, and work space as `smooth_row` takes them."""
        sparse = block.to_sparse(self.offsets)
        rows = np.asarray(sparse.indptr, np.int64), np.asarray(sparse.indices, np.int32)
        rank, n_waves = chain.initial.size, self.steps.size + 1
        moves = np.zeros((n_waves, rank, rank))
        moves[0, 0], moves[1:] = chain.initial, chain.transitions
        work = np.empty((n_waves + 1, rank)), np.empty_like(moves), np.empty((n_waves, rank))
        return rows, (moves, chain.take_logs().emissions), work
