"""What the row kernels of EM take: samples, a model, work space and masses, as tuples of arrays."""

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pmflib.arrays import FloatArray, IntArray, StrataArray

Shape: TypeAlias = tuple[int, int, int, int]
"""Width of a vector, vectors per panel, panels in a table row, and whether there are no LLVM vectors."""
ALIKE = np.empty(0, np.int32)
"""Strata of rows that all have the same prior."""


class Lists(NamedTuple):
    """Samples as lists of table rows (`pmflib.kernels.em_lists`): row s owns ``entries[starts[s]:stops[s]]``."""

    entries: npt.NDArray[np.int32]
    """int32 of shape (n_listed,), entry numbers."""
    starts: IntArray
    """int64 of shape (n_rows,)."""
    stops: IntArray
    """int64 of shape (n_rows,)."""
    strata: StrataArray
    """int32 of shape (n_rows,): which prior each row has; or `ALIKE`."""


class Tables(NamedTuple):
    """A model, scaled and by entry, as `pmflib.kernels.em_tables.fill_tables` leaves it."""

    rows: FloatArray
    """float64 of shape (n_entries * padded,): the table, row after row."""
    priors: FloatArray
    """float64 of shape (n_strata * padded,)."""
    levels: npt.NDArray[np.int32]
    """int32 of shape (n_entries, group): levels that an entry stands for, -1 where none."""
    log_priors: FloatArray
    """float64 of shape (n_strata, rank): scaled, nats."""
    log_factors: FloatArray
    """float64 of shape (n_levels, rank): scaled, nats."""


class Work(NamedTuple):
    """Work space of a batch of rows, all float64; n_batch is a multiple of 8."""

    products: FloatArray
    """Shape ((n_batch + 1) * padded,)."""
    sums: FloatArray
    """Shape (n_batch * n_panels * width,)."""
    totals: FloatArray
    """Shape (n_batch * n_panels,)."""
    logs: FloatArray
    """Shape (n_batch,)."""
    scales: FloatArray
    """Shape (n_batch,)."""


class Masses(NamedTuple):
    """Posterior masses, and what is left of the log-likelihood: eight products, as fractions and binary exponents."""

    by_entry: FloatArray
    """float64 of shape (n_entries * padded,)."""
    by_state: FloatArray
    """float64 of shape (padded,)."""
    fractions: FloatArray
    """float64 of shape (8,), in [1, 2)."""
    exponents: IntArray
    """int64 of shape (8,)."""
