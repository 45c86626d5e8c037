"""Scores of whole rows: how probable, how unusual for what is observed, which cell is least expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import DenseBlock
from pmflib.level_blocks import FLOOR, sum_blocks

if TYPE_CHECKING:
    from pmflib.model import JointPMF

BATCH_ROWS = 8192
"""Rows scored at a time: their codes and posteriors stay in the processor's caches."""


LEFT = 1e-12
"""Least share of the entropy of the latent state that a variable leaves: one that says it all leaves rounding."""


FindSurprises: TypeAlias = Callable[[IntArray, "RowScores"], None]
"""Fills, given valid codes of rows, what their scores say of the least probable cell, and the states."""


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
        from pmflib.kernels.row_surprises import expect_log_probs

        model = self.model
        model.score_block(DenseBlock(codes), out.log_probs, out.posteriors)
        self._find_surprises(codes, out)
        means, deviations = np.empty(len(codes)), np.empty(len(codes))
        expect_log_probs(
            codes,
            self._log_prior,
            self._gains,
            model.prior,
            means,
            deviations,
            out.n_observed,
            np.empty((2, 4 + model.rank)),
        )
        # rows that can be of one kind only are as expected
        unlike = np.maximum(deviations, np.finfo(float).eps * np.maximum(1.0, -means))
        out.surprises[:] = np.where(out.n_observed > 0, (means - out.log_probs) / unlike, np.nan)

    @cached_property
    def _find_surprises(self) -> FindSurprises:
        return self.model.make_surprise_finder()

    @cached_property
    def _log_prior(self) -> FloatArray:
        return np.log(np.maximum(self.model.prior, FLOOR))

    @cached_property
    def _gains(self) -> FloatArray:
        """What a variable adds to the expected log-probability of a row: see `expect_log_probs`."""
        model, offsets = self.model, self.model.schema.offsets
        factors = model.factors
        # of complete rows the mean is exact; where a variable that it depends on is missing, it says less than it would
        held, within = model.expect_logs()
        by_state = sum_blocks(factors * np.log(np.maximum(factors, FLOOR)), offsets)
        singles = factors @ model.prior
        logs = np.log(np.maximum(singles, FLOOR))
        means = sum_blocks(singles * logs, offsets)
        alone = sum_blocks(singles * logs**2, offsets) - means**2
        of_state = -float(model.prior @ self._log_prior)
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
