"""EM for models with few traits by quadrature: item response models integrated over a fixed grid.

The grid points act as the latent states of a joint PMF whose prior is the weights of a standard normal. The E-step, the
likelihood and answers are therefore exact and identical to those of latent classes. Only the M-step differs: it fits
the PMFs of each variable at the grid points by a multinomial logit. The method suits one to three traits. Models with
more traits use Laplace's approximation (the other modules of this package), which needs many observed cells per person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from pmflib.base.arrays import Arrays, FloatArray, IntArray, sum_blocks
from pmflib.base.blocks import Block
from pmflib.em.block_source import BlockSource
from pmflib.em.family import Family, State
from pmflib.em.latent_classes import evaluate_group, start_models
from pmflib.families.traits.level_scores import make_contrasts, read_values
from pmflib.families.traits.trait_model import TraitModel
from pmflib.model.sufficient_statistics import EMStatistics
from pmflib.schema import Schema

GRIDS = {1: (31, 4.5), 2: (15, 4.2), 3: (9, 3.6)}
"""Number of grid points per trait, and the largest point, by number of traits."""
NEWTON_STEPS = 2
"""Maximum number of Newton steps per variable in an M-step; the next pass continues."""
SETTLED = 1e-9
"""An M-step ends when no coefficient changes by more than this."""
HALVINGS = 20
"""Maximum number of halvings of a step that does not improve."""


def make_grid(n_traits: int) -> tuple[FloatArray, FloatArray]:
    """Make a quadrature grid for a standard normal distribution.

    Parameters
    ----------
    n_traits
        Number of traits, 1 to 3.

    Returns
    -------
    Points (n_points, n_traits), in standard deviations, and weights (n_points,) that sum to 1.
    """
    n_points, end = GRIDS[n_traits]
    line = np.linspace(-end, end, n_points)
    points = np.stack(np.meshgrid(*[line] * n_traits, indexing="ij"), axis=-1)
    points = points.reshape(-1, n_traits)
    weights = np.exp(-0.5 * (points**2).sum(axis=1))
    return points, weights / weights.sum()


@dataclass(frozen=True, eq=False)
class LogitDesign:
    """Design of one variable: maps its coefficients to the logits of its levels at every grid point.

    Parameters
    ----------
    tables
        float64 of shape (1 + n_traits, n_levels, n_coefficients): contribution of each coefficient to the logits at
        trait 0, and to the slope on each trait.
    points
        float64 of shape (n_points, 1 + n_traits): a column of ones, then the traits.
    """

    tables: FloatArray
    points: FloatArray

    @cached_property
    def products(self) -> FloatArray:
        """Return products of all pairs of columns of the points: (n_pairs, n_points)."""
        rows, columns = np.triu_indices(len(self.tables))
        return np.ascontiguousarray((self.points[:, rows] * self.points[:, columns]).T)

    @cached_property
    def places(self) -> IntArray:
        """Return the index of each pair of columns in `products`: (1 + n_traits, 1 + n_traits)."""
        size = len(self.tables)
        places = np.zeros((size, size), np.int64)
        rows, columns = np.triu_indices(size)
        places[rows, columns] = places[columns, rows] = np.arange(rows.size)
        return places

    def expand(self) -> FloatArray:
        """Return the design as one array (n_levels, n_points, n_coefficients)."""
        return np.asarray(np.einsum("klp,qk->lqp", self.tables, self.points))

    def find_logits(self, coefficients: FloatArray) -> FloatArray:
        """Compute the logits of all levels at all points, (n_levels, n_points)."""
        lines = np.einsum("klp,p->lk", self.tables, coefficients)
        return np.asarray(np.einsum("lk,qk->lq", lines, self.points))


@dataclass(frozen=True, eq=False)
class ItemDesign:
    """Design of an item response model: maps free coefficients to the logits of all variables.

    A variable with L levels has L - 1 intercepts. For each trait it has one slope if its levels have values (partial
    credit), and L - 1 slopes otherwise (nominal response). The coefficients of a variable are stored together:
    intercepts first, then slopes by trait.

    Parameters
    ----------
    schema
        Variables.
    n_traits
        1 to 3.
    """

    schema: Schema
    n_traits: int

    @cached_property
    def grid(self) -> tuple[FloatArray, FloatArray]:
        """Return the grid points and their weights."""
        return make_grid(self.n_traits)

    @cached_property
    def intercepts(self) -> list[FloatArray]:
        """Return the contribution of the intercepts to the logits of each variable, (cardinality, cardinality - 1)."""
        return [make_contrasts(each.cardinality) for each in self.schema]

    @cached_property
    def directions(self) -> list[FloatArray]:
        """Return the contribution of one trait's slopes to the logits of each variable, (cardinality, n_slopes)."""
        tables = []
        for variable, contrasts in zip(self.schema, self.intercepts, strict=True):
            values = read_values(variable)
            if values is None or len(values) < 3:
                tables.append(contrasts)
            else:
                centred = np.array(values) - np.mean(values)
                tables.append((centred / np.sqrt((centred**2).sum()))[:, None])
        return tables

    @cached_property
    def starts(self) -> list[int]:
        """Return the first coefficient of each variable, and the total number of coefficients at the end."""
        sizes = [
            a.shape[1] + self.n_traits * b.shape[1]
            for a, b in zip(self.intercepts, self.directions, strict=True)
        ]
        return [0, *np.cumsum(sizes).tolist()]

    @property
    def n_parameters(self) -> int:
        """Return the number of free parameters: coefficients minus rotations of the traits."""
        return self.starts[-1] - self.n_traits * (self.n_traits - 1) // 2

    def open_variable(self, position: int) -> LogitDesign:
        """Return the design of one variable."""
        parts = [self.intercepts[position], *[self.directions[position]] * self.n_traits]
        size = self.starts[position + 1] - self.starts[position]
        tables, first = np.zeros((len(parts), len(parts[0]), size)), 0
        for table, part in zip(tables, parts, strict=True):
            table[:, first : first + part.shape[1]] = part
            first += part.shape[1]
        points = self.grid[0]
        return LogitDesign(tables, np.concatenate([np.ones((len(points), 1)), points], axis=1))

    def project(self, base: FloatArray, slopes: FloatArray) -> FloatArray:
        """Project logits, given as intercepts (n_levels,) and slopes (n_levels, n_traits), onto the coefficients."""
        found = []
        for position in range(self.schema.n_variables):
            rows = self.schema.rows_of(position)
            # the columns are orthonormal
            found.append((self.intercepts[position] * base[rows, None]).sum(axis=0))
            for f in range(self.n_traits):
                found.append((self.directions[position] * slopes[rows, f, None]).sum(axis=0))
        return np.concatenate(found)

    def spread(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Convert coefficients to the intercepts (n_levels,) and slopes (n_levels, n_traits) of all levels."""
        base = np.empty(self.schema.n_levels)
        slopes = np.empty((self.schema.n_levels, self.n_traits))
        for position in range(self.schema.n_variables):
            rows = self.schema.rows_of(position)
            own = coefficients[self.starts[position] : self.starts[position + 1]]
            n_base = self.intercepts[position].shape[1]
            base[rows] = (self.intercepts[position] * own[:n_base]).sum(axis=1)
            by_trait = own[n_base:].reshape(self.n_traits, -1)
            for f in range(self.n_traits):
                slopes[rows, f] = (self.directions[position] * by_trait[f]).sum(axis=1)
        return base, slopes

    def make_model(self, coefficients: FloatArray) -> TraitModel:
        """Build the trait model with these coefficients and standard normal traits."""
        n = self.n_traits
        return TraitModel(
            self.schema, *self.spread(coefficients), np.zeros(n), np.eye(n), is_quadrature=True
        )


class ItemParameters(NamedTuple):
    """Parameters of an item response model.

    Parameters
    ----------
    coefficients
        float64 of shape (n_coefficients,), in the order of `ItemDesign`.
    factors
        float64 of shape (n_levels, n_points): PMFs at the grid points, computed from the coefficients.
    """

    coefficients: FloatArray
    factors: FloatArray


ItemState: TypeAlias = State[ItemParameters]
"""EM state of an item response model; ``last_change`` is the largest change of a probability in the last pass."""


@dataclass(frozen=True, eq=False)
class ItemResponses(Family[ItemParameters, EMStatistics]):
    """Item response models with quadrature over the traits.

    Parameters
    ----------
    design
        Variables, traits and grid.
    level_pseudo_counts
        float64 of shape (n_levels,), at least 0: pseudo-counts added to each level, spread equally over the grid
        points. They shrink slopes toward 0.

    References
    ----------
    Bock and Aitkin (1981), Psychometrika 46(4), for EM by quadrature; Bock (1972), Psychometrika 37(1), for nominal
    responses; Masters (1982), Psychometrika 47(2), for partial credit.
    """

    design: ItemDesign
    level_pseudo_counts: FloatArray

    @cached_property
    def _designs(self) -> list[LogitDesign]:
        return [self.design.open_variable(k) for k in range(self.design.schema.n_variables)]

    def begin(self, coefficients: FloatArray) -> ItemState:
        """Return the state before the first pass."""
        return State(self._find_factors(coefficients), numbers={"last_change": np.inf})

    def add(self, parameters: ItemParameters, blocks: Iterable[Block]) -> EMStatistics:
        """Compute the posterior mass of levels and grid points."""
        model = self.design.grid[1], parameters.factors
        return evaluate_group([*blocks], self.design.schema.offsets, [model])[0]

    def start(self, source: BlockSource, state: ItemState) -> Callable[[], EMStatistics]:
        """Start a pass of latent classes, one per grid point; the design is not sent to workers."""
        model = self.design.grid[1], state.parameters.factors
        return start_models(source, [model], lambda found: found[0])

    def update(self, state: ItemState, statistics: EMStatistics) -> ItemState:
        """M-step: fit a multinomial logit to each variable."""
        n_rows = max(statistics.n_rows, 1)
        starts, schema = self.design.starts, self.design.schema
        coefficients, factors = state.parameters
        added = self.level_pseudo_counts[:, None] * self.design.grid[1]
        penalty = float((added * np.log(np.maximum(factors, 1e-300))).sum())
        mass = statistics.level_mass + added
        fitted = [
            _fit_variable(design, mass[schema.rows_of(k)], coefficients[starts[k] : starts[k + 1]])
            for k, design in enumerate(self._designs)
        ]
        moved = self._find_factors(np.concatenate(fitted))
        return state.after(
            moved,
            statistics.log_likelihood / n_rows,
            -(statistics.log_likelihood + penalty) / n_rows,
            last_change=float(np.abs(moved.factors - factors).max(initial=0.0)),
        )

    def pack(self, parameters: ItemParameters) -> Arrays:
        """Return the coefficients as arrays."""
        return {"coefficients": parameters.coefficients}

    def unpack(self, arrays: Arrays) -> ItemParameters:
        """Restore the parameters given to `pack`, bit for bit."""
        return self._find_factors(arrays["coefficients"])

    def _find_factors(self, coefficients: FloatArray) -> ItemParameters:
        model = self.design.make_model(coefficients)
        return ItemParameters(coefficients, model.find_factors(self.design.grid[0]))


def _fit_variable(design: LogitDesign, mass: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Fit a multinomial logit by Newton's method with step halving.

    Parameters
    ----------
    design
        Design of the variable.
    mass
        float64 of shape (n_levels, n_points): expected numbers of samples.
    coefficients
        float64 of shape (n_coefficients,): starting values.
    """
    if not coefficients.size:
        return coefficients
    totals = mass.sum(axis=0)
    value, chances = _score_logit(design, mass, totals, coefficients)
    for _ in range(NEWTON_STEPS):
        slopes, curvature = derive_logit(design, mass, totals, chances)
        # a negligible ridge, so that coefficients without samples do not move
        ridge = 1e-10 * (1.0 + np.trace(curvature))
        step = np.linalg.solve(curvature + ridge * np.eye(slopes.size), slopes)
        for _ in range(HALVINGS):
            tried = coefficients + step
            reached, moved = _score_logit(design, mass, totals, tried)
            if reached >= value:
                break
            step = step / 2
        else:
            break
        coefficients, value, chances = tried, reached, moved
        if np.abs(step).max() < SETTLED:
            break
    return coefficients


def _score_logit(
    design: LogitDesign, mass: FloatArray, totals: FloatArray, coefficients: FloatArray
) -> tuple[float, FloatArray]:
    """Compute the log-likelihood of a multinomial logit, nats, and its probabilities (n_levels, n_points)."""
    logits = design.find_logits(coefficients)
    top = logits.max(axis=0)
    sizes = np.exp(logits - top)
    scale = sizes.sum(axis=0)
    value = float((mass * logits).sum() - (totals * (top + np.log(scale))).sum())
    return value, sizes / scale


def derive_logit(
    design: LogitDesign, mass: FloatArray, totals: FloatArray, chances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute the gradient and the negative Hessian of a multinomial logit's log-likelihood.

    Both are sums over grid points of products over levels and traits; each product of two traits is summed once,
    whatever the number of coefficients.

    Parameters
    ----------
    design
        Design of the variable.
    mass
        float64 of shape (n_levels, n_points): expected numbers of samples.
    totals
        float64 of shape (n_points,): expected numbers of samples over all levels.
    chances
        float64 of shape (n_levels, n_points): probabilities of the levels.
    """
    expected = totals * chances
    off = np.einsum("lq,qk->kl", mass - expected, design.points)
    slopes = np.einsum("klp,kl->p", design.tables, off)
    weighted = design.products[:, None, :] * expected
    crossed = -np.einsum("clq,mq->clm", weighted, chances)
    diagonal = np.arange(len(mass))
    crossed[:, diagonal, diagonal] += weighted.sum(axis=2)
    size = design.tables.shape[0] * len(mass)
    whole = crossed[design.places].transpose(0, 2, 1, 3).reshape(size, size)
    spread = design.tables.reshape(size, -1)
    return slopes, spread.T @ whole @ spread


def weigh_levels(schema: Schema, singles: FloatArray, pseudo_count: float) -> FloatArray:
    """Compute pseudo-counts of levels, proportional to the PMF of each variable.

    Parameters
    ----------
    schema
        Variables.
    singles
        float64 of shape (n_levels,): PMF of each variable.
    pseudo_count
        Mean pseudo-count per level, at least 0.
    """
    sizes = np.repeat(schema.cardinalities, schema.cardinalities)
    totals = np.repeat(sum_blocks(singles, schema.offsets), schema.cardinalities)
    return pseudo_count * sizes * singles / np.where(totals > 0, totals, 1.0)
