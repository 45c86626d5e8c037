"""Which observed cell of each row is the least probable given the others, where variables are independent by state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from pmflib.model.row_scores import RowScores


@dataclass(frozen=True, eq=False)
class SurpriseTables:
    """Tables of a model that surprises are found by; they are made once.

    Parameters
    ----------
    offsets
        int64 of shape (n_variables + 1,).
    inverses
        float64 of shape (n_levels * padded,): inverses of the levels' probabilities, padded and flat.
    safe
        uint8 of shape (n_levels,): whether none of them is too small to divide by.
    factors, log_prior, log_factors
        float64 of shapes (n_levels, rank), (rank,) and (n_levels, rank), probabilities at least as large as the floor.
    """

    offsets: IntArray
    inverses: FloatArray
    safe: IntArray
    factors: FloatArray
    log_prior: FloatArray
    log_factors: FloatArray

    @classmethod
    def make(
        cls, log_prior: FloatArray, log_factors: FloatArray, offsets: IntArray
    ) -> SurpriseTables:
        """Tables of logarithms, as `pmflib.em.statistics.take_logs` gives them."""
        from pmflib.kernels.row_surprises import LANES, SAFE

        rank = log_prior.size
        padded = -(-rank // LANES) * LANES
        inverses = np.zeros((len(log_factors), padded))
        inverses[:, :rank] = np.exp(-log_factors)
        safe = log_factors.min(axis=1) >= np.log(SAFE)
        return cls(
            offsets,
            inverses.ravel(),
            safe.astype(np.uint8),
            np.exp(log_factors),
            log_prior,
            log_factors,
        )


def find_surprises(tables: SurpriseTables, codes: IntArray, out: RowScores) -> None:
    """Find the least probable cell of each row given the others, and its most probable level.

    Parameters
    ----------
    tables
        Tables of the model.
    codes
        Valid codes of shape (n_rows, n_variables), -1 missing.
    out
        Scores of the rows, whose posteriors are known; filled are states, and what is said of the least probable cell.
    """
    from pmflib.kernels.row_surprises import make_find_surprises

    padded = tables.inverses.size // len(tables.factors)
    make_find_surprises(padded)(
        codes,
        tables.offsets,
        out.posteriors,
        (tables.inverses, tables.safe, tables.factors, tables.log_prior, tables.log_factors),
        np.zeros((2, padded)),
        (
            *(out.states, out.variables, out.probabilities),
            *(out.expected, out.expected_probabilities),
        ),
    )
