"""Scores of item responses, their constraints, and errors of discriminations, thresholds and logits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.blocks import Block, DenseBlock, weigh_rows
from pmflib.base.constraints import check_size
from pmflib.base.display.summary import SummaryTable
from pmflib.base.errors import PmfError
from pmflib.base.replicate_weights import NORMAL_QUANTILE
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.families.traits.discriminations import Discriminations, name_contrast
from pmflib.families.traits.em import weigh_slopes
from pmflib.families.traits.level_scores import LevelScores
from pmflib.families.traits.quadrature import ItemDesign, weigh_levels
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.information.covariance import LEAST_MASS, Covariance, find_free_covariance
from pmflib.information.model_information import ModelInformation
from pmflib.information.parameter_errors import (
    ArrayErrors,
    ParameterErrors,
    list_some,
    note_distance,
    write_interval,
)
from pmflib.information.scores import StateRows
from pmflib.model.sufficient_statistics import sum_fields
from pmflib.store.sample_blocks import BlockGroup

MAX_COEFFICIENTS = 1000
"""Limit of intercepts and slopes whose information is inverted."""
BATCH_NUMBERS = 1 << 22
"""Scores of samples at points in memory at once."""


class ItemErrors(ParameterErrors):
    """Errors of an item response model.

    They are of the numbers of its summary, ``discriminations`` (n_variables, n_traits) and, of one trait,
    ``thresholds`` (n_thresholds,), and of the arrays of the trait model that these are made of, ``base`` (n_levels,)
    and ``slopes`` (n_levels, n_traits).
    """

    model: TraitPMF
    headline = "Standard errors of item parameters"
    every_scale: ClassVar[Mapping[str, str]] = {
        "discriminations": "logits between two levels per standard deviation of the trait",
        "thresholds": "standard deviations of the trait",
        "base": "logits at a trait of 0, centred: those of a variable's levels sum to 0",
        "slopes": "logits per standard deviation of the trait, centred: those of a variable's levels sum to 0",
    }

    def tabulate(self) -> tuple[SummaryTable, ...]:
        """Discriminations, and thresholds if there are any."""
        schema, found = self.model.schema, Discriminations.find(self.model.trait_model)
        slopes, scales = self.arrays["discriminations"], self.every_scale
        rows = []
        for variable, trait in np.ndindex(slopes.values.shape):
            name = ": ".join(name_contrast(schema, found.levels[variable, trait]))
            rows.append((name, str(trait), *write_interval(slopes, (variable, trait), 2)))
        title = f"Discriminations: {scales['discriminations']}, with 95 % intervals"
        columns = ("levels", ">trait", ">logits", ">from", ">to")
        tables = [SummaryTable(title, columns, rows, len(rows), 'errors["discriminations"]')]
        if found.steps.size:
            steps = [
                (
                    ": ".join(name_contrast(schema, levels)),
                    *write_interval(self.arrays["thresholds"], (at,), 2),
                )
                for at, levels in enumerate(found.steps)
            ]
            title = f"Thresholds: {scales['thresholds']} where both levels are equally likely, with 95 % intervals"
            heads = ("levels", ">trait at", ">from", ">to")
            tables.append(SummaryTable(title, heads, steps, len(steps), 'errors["thresholds"]'))
        return tuple(tables)


class ItemInformation(ModelInformation):
    """Information on the coefficients of an item response model, as `ItemDesign` lays them out.

    Parameters
    ----------
    model
        From `pmflib.families.traits.item_responses.fit_item_responses`.
    """

    model: TraitPMF

    @property
    def n_entries(self) -> int:
        """Number of intercepts and slopes."""
        return _open_design(self.model).starts[-1]

    def check_fit(self) -> None:
        """Refuse an average of fits, and traits whose states are people."""
        super().check_fit()
        if not self.model.is_mixture:
            raise PmfError(
                "model has continuous traits whose states are people, and no maximum of a likelihood; fit up to three "
                "traits by pmflib.families.fit_item_responses"
            )

    def find_errors(self, source: BlockSource) -> tuple[ParameterErrors, tuple[str, ...]]:
        """Find errors of discriminations and thresholds, and of the logits they are made of."""
        schema, solved = self.model.schema, find_item_covariance(self.model, source)
        arrays: dict[str, ArrayErrors] = {}
        numbers = list_item_numbers(self.model)
        for name, (values, jacobian) in numbers.items():
            errors, is_determined = solved.spread(jacobian)
            errors = errors.reshape(values.shape)
            is_determined = is_determined.reshape(values.shape)
            if name == "thresholds":
                is_moved = _are_moved(self.model, numbers["slopes"][1], solved)
                is_determined = is_determined & is_moved
                errors = np.where(is_determined, errors, np.nan)
            ends = values - NORMAL_QUANTILE * errors, values + NORMAL_QUANTILE * errors
            is_edge = np.zeros(values.shape, bool)
            arrays[name] = ArrayErrors(values, errors, *ends, is_determined, is_edge)
        notes: tuple[str, ...] = ()
        of_levels = arrays["base"].is_determined & arrays["slopes"].is_determined.all(axis=1)
        if unknown := [
            each.name for each in schema if not of_levels[schema.rows_of(each.name)].all()
        ]:
            notes += (
                f"not determined by the samples: item parameters of {list_some(unknown)}; these have no errors; take "
                "fewer traits, or add variables",
            )
        notes += note_distance(solved.distance, "more passes")
        found = ItemErrors(arrays, self.model, "observed information", solved.distance, notes)
        return found, notes

    def iterate_rows(
        self, blocks: Iterable[DenseBlock], free: list[IntArray]
    ) -> Iterator[StateRows]:
        """Return the rows of blocks in batches."""
        no_mass = np.zeros(self.n_entries)
        chances = [self.model.factor(k)[own].T for k, own in enumerate(free)]
        for each in iterate_item_scores(blocks, self.model):
            yield StateRows(
                each.codes, each.weights, each.posteriors, each.scores, no_mass, chances
            )

    def find_steps(self, outer: FloatArray, mass: FloatArray) -> FloatArray:
        """Compute a step of each coefficient, scaled by the information of its scores."""
        return np.diag(1.0 / np.sqrt(np.maximum(np.diagonal(outer), LEAST_MASS)))


def _are_moved(model: TraitPMF, by_slopes: FloatArray, solved: Covariance) -> BoolArray:
    """Whether the trait moves the two levels of each threshold beyond chance: otherwise no interval of it is bounded.

    References
    ----------
    Fieller (1954), JRSS B 16(2), on intervals of ratios.
    """
    slopes = model.trait_model.slopes[:, 0]
    upper, lower = Discriminations.find(model.trait_model).steps.T
    errors, _ = solved.spread(by_slopes[upper] - by_slopes[lower])
    return np.asarray(np.abs(slopes[upper] - slopes[lower]) > NORMAL_QUANTILE * errors)


def find_item_covariance(model: TraitPMF, source: BlockSource) -> Covariance:
    """Find the covariance of the coefficients of an item response model, as `ItemDesign` lays them out.

    Any rotation of the traits fits as well: the model's are rotated to principal axes, and errors are those of
    parameters that keep to them.

    Parameters
    ----------
    model
        From `pmflib.families.traits.item_responses.fit_item_responses`.
    source
        The samples it was fitted to.

    Raises
    ------
    MemoryPlanError
        If there are more than ``MAX_COEFFICIENTS`` intercepts and slopes.
    """
    design = _open_design(model)
    size = design.starts[-1]
    hint = "merge levels, or ask questions: answers have errors of their own"
    check_size(size, MAX_COEFFICIENTS, "intercepts and slopes in the model", hint)
    found = source.map_in_turn(
        _sum_items, sum_fields, model, design, result_bytes=16 * size**2, name="information"
    )
    complete = np.diag(found.complete)
    scales = 1.0 / np.sqrt(np.where(complete > 0, complete, 1.0))
    observed = found.complete - found.crossed + found.outer
    if (turns := _list_turns(design, _read_slopes(model)) / scales).size:
        # a rotation of the traits moves nothing but the points of the grid
        basis = np.linalg.qr(turns.T)[0]
        still = (np.eye(size) - basis @ basis.T) * scales / scales[:, None]
        observed = still @ observed @ still.T
    return find_free_covariance(
        observed,
        found.outer,
        found.gradient + _derive_penalty(model, design, found.level_counts),
        scales,
        _find_free(model, design, found.level_counts, scales),
    )


def list_item_numbers(model: TraitPMF) -> dict[str, tuple[FloatArray, FloatArray]]:
    """List the numbers that item response models are read by, with their derivatives by the coefficients.

    Returns
    -------
    By name, the values, of any shape, and float64 of shape (values.size, n_coefficients): ``discriminations`` and, of
    one trait, ``thresholds`` of `pmflib.families.traits.discriminations.Discriminations`; ``base`` and ``slopes`` of
    the trait model.
    """
    traits, design = model.trait_model, _open_design(model)
    found = Discriminations.find(traits)
    base, *slopes = _list_logits(design)
    by_trait = np.stack(slopes, axis=1)
    every = np.arange(traits.n_traits)
    moved = by_trait[found.levels[..., 0], every] - by_trait[found.levels[..., 1], every]
    numbers = {"discriminations": (found.values, moved.reshape(found.values.size, -1))}
    if traits.n_traits == 1:
        upper, lower = found.steps.T
        slope = traits.slopes[upper, 0] - traits.slopes[lower, 0]
        ratio = np.where(np.isnan(found.thresholds), 0.0, found.thresholds)[:, None]
        by_threshold = (base[upper] - base[lower]) + ratio * (slopes[0][upper] - slopes[0][lower])
        by_threshold /= -np.where(slope == 0, 1.0, slope)[:, None]
        numbers["thresholds"] = found.thresholds, by_threshold
    numbers["base"] = traits.base, base
    numbers["slopes"] = traits.slopes, by_trait.reshape(traits.slopes.size, -1)
    return numbers


def _open_design(model: TraitPMF) -> ItemDesign:
    return ItemDesign(model.schema, _read_slopes(model).shape[1])


def _read_slopes(model: TraitPMF) -> FloatArray:
    return model.trait_model.slopes


@dataclass(frozen=True, eq=False)
class _ItemSums:
    """Sums over samples: complete-data information, products of scores, gradient, level counts."""

    complete: FloatArray
    crossed: FloatArray
    outer: FloatArray
    gradient: FloatArray
    level_counts: FloatArray


def _sum_items(group: BlockGroup, model: TraitPMF, design: ItemDesign) -> _ItemSums:
    schema, size = model.schema, design.starts[-1]
    tables = _list_scores(model, design)
    squares = np.zeros((3, size, size))
    sums = _ItemSums(squares[0], squares[1], squares[2], np.zeros(size), np.zeros(schema.n_levels))
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
    """Scores of rows: derivatives of their log-probabilities by the coefficients.

    Parameters
    ----------
    codes
        (n_rows, n_variables), -1 missing.
    weights
        float64 (n_rows,): weight of each row, in samples.
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


def iterate_item_scores(blocks: Iterable[Block], model: TraitPMF) -> Iterator[ItemScores]:
    """Scores of the rows of blocks of valid samples, in batches of at most ``BATCH_NUMBERS`` values."""
    design = _open_design(model)
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


def _list_scores(model: TraitPMF, design: ItemDesign) -> list[FloatArray]:
    return [_find_scores(model, design, k) for k in range(model.schema.n_variables)]


def _find_scores(model: TraitPMF, design: ItemDesign, position: int) -> FloatArray:
    """Derivatives of a variable's log-probabilities by its coefficients: (cardinality + 1, n_points, n_coefficients).

    The last row is 0, for a missing answer.
    """
    expanded = design.open_variable(position).expand()
    chances = model.factor(position)
    centred = expanded - np.einsum("lqp,lq->qp", expanded, chances)
    return np.concatenate([centred, np.zeros((1, *centred.shape[1:]))])


def _derive_penalty(model: TraitPMF, design: ItemDesign, level_counts: FloatArray) -> FloatArray:
    """Gradient of the penalty of the pseudo-counts by the coefficients."""
    totals = np.add.reduceat(level_counts, model.schema.offsets[:-1])
    sizes = np.repeat(totals, model.schema.cardinalities)
    singles = np.where(sizes > 0, level_counts / np.where(sizes > 0, sizes, 1.0), 0.0)
    levels = weigh_levels(model.schema, singles, model.origin.pseudo_count or 0.0)
    parts = []
    for k in range(model.schema.n_variables):
        mass = levels[model.schema.rows_of(k), None] * design.grid[1]
        parts.append(np.einsum("lqp,lq->p", _find_scores(model, design, k)[:-1], mass))
    return np.concatenate(parts)


def _find_free(
    model: TraitPMF, design: ItemDesign, level_counts: FloatArray, scales: FloatArray
) -> FloatArray:
    """Orthonormal steps of the coefficients, in units of the scales, that keep the traits on their principal axes."""
    size, n_traits = design.starts[-1], design.n_traits
    if n_traits == 1:
        return np.eye(size)
    scores = LevelScores.make(model.schema, level_counts)
    weights, centred = weigh_slopes(model.schema, scores, level_counts, _read_slopes(model))
    _, *tables = _list_logits(design)
    bound = [
        (weights * centred[:, g]) @ tables[f] + (weights * centred[:, f]) @ tables[g]
        for f in range(n_traits)
        for g in range(f)
    ]
    rows = np.stack(bound) * scales
    full = np.linalg.svd(rows / np.linalg.norm(rows, axis=1)[:, None], full_matrices=True)[2]
    return np.ascontiguousarray(full[len(bound) :].T)


def _list_turns(design: ItemDesign, slopes: FloatArray) -> FloatArray:
    """Changes of the coefficients by a small rotation of each pair of traits: (n_pairs, n_coefficients)."""
    turns = []
    for f in range(design.n_traits):
        for g in range(f):
            moved = np.zeros_like(slopes)
            moved[:, f], moved[:, g] = -slopes[:, g], slopes[:, f]
            turns.append(design.project(np.zeros(len(slopes)), moved))
    return np.array(turns).reshape(-1, design.starts[-1])


def _list_logits(design: ItemDesign) -> list[FloatArray]:
    """Derivatives of intercepts, then of slopes by trait, by the coefficients: (n_levels, n_coefficients) each."""
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
