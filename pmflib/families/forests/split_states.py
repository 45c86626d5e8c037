"""States without edges, which are latent classes and evaluated as such, apart from those with edges."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from pmflib.base.arrays import FLOOR, BoolArray, FloatArray, IntArray, sum_blocks
from pmflib.base.blocks import Block, DenseBlock
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.statistics import BATCH_ROWS, TreeParameters, TreePasses
from pmflib.families.forests.tree_questions import condition_forests, expect_logs, find_pairs
from pmflib.model.conditions import Conditions, condition_states
from pmflib.model.row_tables import score_block
from pmflib.model.sufficient_statistics import take_logs


class SplitStates:
    """Evaluation of a model with forests in two parts.

    Rows of latent classes take a tenth of the time of forests: a stack has thousands of states without edges.

    Parameters
    ----------
    parameters
        The model.
    """

    def __init__(self, parameters: TreeParameters) -> None:
        prior, forest, tables = parameters
        self.parameters = parameters
        self.tied, self.plain = np.flatnonzero(forest.has_edges), np.flatnonzero(~forest.has_edges)
        """States with edges, and without: int64, in ascending order."""
        self._is_plain = forest.is_plain
        self._offsets = forest.offsets
        self.prior = prior[self.plain]
        """Prior of the states without edges, which need not sum to 1."""
        self.factors = forest.find_plain_factors(tables)
        """float64 of shape (n_levels, n_plain)."""

    @cached_property
    def forests(self) -> TreeParameters:
        """States with edges, at least one; their prior need not sum to 1."""
        prior, forest, tables = self.parameters
        if not self.plain.size:
            return self.parameters
        parents = Forest(forest.parents[self.tied], self._offsets)
        return TreeParameters(prior[self.tied], parents, tables[~self._is_plain])

    @cached_property
    def _passes(self) -> TreePasses:
        return TreePasses(self.forests)

    @cached_property
    def _logs(self) -> tuple[FloatArray, FloatArray]:
        return take_logs(self.prior, self.factors)

    def score_block(self, block: Block, log_probs: FloatArray, posteriors: FloatArray) -> None:
        """Fill in log-probabilities and posteriors of valid rows, as `pmflib.model.JointPMF.score_block` does."""
        if not self.tied.size:
            score_block(block, self._offsets, *self._logs, log_probs, posteriors)
            return
        codes = np.ascontiguousarray(block.to_codes(self._offsets))
        for start in range(0, len(codes), BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            self._score_part(codes[rows], log_probs[rows], posteriors[rows])

    def _score_part(self, codes: IntArray, log_probs: FloatArray, posteriors: FloatArray) -> None:
        wanted = bool(posteriors.shape[1])
        is_alone = not self.plain.size and posteriors.flags.c_contiguous
        tied = posteriors if wanted and is_alone else np.empty((len(codes), self.tied.size))
        self._passes.find_posteriors(codes, tied, log_probs)
        if self.plain.size:
            others = np.empty(len(codes))
            plain = np.empty((len(codes), self.plain.size if wanted else 0))
            score_block(DenseBlock(codes), self._offsets, *self._logs, others, plain)
            both = np.logaddexp(log_probs, others)
            # nothing is observed: each part takes its prior for 1
            is_empty = (codes < 0).all(axis=1)
            both[is_empty] = 0.0
            if wanted:
                posteriors[:, self.tied] = tied * np.exp(log_probs - both)[:, None]
                posteriors[:, self.plain] = plain * np.exp(others - both)[:, None]
                posteriors[is_empty] = self.parameters.prior
            log_probs[:] = both
        elif wanted and tied is not posteriors:
            posteriors[:] = tied

    def score(self, block: Block) -> FloatArray:
        """Compute the log-probability of every row of a block: (n_rows,)."""
        scores = np.empty(block.n_rows)
        self.score_block(block, scores, np.empty((block.n_rows, 0)))
        return scores

    def find_beliefs(self, codes: IntArray, posteriors: FloatArray) -> FloatArray:
        """Compute what the states with edges, at least one, add to the PMFs of missing variables: (n_rows, n_levels).

        Parameters
        ----------
        codes
            Valid codes of shape (n_rows, n_variables), -1 missing.
        posteriors
            float64 of shape (n_rows, rank), of all states.
        """
        own = np.ascontiguousarray(posteriors[:, self.tied] if self.plain.size else posteriors)
        return self._passes.find_beliefs(np.ascontiguousarray(codes), own)

    def invert_cells(self, codes: IntArray, posteriors: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return the inverse of the probability of each observed cell given the others of its row.

        Parameters
        ----------
        codes, posteriors
            As for `find_beliefs`.

        Returns
        -------
        float64 of shape (n_rows, n_variables), 0 for missing cells; and bool of shape (n_rows,), False for rows with
        cells too improbable to divide by, whose values are not valid.
        """
        found, is_unsafe = np.zeros(codes.shape), np.zeros(len(codes), np.bool_)
        if self.tied.size:
            own = np.ascontiguousarray(posteriors[:, self.tied])
            found, safe = self._passes.invert_cells(np.ascontiguousarray(codes), own)
            is_unsafe |= safe == 0
        if self.plain.size:
            rows, variables = np.nonzero(codes >= 0)
            levels = self._offsets[variables] + codes[rows, variables]
            factors, is_risky = self._inverses
            found[rows, variables] += (posteriors[:, self.plain] @ factors.T)[rows, levels]
            is_unsafe[rows[is_risky[levels]]] = True
        return found, ~is_unsafe

    @cached_property
    def _inverses(self) -> tuple[FloatArray, BoolArray]:
        """Inverses of the factors, (n_levels, n_plain), and whether one of a level is too small to divide by."""
        from pmflib.families.forests.kernels.messages import SAFE

        return 1 / np.maximum(self.factors, SAFE), self.factors.min(axis=1) < SAFE

    def condition(self, conditions: Conditions) -> tuple[TreeParameters, float]:
        """Condition on levels of some variables, as `condition_forests` does."""
        prior, forest, tables = self.parameters
        if not self.plain.size:
            return condition_forests(self.parameters, conditions)
        weights, factors, log_plain = condition_states(
            self.prior, self.factors, self._offsets, conditions
        )
        found, log_tied = self.forests if self.tied.size else None, -np.inf
        if found is not None:
            found, log_tied = condition_forests(found, conditions)
        log_probability = float(np.logaddexp(log_plain, log_tied))
        if log_probability == -np.inf:
            return self.parameters, log_probability
        changed, mixed = tables.copy(), np.zeros(prior.size)
        if log_plain > -np.inf:
            changed[self._is_plain] = factors.T.ravel()
            mixed[self.plain] = weights * np.exp(log_plain - log_probability)
        if found is not None and log_tied > -np.inf:
            changed[~self._is_plain] = found.tables
            mixed[self.tied] = found.prior * np.exp(log_tied - log_probability)
        return TreeParameters(mixed / mixed.sum(), forest, changed), log_probability

    def find_pairs(self, factors: FloatArray) -> FloatArray:
        """Compute the joint PMFs of all pairs, given the factors of all states: see `tree_questions.find_pairs`."""
        pairs = np.asarray((self.factors * self.prior) @ self.factors.T)
        singles = self.factors @ self.prior
        for begin, end in pairwise(self._offsets.tolist()):
            pairs[begin:end, begin:end] = np.diag(singles[begin:end])
        if self.tied.size:
            pairs += find_pairs(self.forests, factors[:, self.tied])
        return pairs

    def expect_logs(self, factors: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute means and variances, given the factors of all states: see `tree_questions.expect_logs`."""
        means, variances = np.empty((2, self._offsets.size - 1, self.parameters.prior.size))
        logs = np.log(np.maximum(self.factors, FLOOR))
        means[:, self.plain] = sum_blocks(self.factors * logs, self._offsets)
        squares = sum_blocks(self.factors * logs**2, self._offsets)
        variances[:, self.plain] = squares - means[:, self.plain] ** 2
        if self.tied.size:
            found = expect_logs(self.forests, factors[:, self.tied])
            means[:, self.tied], variances[:, self.tied] = found
        return means, variances
