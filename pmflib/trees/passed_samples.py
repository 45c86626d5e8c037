"""The contract between EM with forests and samples, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pmflib.arrays import FloatArray, IntArray
from pmflib.selection.comparison import PairedDifference
from pmflib.trees.tree_statistics import TreeParameters, TreeStatistics


class Samples(Protocol):
    """Samples that EM with forests passes over, or that it is judged on: in memory, or in a store."""

    @property
    def offsets(self) -> IntArray:
        """int64 of shape (n_variables + 1,)."""

    def add_up(self, parameters: TreeParameters) -> TreeStatistics:
        """Sufficient statistics of all samples under a model."""

    def score(self, models: Sequence[TreeParameters]) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples."""

    def compare(
        self, first: Sequence[TreeParameters], second: Sequence[TreeParameters]
    ) -> PairedDifference:
        """Mean gain of a sample by the average of the first models over that of the second, nats, and its error."""

    def count_pairs(self, parameters: TreeParameters, first: int, n_states: int) -> FloatArray:
        """Posterior-weighted counts of all pairs, symmetric, for some states: (n_states, n_levels, n_levels)."""

    def count_side_by_side(self) -> int:
        """Number of states whose pairs are counted at a time."""
