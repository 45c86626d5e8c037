"""The tables of a model with forests, arranged by stars, and passes over samples by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.model.forests.forest import Forest

if TYPE_CHECKING:
    from pmflib.kernels.star_passes import StarWork
    from pmflib.kernels.stars import Stars

MAX_ENTRIES = 1 << 10
"""Entries of the largest star of more than one child: five variables of 4 levels or three of 8; where they may be
missing, too, four and three. The entries of a star and their masses stay in the nearest cache while rows go by."""
BATCH_BYTES, MOST_ROWS, LEAST_ROWS = 1 << 23, 512, 32
"""Size of the messages of a batch of rows, bytes, and the most and fewest rows in one."""


class StarPasses:
    """Passes along the forests of one model by stars: see `pmflib.kernels.stars`.

    Parameters
    ----------
    prior, forest, tables
        As in `pmflib.model.forests.statistics.TreeParameters`, all probabilities above 0.
    complete
        Whether no cell of the samples is missing: stars then hold more variables.
    """

    def __init__(
        self, prior: FloatArray, forest: Forest, tables: FloatArray, *, complete: bool = False
    ) -> None:
        from pmflib.kernels.star_passes import StarModel
        from pmflib.kernels.stars import fill_stars

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
        """Fill the posterior of every row, (n_rows, rank), and its log-probability, (n_rows,).

        Not of `complete` passes.

        Returns
        -------
        The rows for which that has not been done, int64, ascending: those of products near to 0.
        """
        from pmflib.kernels.star_passes import find_star_posteriors

        is_doubtful = np.empty(len(codes), np.uint8)
        work = self._make_work()
        find_star_posteriors(codes, self._model, work, posteriors, log_probs, is_doubtful)
        return np.flatnonzero(is_doubtful)

    def add_masses(
        self, codes: IntArray, weights: FloatArray, mass: FloatArray, state_mass: FloatArray
    ) -> tuple[float, IntArray]:
        """Add the masses of rows of some weights to those of tables, (n_entries,), and of states, (rank,).

        Returns
        -------
        Log-likelihood, nats, and the rows that are left out, as `find_posteriors` has them.
        """
        from pmflib.kernels.star_passes import add_star_masses
        from pmflib.kernels.stars import collect_stars

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
        """Work space of a batch of rows: a pass has its own."""
        from pmflib.kernels.star_passes import StarWork

        stars, (rank, n_variables) = self._model.stars, self._model.forest[0].shape
        n_kept = 1 if self._model.is_shared else rank
        n_levels = int(self._model.offsets[-1])
        n_batch = choose_batch(n_levels, rank)
        # keys are as narrow as they can be: the more of them are worked out at once
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
    """Number of rows in a batch; it depends on the model alone, as the order of sums does."""
    return min(MOST_ROWS, max(LEAST_ROWS, BATCH_BYTES // (8 * n_levels * rank)))


def measure_stars(offsets: IntArray, rank: int) -> int:
    """Largest size of the entries of a model's stars, of their masses, and of the messages of a batch, bytes."""
    sizes = np.diff(offsets)
    pairs = int((sizes + 1).sum()) * int(sizes.max() + 1)
    entries = rank * (pairs + sizes.size * MAX_ENTRIES)
    n_levels = int(offsets[-1])
    return 8 * (2 * entries + choose_batch(n_levels, rank) * n_levels * rank)


def arrange_forest(forest: Forest, *, complete: bool = False) -> Stars:
    """Arrange the variables of every state in stars of at most ``MAX_ENTRIES`` entries, or of one child."""
    from pmflib.kernels.stars import Stars, arrange_stars

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
