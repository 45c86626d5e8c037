"""EM of a few traits by quadrature: an item response model whose integral over people is a sum over fixed points.

The points are the latent states of a joint PMF, with the weights of a standard normal as their prior, so that E-step,
likelihood and answers are those of latent classes, and exact. Only the M-step differs: it fits each variable's PMFs at
the points by a multinomial logit. It suits one to three traits; more are for Laplace's approximation, which the
neighbours of this module fit, and which needs many observed cells of each person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from pmflib.core.arrays import Arrays, FloatArray, IntArray, sum_blocks
from pmflib.core.blocks import Block
from pmflib.em.block_source import BlockSource
from pmflib.em.family import Family, State
from pmflib.em.latent_classes import evaluate_group, start_models
from pmflib.model.statistics import EMStatistics
from pmflib.model.traits.level_scores import make_contrasts, read_values
from pmflib.model.traits.trait_model import TraitModel
from pmflib.schema import Schema

GRIDS = {1: (31, 4.5), 2: (15, 4.2), 3: (9, 3.6)}
"""Points along each trait, and the outermost of them, by the number of traits."""
NEWTON_STEPS = 2
"""Newton steps of a variable in an M-step, at most: the next pass goes on."""
SETTLED = 1e-9
"""Largest step of a coefficient after which an M-step ends."""
HALVINGS = 20
"""Halvings of a step that does not gain, at most."""


def make_grid(n_traits: int) -> tuple[FloatArray, FloatArray]:
    """Points of a standard normal in so many dimensions, and their weights.

    Parameters
    ----------
    n_traits
        1 to 3.

    Returns
    -------
    Points (n_points, n_traits), in standard deviations, and weights (n_points,), which sum to 1.
    """
    n_points, end = GRIDS[n_traits]
    line = np.linspace(-end, end, n_points)
    points = np.stack(np.meshgrid(*[line] * n_traits, indexing="ij"), axis=-1)
    points = points.reshape(-1, n_traits)
    weights = np.exp(-0.5 * (points**2).sum(axis=1))
    return points, weights / weights.sum()


@dataclass(frozen=True, eq=False)
class LogitDesign:
    """How the logits of one variable's levels at all points follow from its coefficients.

    Parameters
    ----------
    tables
        float64 of shape (1 + n_traits, n_levels, n_coefficients): what coefficients add to the logits where traits are
        0, and to the slopes on each of them.
    points
        float64 of shape (n_points, 1 + n_traits): a column of ones, and the traits.
    """

    tables: FloatArray
    points: FloatArray

    @cached_property
    def products(self) -> FloatArray:
        """Products of two columns of the points, for all two: (n_pairs, n_points)."""
        rows, columns = np.triu_indices(len(self.tables))
        return np.ascontiguousarray((self.points[:, rows] * self.points[:, columns]).T)

    @cached_property
    def places(self) -> IntArray:
        """Where the product of two columns is among all: (1 + n_traits, 1 + n_traits)."""
        size = len(self.tables)
        places = np.zeros((size, size), np.int64)
        rows, columns = np.triu_indices(size)
        places[rows, columns] = places[columns, rows] = np.arange(rows.size)
        return places

    def expand(self) -> FloatArray:
        """What each coefficient adds to the logits: (n_levels, n_points, n_coefficients)."""
        return np.asarray(np.einsum("klp,qk->lqp", self.tables, self.points))

    def find_logits(self, coefficients: FloatArray) -> FloatArray:
        """Logits of all levels at all points, (n_levels, n_points)."""
        lines = np.einsum("klp,p->lk", self.tables, coefficients)
        return np.asarray(np.einsum("lk,qk->lq", lines, self.points))


@dataclass(frozen=True, eq=False)
class ItemDesign:
    """How the logits of the levels of all variables follow from free coefficients.

    A variable of L levels has L - 1 intercepts. For each trait it has one slope where its levels have values, of which
    the logits are then a line (partial credit), and L - 1 of them where they have none (nominal response). Coefficients
    of a variable are together: its intercepts, then its slopes, trait by trait.

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
        """Points of the traits, and their weights."""
        return make_grid(self.n_traits)

    @cached_property
    def intercepts(self) -> list[FloatArray]:
        """What intercepts add to the logits of each variable, (cardinality, cardinality - 1)."""
        return [make_contrasts(each.cardinality) for each in self.schema]

    @cached_property
    def directions(self) -> list[FloatArray]:
        """What the slopes of a trait add to the logits of each variable, (cardinality, number of slopes)."""
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
        """Where the coefficients of each variable begin, and the end of all."""
        sizes = [
            a.shape[1] + self.n_traits * b.shape[1]
            for a, b in zip(self.intercepts, self.directions, strict=True)
        ]
        return [0, *np.cumsum(sizes).tolist()]

    @property
    def n_parameters(self) -> int:
        """Free parameters: coefficients, less the turns of the traits, which change nothing."""
        return self.starts[-1] - self.n_traits * (self.n_traits - 1) // 2

    @property
    def update_work(self) -> int:
        """Products that a Newton step of all variables takes."""
        n_pairs = (self.n_traits + 1) * (self.n_traits + 2) // 2
        at_points = n_pairs * len(self.grid[0]) * self.schema.cardinalities**2
        return int((at_points + np.diff(self.starts) ** 3).sum())

    def open_variable(self, position: int) -> LogitDesign:
        """The part of a variable."""
        parts = [self.intercepts[position], *[self.directions[position]] * self.n_traits]
        size = self.starts[position + 1] - self.starts[position]
        tables, first = np.zeros((len(parts), len(parts[0]), size)), 0
        for table, part in zip(tables, parts, strict=True):
            table[:, first : first + part.shape[1]] = part
            first += part.shape[1]
        points = self.grid[0]
        return LogitDesign(tables, np.concatenate([np.ones((len(points), 1)), points], axis=1))

    def project(self, base: FloatArray, slopes: FloatArray) -> FloatArray:
        """Coefficients whose logits are nearest to these, (n_levels,) and (n_levels, n_traits)."""
        found = []
        for position in range(self.schema.n_variables):
            rows = self.schema.rows_of(position)
            # columns are orthonormal
            found.append((self.intercepts[position] * base[rows, None]).sum(axis=0))
            for f in range(self.n_traits):
                found.append((self.directions[position] * slopes[rows, f, None]).sum(axis=0))
        return np.concatenate(found)

    def spread(self, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logits of all levels where traits are 0 (n_levels,), and what traits add to them (n_levels, n_traits)."""
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
        """Trait model of coefficients, whose traits are standard normal."""
        n = self.n_traits
        return TraitModel(
            self.schema, *self.spread(coefficients), np.zeros(n), np.eye(n), is_quadrature=True
        )


class ItemParameters(NamedTuple):
    """Parameters of an item response model.

    Parameters
    ----------
    coefficients
        float64 of shape (n_coefficients,), as `ItemDesign` has them.
    factors
        float64 of shape (n_levels, n_points): PMFs at the points of the grid, which follow from the coefficients.
    """

    coefficients: FloatArray
    factors: FloatArray


ItemState: TypeAlias = State[ItemParameters]
"""State of EM of item responses; its number ``last_change`` is the largest change of a probability in a pass."""


@dataclass(frozen=True, eq=False)
class ItemResponses(Family[ItemParameters, EMStatistics]):
    """Item response models, with the integral over the traits by quadrature.

    Parameters
    ----------
    design
        Variables, traits and grid.
    level_pseudo_counts
        float64 of shape (n_levels,), at least 0: samples added to each level, equally probable at all points. They
        shrink slopes toward 0.

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
        """State before the first pass."""
        return State(self._find_factors(coefficients), numbers={"last_change": np.inf})

    def add(self, parameters: ItemParameters, blocks: Iterable[Block]) -> EMStatistics:
        """Posterior mass of levels and points."""
        model = self.design.grid[1], parameters.factors
        return evaluate_group([*blocks], self.design.schema.offsets, [model])[0]

    def start(self, source: BlockSource, state: ItemState) -> Callable[[], EMStatistics]:
        """Start a pass of latent classes, which the points are: the design stays here."""
        model = self.design.grid[1], state.parameters.factors
        return start_models(source, [model], lambda found: found[0])

    def update(self, state: ItemState, statistics: EMStatistics) -> ItemState:
        """M-step: a multinomial logit for each variable."""
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
        """Coefficients."""
        return {"coefficients": parameters.coefficients}

    def unpack(self, arrays: Arrays) -> ItemParameters:
        """The model that `pack` was called on, to the same bits."""
        return self._find_factors(arrays["coefficients"])

    def _find_factors(self, coefficients: FloatArray) -> ItemParameters:
        model = self.design.make_model(coefficients)
        return ItemParameters(coefficients, model.find_factors(self.design.grid[0]))


def _fit_variable(design: LogitDesign, mass: FloatArray, coefficients: FloatArray) -> FloatArray:
    """Raise the likelihood of a multinomial logit by Newton's steps, which are halved until they gain.

    Parameters
    ----------
    design
        What coefficients are.
    mass
        float64 of shape (n_levels, n_points): samples.
    coefficients
        float64 of shape (n_coefficients,): start.
    """
    if not coefficients.size:
        return coefficients
    totals = mass.sum(axis=0)
    value, chances = _score_logit(design, mass, totals, coefficients)
    for _ in range(NEWTON_STEPS):
        slopes, curvature = derive_logit(design, mass, totals, chances)
        # a ridge that is nothing beside the samples: where there are none, nothing moves
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
    """Log-likelihood of samples under a multinomial logit, nats, and its probabilities (n_levels, n_points)."""
    logits = design.find_logits(coefficients)
    top = logits.max(axis=0)
    sizes = np.exp(logits - top)
    scale = sizes.sum(axis=0)
    value = float((mass * logits).sum() - (totals * (top + np.log(scale))).sum())
    return value, sizes / scale


def derive_logit(
    design: LogitDesign, mass: FloatArray, totals: FloatArray, chances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gradient of the log-likelihood of a multinomial logit in its coefficients, and its negative Hessian.

    Both are sums over points of products of levels and of traits, so that each product of two traits is summed once,
    whatever the number of coefficients.

    Parameters
    ----------
    design
        What coefficients are.
    mass
        float64 of shape (n_levels, n_points): samples.
    totals
        float64 of shape (n_points,): samples of all levels.
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
    """Pseudo-counts of levels: of each variable so many per level in the mean, spread as its PMF is.

    Parameters
    ----------
    schema
        Variables.
    singles
        float64 of shape (n_levels,): PMF of each variable.
    pseudo_count
        At least 0.
    """
    sizes = np.repeat(schema.cardinalities, schema.cardinalities)
    totals = np.repeat(sum_blocks(singles, schema.offsets), schema.cardinalities)
    return pseudo_count * sizes * singles / np.where(totals > 0, totals, 1.0)
