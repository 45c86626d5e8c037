"""How much processor time a choice of the rank may take, by a model of what fits cost.

What is compared follows from the sizes of the data and of the fits, and from constants measured once, and never from a
clock: the same data give the same choice on a fast machine, a slow one and a busy one.
"""

from __future__ import annotations

from pmflib.errors import PmfError

DEFAULT_BUDGET = 600.0
"""Seconds of processor time that a choice may take: ten minutes."""

UPDATE_SECONDS = (4e-9, 1.5e-10)
"""Seconds of an update of the composite likelihood per n_levels^2, and per n_levels^2 and state. Measured on one core
of a server of 2023, and doubled: memory that other work shares is slower."""

PASS_SECONDS = (1e-3, 4e-10, 2e-8)
"""Seconds of a pass of EM and of judging it: of any, per observed cell and state, and per level and state; as above."""

USUAL_UPDATES = 80
"""Updates of a fit of pairs until it has converged, mostly."""
USUAL_PASSES = 40
"""Passes until held-out samples stop a fit, mostly."""
SEARCH_UPDATES = 12_000
"""Updates of a whole search by pairs, in wide tables."""
SEARCH_RANK = 0.1
"""Rank that such a search comes to, as a share of the levels."""


def estimate_update(n_levels: int, rank: int) -> float:
    """Seconds of an update of the composite likelihood, by the model of costs."""
    table, product = UPDATE_SECONDS
    return n_levels**2 * (table + product * rank)


def estimate_pass(n_observed: int, n_levels: int, rank: int) -> float:
    """Seconds of a pass of EM over training samples, judged on held-out ones, by the model of costs.

    Parameters
    ----------
    n_observed
        Observed cells of the training samples.
    n_levels, rank
        Size of the model; the summed rank where several are averaged.
    """
    any_pass, cells, levels = PASS_SECONDS
    return any_pass + rank * (cells * n_observed + levels * n_levels)


def limit_levels(budget: float, most: int) -> int:
    """Levels of a table that a search by pairs can afford: the most, or as many hundreds as its budget has room for.

    Parameters
    ----------
    budget
        Seconds of the search.
    most
        Limit of the levels.
    """
    n_levels = most
    while n_levels > 100:
        cost = SEARCH_UPDATES * estimate_update(n_levels, round(SEARCH_RANK * n_levels))
        if cost <= budget:
            break
        n_levels = max(100, n_levels - 100)
    return n_levels


class WorkBudget:
    """Seconds of processor time, and what has been spent of them by the model of costs.

    Parameters
    ----------
    limit
        Seconds, above 0; infinite is no limit.

    Raises
    ------
    PmfError
        If the limit is not above 0.
    """

    def __init__(self, limit: float) -> None:
        if not limit > 0:
            raise PmfError(f"budget is {limit} seconds; give more than 0, or math.inf for no limit")
        self.limit = float(limit)
        self.spent = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 where fits took more than was expected of them."""
        return self.limit - self.spent

    def affords(self, cost: float) -> bool:
        """Whether so many seconds are left."""
        return cost <= self.left

    def spend(self, cost: float) -> None:
        """Take off what the work done has cost, by the model."""
        self.spent += cost
