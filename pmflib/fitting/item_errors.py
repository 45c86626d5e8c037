"""Standard errors of the intercepts and slopes of item response models, by the observed information of the samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block, weigh_rows
from pmflib.core.errors import MemoryPlanError
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.em.traits.fit import weigh_slopes
from pmflib.em.traits.quadrature import ItemDesign, weigh_levels
from pmflib.model import JointPMF
from pmflib.model.statistics import sum_fields
from pmflib.model.traits.level_scores import LevelScores
from pmflib.store.sample_blocks import BlockGroup

MAX_COEFFICIENTS = 1000
"""Intercepts and slopes whose information is inverted."""
BATCH_NUMBERS = 1 << 22
"""Scores of samples at points in memory at a time."""
LEAST_SHARE = 1e-7
"""Share of the information of people whose traits are known below which a direction is not determined."""
TOUCHED = 1e-3
"""Share of a number's own part in such directions from which on it is not determined."""


@dataclass(frozen=True, eq=False)
class ItemCovariance:
    """What samples say of the logits of levels.

    Parameters
    ----------
    base_errors
        float64 of shape (n_levels,): standard errors of logits where traits are 0; NaN where not determined.
    slope_errors
        float64 of shape (n_levels, n_traits): of what traits add to them.
    distance
        Standard errors between the parameters and the maximum of the objective they were fitted by.
    """

    base_errors: FloatArray
    slope_errors: FloatArray
    distance: float


def find_item_covariance(model: JointPMF, source: BlockSource) -> ItemCovariance:
    """Find standard errors of an item response model: those of the observed information, or White's where larger.

    Traits that are turned fit as well. The model's are turned to principal axes, and errors are those of parameters
    that keep to them.

    Parameters
    ----------
    model
        From `pmflib.fitting.item_responses.fit_item_responses`.
    source
        The samples it was fitted to.

    Raises
    ------
    MemoryPlanError
        If there are more than ``MAX_COEFFICIENTS`` intercepts and slopes.

    References
    ----------
    Louis (1982), JRSS B 44(2), for the information; White (1982), Econometrica 50(1), for robust errors; Silvey
    (1959), Annals of Mathematical Statistics 30(2), for parameters under constraints.
    """
    traits = model.trait_model
    assert traits is not None
    design = ItemDesign(model.schema, traits.n_traits)
    size = design.starts[-1]
    if size > MAX_COEFFICIENTS:
        raise MemoryPlanError(
            f"the model has {size} intercepts and slopes, above {MAX_COEFFICIENTS}; merge levels, or ask questions: "
            "answers have errors of their own"
        )
    found = source.map_in_turn(
        _sum_group, sum_fields, model, design, result_bytes=16 * size**2, name="information"
    )
    observed = found.complete - found.crossed + found.outer
    gradient = found.gradient + _derive_penalty(model, design, found.level_counts)
    # in units of what people with known traits would say
    scale = np.sqrt(np.diag(found.complete))
    scale = np.where(scale > 0, scale, 1.0)
    free = _find_free(model, design, found.level_counts, scale)
    scaled = observed / np.outer(scale, scale)
    if (turns := _list_turns(design, traits.slopes) * scale).size:
        # a turn of the traits changes nothing but where the points of the grid are
        basis = np.linalg.qr(turns.T)[0]
        still = np.eye(size) - basis @ basis.T
        scaled = still @ scaled @ still
    scaled = free.T @ scaled @ free
    values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
    is_known = values > LEAST_SHARE
    known, loose = free @ vectors[:, is_known], free @ vectors[:, ~is_known]
    covariance = (known / values[is_known]) @ known.T / np.outer(scale, scale)
    robust = covariance @ found.outer @ covariance
    moved = known.T @ (gradient / scale)
    distance = float(np.sqrt((moved**2 / values[is_known]).sum()))
    arrays = []
    for table in _list_logits(design):
        variances = [np.einsum("np,pq,nq->n", table, each, table) for each in (covariance, robust)]
        errors = np.sqrt(np.maximum(np.maximum(*variances), 0.0))
        own = np.linalg.norm(table / scale, axis=1)
        is_loose = np.linalg.norm((table / scale) @ loose, axis=1) > TOUCHED * np.where(
            own > 0, own, 1.0
        )
        arrays.append(np.where(is_loose, np.nan, errors))
    base, *slopes = arrays
    return ItemCovariance(base, np.stack(slopes, axis=1), distance)


@dataclass(frozen=True, eq=False)
class _ItemInformation:
    """Sums over samples: information of known traits, products of scores at points and of samples, gradient, levels."""

    complete: FloatArray
    crossed: FloatArray
    outer: FloatArray
    gradient: FloatArray
    level_counts: FloatArray


def _sum_group(group: BlockGroup, model: JointPMF, design: ItemDesign) -> _ItemInformation:
    schema, size = model.schema, design.starts[-1]
    tables = _list_scores(model, design)
    sums = _ItemInformation(
        np.zeros((size, size)),
        np.zeros((size, size)),
        np.zeros((size, size)),
        np.zeros(size),
        np.zeros(schema.n_levels),
    )
    for rows in iterate_item_scores(iterate_distinct(group), model):
        mass = rows.weights[:, None] * rows.posteriors
        sums.gradient[:] += rows.weights @ rows.scores
        sums.outer[:] += (rows.scores * rows.weights[:, None]).T @ rows.scores
        flat = (rows.at_points * np.sqrt(mass)[:, :, None]).reshape(-1, size)
        sums.crossed[:] += flat.T @ flat
        for k, table in enumerate(tables):
            own, is_seen = slice(design.starts[k], design.starts[k + 1]), rows.codes[:, k] >= 0
            held = mass[is_seen].sum(axis=0) * model.factor(k)
            sums.complete[own, own] += np.einsum("lqp,lq,lqs->ps", table[:-1], held, table[:-1])
            seen = rows.codes[is_seen, k], rows.weights[is_seen]
            sums.level_counts[schema.rows_of(k)] += np.bincount(*seen, minlength=len(held))
    return sums


@dataclass(frozen=True, eq=False)
class ItemScores:
    """Scores of some rows by intercepts and slopes.

    Parameters
    ----------
    codes
        (n_rows, n_variables), -1 missing.
    weights
        float64 (n_rows,): samples that a row stands for.
    posteriors
        float64 (n_rows, n_points).
    at_points
        float64 (n_rows, n_points, n_coefficients): derivatives of the log-probability of a row at a point.
    """

    codes: IntArray
    weights: FloatArray
    posteriors: FloatArray
    at_points: FloatArray

    @cached_property
    def scores(self) -> FloatArray:
        """Derivatives of the log-probability of each row: (n_rows, n_coefficients)."""
        return np.asarray(np.einsum("rqp,rq->rp", self.at_points, self.posteriors))


def iterate_item_scores(blocks: Iterable[Block], model: JointPMF) -> Iterator[ItemScores]:
    """Scores of the rows of some blocks of valid samples, ``BATCH_NUMBERS`` numbers at most at a time."""
    assert model.trait_model is not None
    design = ItemDesign(model.schema, model.trait_model.n_traits)
    tables = _list_scores(model, design)
    step = max(1, BATCH_NUMBERS // (model.rank * max(design.starts[-1], 1)))
    for block in blocks:
        for start in range(0, block.n_rows, step):
            part = block.cut(start, min(start + step, block.n_rows))
            posteriors = np.empty((part.n_rows, model.rank))
            model.score_block(part, np.empty(part.n_rows), posteriors)
            codes = part.to_codes(model.schema.offsets)
            at_points = np.concatenate([tables[k][codes[:, k]] for k in range(len(tables))], axis=2)
            yield ItemScores(codes, weigh_rows(part), posteriors, at_points)


def _list_scores(model: JointPMF, design: ItemDesign) -> list[FloatArray]:
    return [_find_scores(model, design, k) for k in range(model.schema.n_variables)]


def _find_scores(model: JointPMF, design: ItemDesign, position: int) -> FloatArray:
    """Derivatives of a variable's log-probabilities by its coefficients: (cardinality + 1, n_points, n_coefficients).

    The last are those of a missing answer: 0.
    """
    expanded = design.open_variable(position).expand()
    chances = model.factor(position)
    centred = expanded - np.einsum("lqp,lq->qp", expanded, chances)
    return np.concatenate([centred, np.zeros((1, *centred.shape[1:]))])


def _derive_penalty(model: JointPMF, design: ItemDesign, level_counts: FloatArray) -> FloatArray:
    """Gradient of the logarithm of what pseudo-counts add to the likelihood."""
    totals = np.add.reduceat(level_counts, model.schema.offsets[:-1])
    sizes = np.repeat(totals, model.schema.cardinalities)
    singles = np.where(sizes > 0, level_counts / np.where(sizes > 0, sizes, 1.0), 0.0)
    levels = weigh_levels(model.schema, singles, float(model.origin.get("pseudo_count", 0.0)))
    parts = []
    for k in range(model.schema.n_variables):
        mass = levels[model.schema.rows_of(k), None] * design.grid[1]
        parts.append(np.einsum("lqp,lq->p", _find_scores(model, design, k)[:-1], mass))
    return np.concatenate(parts)


def _find_free(
    model: JointPMF, design: ItemDesign, level_counts: FloatArray, scale: FloatArray
) -> FloatArray:
    """Orthonormal directions of the scaled coefficients, as columns, in which traits keep to their principal axes."""
    size, n_traits = design.starts[-1], design.n_traits
    if n_traits == 1:
        return np.eye(size)
    traits = model.trait_model
    assert traits is not None
    scores = LevelScores.make(model.schema, level_counts)
    weights, centred = weigh_slopes(model.schema, scores, level_counts, traits.slopes)
    _, *tables = _list_logits(design)
    bound = [
        (weights * centred[:, g]) @ tables[f] + (weights * centred[:, f]) @ tables[g]
        for f in range(n_traits)
        for g in range(f)
    ]
    rows = np.stack(bound) / scale
    full = np.linalg.svd(rows / np.linalg.norm(rows, axis=1)[:, None], full_matrices=True)[2]
    return np.ascontiguousarray(full[len(bound) :].T)


def _list_turns(design: ItemDesign, slopes: FloatArray) -> FloatArray:
    """Changes of the coefficients by a small turn of two traits, for all two: (n_turns, n_coefficients)."""
    turns = []
    for f in range(design.n_traits):
        for g in range(f):
            moved = np.zeros_like(slopes)
            moved[:, f], moved[:, g] = -slopes[:, g], slopes[:, f]
            turns.append(design.project(np.zeros(len(slopes)), moved))
    return np.array(turns).reshape(-1, design.starts[-1])


def _list_logits(design: ItemDesign) -> list[FloatArray]:
    """What coefficients add to intercepts, and to the slopes of each trait: (n_levels, n_coefficients) each."""
    tables = [
        np.zeros((design.schema.n_levels, design.starts[-1])) for _ in range(1 + design.n_traits)
    ]
    for k in range(design.schema.n_variables):
        rows, at = design.schema.rows_of(k), design.starts[k]
        parts = [design.intercepts[k], *[design.directions[k]] * design.n_traits]
        for table, part in zip(tables, parts, strict=True):
            table[rows, at : at + part.shape[1]] = part
            at += part.shape[1]
    return tables
