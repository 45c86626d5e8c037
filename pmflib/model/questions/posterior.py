"""Counts and a model as one source: a Dirichlet over the table of the variables asked for, whose prior is the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.model.conditions import Conditions, Given, encode_conditions
from pmflib.model.mixture import Mixture
from pmflib.schema import Schema

N_DRAWS = 1000
"""Draws from a posterior for the interval of what is no probability: its ends are off by a twentieth of its length."""
DRAWN_CELLS = 20_000_000
"""Cells that are drawn at most, some tenths of a second: of larger tables there are fewer draws."""
LEAST_DRAWS = 100
SURE_ROWS = 3.0
"""Sum of the parameters of a Dirichlet from which on one of its gamma variates at least is no tiny number."""


@dataclass(frozen=True, eq=False)
class TablePMF:
    """A joint PMF of some variables as a table, asked like a mixture.

    Parameters
    ----------
    schema
        Schema whose variables these are.
    positions
        Index of the variable of each axis.
    table
        float64, of the cardinalities of the variables; sums to 1.
    """

    schema: Schema
    positions: tuple[int, ...]
    table: FloatArray

    def marginal(self, variables: Sequence[str | int], given: Given | None = None) -> FloatArray:
        """Joint PMF of some of the variables, as `pmflib.model.mixture.Mixture.marginal` gives it."""
        fixed = self.condition(given)
        asked = [self.schema.position(variable) for variable in variables]
        axes = [self.positions.index(position) for position in asked]
        others = tuple(n for n in range(len(self.positions)) if n not in axes)
        summed = fixed.table.sum(axis=others)
        # the axes that are left keep their order
        order = np.argsort(np.argsort(axes))
        return np.transpose(summed, order) if summed.ndim > 1 else summed

    def condition(self, given: Given | None) -> TablePMF:
        """Table of those who have some levels."""
        return self.condition_codes(encode_conditions(self.schema, given))[0]

    def condition_codes(self, conditions: Conditions) -> tuple[TablePMF, float]:
        """Table of those who have some codes, and the logarithm of their probability."""
        if not conditions:
            return self, 0.0
        kept = self._keep(conditions)
        chance = float(kept.sum())
        return TablePMF(self.schema, self.positions, kept / max(chance, FLOOR)), float(
            np.log(max(chance, FLOOR))
        )

    def find_impossible(self, conditions: Conditions) -> tuple[int, ...]:
        """All conditions if they have probability 0 together; else none."""
        return () if self._keep(conditions).sum() > 0 else tuple(conditions)

    def weigh_combinations(self, positions: Sequence[int], combinations: IntArray) -> FloatArray:
        """Probabilities of some combinations of codes, shape (n_combinations, n_positions)."""
        found: FloatArray = self.marginal(positions)[tuple(combinations.T)]
        return found

    def _keep(self, conditions: Conditions) -> FloatArray:
        kept = self.table
        for position, codes in conditions.items():
            axis = self.positions.index(position)
            mask = np.zeros(self.table.shape[axis])
            mask[list(codes)] = 1.0
            kept = kept * mask.reshape([-1 if n == axis else 1 for n in range(kept.ndim)])
        return kept


PMF: TypeAlias = Mixture | TablePMF
"""What measures are computed of."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Dirichlet posterior of the table of some variables: one of the first variables, and of the others given each.

    Parameters
    ----------
    schema
        Schema whose variables these are.
    by, targets
        Indices of the first variables, perhaps none, and of the others, at least one in all.
    heads
        float64 of shape (n_by,): parameters of the Dirichlet of the first; a single one where there are none.
    cells
        float64 of shape (n_by, n_targets): parameters of the Dirichlets of the others.
    """

    schema: Schema
    by: tuple[int, ...]
    targets: tuple[int, ...]
    heads: FloatArray
    cells: FloatArray

    @property
    def mean(self) -> TablePMF:
        """Posterior mean."""
        return self._make(self.heads, self.cells)

    @property
    def totals(self) -> FloatArray:
        """Rows that the table given each combination of the first variables counts for: (n_by,)."""
        sums: FloatArray = self.cells.sum(axis=1)
        return sums

    def draw(self, seed: int) -> Iterator[TablePMF]:
        """Draw tables, the same for a seed."""
        rng = np.random.default_rng(seed)
        n_draws = int(np.clip(DRAWN_CELLS // max(self.cells.size, 1), LEAST_DRAWS, N_DRAWS))
        for _ in range(n_draws):
            yield self._make(_draw_shares(rng, self.heads), _draw_shares(rng, self.cells))

    def _make(self, heads: FloatArray, cells: FloatArray) -> TablePMF:
        given = cells / np.maximum(cells.sum(axis=1, keepdims=True), 1e-300)
        table = given * (heads / max(float(heads.sum()), 1e-300))[:, None]
        positions = (*self.by, *self.targets)
        shape = [int(self.schema.cardinalities[position]) for position in positions]
        return TablePMF(self.schema, positions, table.reshape(shape))


def _draw_shares(rng: np.random.Generator, parameters: FloatArray) -> FloatArray:
    """Draw from Dirichlet distributions along the last axis; all 0 where all parameters are."""
    if (parameters.sum(axis=-1) > SURE_ROWS).all():
        return rng.standard_gamma(parameters)
    # gamma variates of tiny parameters are below the least float: their logarithms are not
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rng.standard_gamma(parameters + 1)) + (
            np.log(rng.random(parameters.shape)) / parameters
        )
        logs = np.where(parameters > 0, logs, -np.inf)
        shares: FloatArray = np.nan_to_num(np.exp(logs - logs.max(axis=-1, keepdims=True)))
    return shares


def find_beta_intervals(chances: FloatArray, totals: FloatArray, level: float) -> FloatArray:
    """Intervals of probabilities under Dirichlet posteriors.

    Parameters
    ----------
    chances
        float64: posterior means.
    totals
        float64 that broadcasts to them: sums of the parameters of the Dirichlets.
    level
        Posterior probability that the interval holds, in (0, 1); as much lies below as above.

    Returns
    -------
    float64 of shape (..., 2), in [0, 1]; it holds the mean. A mean of 0 is taken for what none of as many rows has
    shown, of even chances before, and one of 1 likewise.

    Examples
    --------
    >>> find_beta_intervals(np.array([0.5, 0.0]), np.array([100.0, 100.0]), 0.95).round(2)
    array([[0.4 , 0.6 ],
           [0.  , 0.04]])
    """
    # it takes as long to load as all the rest of an answer
    from scipy.special import betaincinv

    first, second = chances * totals, (1 - chances) * totals
    # no row and no model is certain
    is_certain = (first <= 0) | (second <= 0)
    first, second = first + is_certain, second + is_certain
    tail = (1 - level) / 2
    ends = [betaincinv(first, second, share) for share in (tail, 1 - tail)]
    # a mean of a very skewed posterior lies outside: the interval holds what is answered
    low, high = np.minimum(ends[0], chances), np.maximum(ends[1], chances)
    found: FloatArray = np.clip(np.stack([low, high], axis=-1), 0.0, 1.0)
    return found
