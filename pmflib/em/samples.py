"""The contract between EM and samples, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

from pmflib.arrays import Parameters
from pmflib.em.statistics import EMStatistics

P = TypeVar("P")

Evaluate: TypeAlias = Callable[[P], EMStatistics]
"""E-step: sufficient statistics of all training samples under parameters."""

Judge: TypeAlias = Callable[[P], float]
"""Log-likelihood of held-out samples under parameters, nats per sample."""


class Samples(Protocol):
    """Samples that EM passes over, or that it is judged on: in memory, or in a store."""

    @property
    def n_observed(self) -> int:
        """Number of observed cells."""

    @property
    def n_side_by_side(self) -> int:
        """Independent runs of EM over these samples that are under way at a time."""

    def evaluate(self, models: Sequence[Parameters]) -> list[EMStatistics]:
        """Sufficient statistics under each of several models of one rank, at least one."""

    def start_ahead(self, models: Sequence[Parameters]) -> Callable[[], list[EMStatistics]] | None:
        """Start what `evaluate` would do, and return what waits for it; None where one work at a time is quickest."""

    def score(
        self, models: Sequence[Parameters], meanwhile: Callable[[], None] | None = None
    ) -> float:
        """Log-likelihood under the average of models, at least one; nats per sample, 0 without samples.

        ``meanwhile`` is called once the work is under way elsewhere; never where it is done here.
        """

    def compare(self, first: Parameters, second: Parameters) -> tuple[float, float]:
        """Mean gain of a sample by the first of two models over the second, nats, and its standard error."""

    def digest(self) -> str:
        """SHA-256 that other samples do not have, in hexadecimal: states of EM are kept with it."""
