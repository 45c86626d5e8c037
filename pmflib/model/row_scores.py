"""Scores of whole rows: how probable, how unusual for what is observed, which cell is least expected."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.em.statistics import take_logs
from pmflib.level_blocks import FLOOR, sum_blocks
from pmflib.trees.tree_pmf import TreePMF

if TYPE_CHECKING:
    from pmflib.model import JointPMF

BATCH_ROWS = 8192
"""Rows scored at a time: their codes and posteriors stay in the processor's caches."""


LEFT = 1e-12
"""Least share of the entropy of the latent state that a variable leaves: one that says it all leaves rounding."""


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of some rows.

    Parameters
    ----------
    log_probs
        float64 of shape (n_rows,): log-probability of what is observed, nats; 0 where nothing is.
    posteriors
        float64 of shape (n_rows, rank); the prior where nothing is observed.
    states
        int32 of shape (n_rows,): most probable latent state, the first of equals.
    n_observed
        int32 of shape (n_rows,): observed cells.
    surprises
        float64 of shape (n_rows,): how far the log-probability is below the one expected of rows with the same cells
        observed, in their standard deviations under the model; nan where nothing is observed.
    variables
        int32 of shape (n_rows,): variable whose level is the least probable given the others; -1 where nothing is
        observed.
    probabilities
        float64 of shape (n_rows,): that probability; nan where nothing is observed.
    expected
        int32 of shape (n_rows,): code of its most probable level given the others; -1 where nothing is observed.
    expected_probabilities
        float64 of shape (n_rows,): probability of that level; nan where nothing is observed.
    """

    log_probs: FloatArray
    posteriors: FloatArray
    states: IntArray
    n_observed: IntArray
    surprises: FloatArray
    variables: IntArray
    probabilities: FloatArray
    expected: IntArray
    expected_probabilities: FloatArray

    @classmethod
    def reserve(cls, n_rows: int, rank: int) -> RowScores:
        """Room for the scores of some rows."""

        def reals() -> FloatArray:
            return np.empty(n_rows)

        def integers() -> IntArray:
            return np.empty(n_rows, np.int32)

        return cls(
            log_probs=reals(),
            posteriors=np.empty((n_rows, rank)),
            states=integers(),
            n_observed=integers(),
            surprises=reals(),
            variables=integers(),
            probabilities=reals(),
            expected=integers(),
            expected_probabilities=reals(),
        )

    def cut(self, rows: slice) -> RowScores:
        """The same arrays, some rows of them."""
        return RowScores(*(getattr(self, each.name)[rows] for each in fields(self)))


class RowScorer:
    """Scores rows under a model; its tables are made once.

    Parameters
    ----------
    model
        The model.
    """

    def __init__(self, model: JointPMF) -> None:
        self.model = model

    def score(self, codes: IntArray) -> RowScores:
        """Score rows.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing.

        Raises
        ------
        SchemaError
            If a code is out of range.
        """
        found = RowScores.reserve(len(codes), self.model.rank)
        for start in range(0, len(codes), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            self._score(self.model.schema.check_codes(codes[rows]), found.cut(rows))
        return found

    def _score(self, codes: IntArray, out: RowScores) -> None:
        from pmflib.em.row_tables import score_block
        from pmflib.kernels.row_surprises import expect_log_probs

        model = self.model
        rank, offsets = model.rank, model.schema.offsets
        logs = self._logs
        if isinstance(model, TreePMF):
            self._score_forests(model, codes, out)
        else:
            score_block(DenseBlock(codes), offsets, *logs, out.log_probs, out.posteriors)
            self._find_surprises(codes, out)
        means, deviations = np.empty(len(codes)), np.empty(len(codes))
        work = np.empty((2, 4 + rank))
        expect_log_probs(
            codes, logs[0], self._gains, model.prior, means, deviations, out.n_observed, work
        )
        # rows that can be of one kind only are as expected
        unlike = np.maximum(deviations, np.finfo(float).eps * np.maximum(1.0, -means))
        out.surprises[:] = np.where(out.n_observed > 0, (means - out.log_probs) / unlike, np.nan)

    def _score_forests(self, model: TreePMF, codes: IntArray, out: RowScores) -> None:
        """Score rows under a model with forests: each cell is hidden in its turn."""
        out.log_probs[:], out.posteriors[:] = model.log_prob(codes), model.posterior(codes)
        out.states[:] = out.posteriors.argmax(axis=1)
        least = np.full(len(codes), np.inf)
        out.variables[:], out.expected[:] = -1, -1
        out.probabilities[:], out.expected_probabilities[:] = np.nan, np.nan
        for place in range(model.schema.n_variables):
            rows = np.flatnonzero(codes[:, place] >= 0)
            if not rows.size:
                continue
            pmf = model.predict_proba(codes[rows], place)
            chances = np.minimum(pmf[np.arange(rows.size), codes[rows, place]], 1.0)
            is_less = chances < least[rows]
            found = rows[is_less]
            least[found] = out.probabilities[found] = chances[is_less]
            out.variables[found] = place
            out.expected[found] = pmf[is_less].argmax(axis=1)
            out.expected_probabilities[found] = np.minimum(pmf[is_less].max(axis=1), 1.0)

    def _find_surprises(self, codes: IntArray, out: RowScores) -> None:
        """Find the least probable cell of each row, given the others."""
        from pmflib.kernels.row_surprises import make_find_surprises

        offsets, logs = self.model.schema.offsets, self._logs
        inverses, safe, factors = self._tables
        padded = inverses.size // len(factors)
        find_surprises = make_find_surprises(padded)
        find_surprises(
            codes,
            offsets,
            out.posteriors,
            (inverses, safe, factors, *logs),
            np.zeros((2, padded)),
            (
                *(out.states, out.variables, out.probabilities),
                *(out.expected, out.expected_probabilities),
            ),
        )

    @cached_property
    def _logs(self) -> tuple[FloatArray, FloatArray]:
        return take_logs(self.model.prior, self.model.factors)

    @cached_property
    def _tables(self) -> tuple[FloatArray, IntArray, FloatArray]:
        """Inverses of the levels' probabilities, padded and flat; whether none is too small; the probabilities."""
        from pmflib.kernels.row_surprises import LANES, SAFE

        log_factors = self._logs[1]
        padded = -(-self.model.rank // LANES) * LANES
        inverses = np.zeros((len(log_factors), padded))
        inverses[:, : self.model.rank] = np.exp(-log_factors)
        safe = log_factors.min(axis=1) >= np.log(SAFE)
        return inverses.ravel(), safe.astype(np.uint8), np.exp(log_factors)

    @cached_property
    def _gains(self) -> FloatArray:
        """What a variable adds to the expected log-probability of a row: see `expect_log_probs`."""
        model, offsets = self.model, self.model.schema.offsets
        factors, log_factors = model.factors, self._logs[1]
        by_state = sum_blocks(factors * log_factors, offsets)
        within = sum_blocks(factors * log_factors**2, offsets) - by_state**2
        held = by_state
        if isinstance(model, TreePMF):
            # of complete rows the mean is exact; where a parent is missing, a variable says less than it would
            held, within = model.expect_logs()
        singles = factors @ model.prior
        logs = np.log(np.maximum(singles, FLOOR))
        means = sum_blocks(singles * logs, offsets)
        alone = sum_blocks(singles * logs**2, offsets) - means**2
        of_state = -float(model.prior @ self._logs[0])
        # information of a variable about the state, at most the entropy of the state
        shared = np.maximum(by_state @ model.prior - means, 0.0)
        left = 1 - shared / of_state if of_state > 0 else np.ones(len(shared))
        return np.column_stack(
            [
                held @ model.prior,
                np.maximum(within, 0.0) @ model.prior,
                np.maximum(alone, 0.0),
                np.log(np.maximum(left, LEFT)),
                held,
            ]
        )
