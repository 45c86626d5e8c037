"""The information of samples on the parameters of a model, and its inverse, for each family.

Latent classes, forests, item responses and transition models provide the scores of rows, second derivatives, and
constraints; `pmflib.inference.errors.covariance` makes covariances of them, and errors of functions of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, check_model_type, check_row_order
from pmflib.base.blocks import Block, DenseBlock, weigh_rows
from pmflib.base.errors import MemoryPlanError, PmfError, SchemaError
from pmflib.base.variance import weigh_samples
from pmflib.em.block_source import BlocksInMemory, BlockSource, iterate_distinct
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_pmf import find_parameters
from pmflib.families.panels.model import ChainLayout, TransitionModel
from pmflib.families.traits.discriminations import Discriminations
from pmflib.families.traits.em import weigh_slopes
from pmflib.families.traits.level_scores import LevelScores
from pmflib.families.traits.quadrature import ItemDesign, weigh_levels
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.inference.errors.covariance import (
    Covariance,
    PMFCovariance,
    PMFInformation,
    find_covariance,
    find_free_covariance,
)
from pmflib.inference.errors.parameter_errors import MAX_ENTRIES
from pmflib.inference.errors.scores import (
    iterate_masses,
    list_pmfs,
    merge_information,
    open_entries,
    sum_information,
    sum_scores,
)
from pmflib.model import JointPMF
from pmflib.model.statistics import sum_fields
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockGroup
from pmflib.surveys.design.linearised import find_pseudo_counts, read_entries

MAX_COEFFICIENTS = 1000
"""Limit of intercepts and slopes whose information is inverted."""
BATCH_NUMBERS = 1 << 22
"""Scores of samples at points in memory at once."""


def check_single_fit(model: JointPMF) -> None:
    """Refuse models whose parameters do not maximise one likelihood.

    Raises
    ------
    PmfError
        If the model is an average of fits, or has continuous traits of `pmflib.fit_traits`.
    """
    check_model_type("model", model, JointPMF)
    if model.origin.get("final"):
        raise PmfError(
            f"model is an average of {model.origin['average']} fits, whose states are no parameters of one likelihood; "
            "give a fit of one member, or distil it and refine that by fit_em"
        )
    if "criteria" in model.unsupported:
        raise PmfError(
            "model has continuous traits whose states are people, and no maximum of a likelihood; fit up to three "
            "traits by pmflib.fit_item_responses"
        )


def open_source(
    schema: Schema, rank: int, samples: object, weight: object | None = None
) -> BlockSource:
    """Open samples in memory or stored, with their weights, as blocks for models of a rank."""
    if isinstance(samples, StoredSamples):
        if weight is not None:
            weigh_samples(samples, weight, schema.weight_decimals)
        if samples.schema.digest != schema.digest:
            raise SchemaError(
                "samples and model have different schemas; take all from one pipeline"
            )
        return samples
    block = read_samples(schema, samples, weight)
    return BlocksInMemory.cut(block, schema.offsets, rank)


def read_samples(schema: Schema, samples: object, weight: object | None = None) -> DenseBlock:
    """Read samples in memory, at least one, with their weights."""
    codes = schema.encode(samples)
    if not len(codes):
        raise PmfError("samples has no rows; give at least one")
    check_row_order(samples, weight=weight)
    return weigh_samples(DenseBlock(codes), weight, schema.weight_decimals)


def find_information(model: JointPMF, source: BlockSource) -> PMFInformation:
    """Sum the information of samples on prior and tables, in one pass.

    Parameters
    ----------
    model
        Latent classes or forests, a single fit.
    source
        The samples it was fitted to.

    Raises
    ------
    MemoryPlanError
        If prior and tables have more than ``MAX_ENTRIES`` entries.
    """
    parameters = find_parameters(model)
    entries, _ = list_pmfs(parameters)
    if entries.size > MAX_ENTRIES:
        raise MemoryPlanError(
            f"prior and tables have {entries.size} entries, above {MAX_ENTRIES}; lower the rank, merge levels, or ask "
            "questions: answers have errors of their own"
        )
    return source.map_in_turn(
        _sum_entries,
        merge_information,
        parameters,
        result_bytes=16 * entries.size**2,
        name="information",
    )


def _sum_entries(group: BlockGroup, parameters: TreeParameters) -> PMFInformation:
    return sum_information(iterate_distinct(group), parameters)


def invert_information(model: JointPMF, found: PMFInformation) -> PMFCovariance:
    """Covariances of prior and tables, from the observed information."""
    parameters = find_parameters(model)
    pseudo_counts = find_pseudo_counts(model, parameters, found.mass)
    return find_covariance(*list_pmfs(parameters), found, pseudo_counts)


def find_chain_covariance(model: TransitionModel, source: BlockSource) -> PMFCovariance:
    """Find the covariance of the probabilities of a transition model, in the order of `list_chain`.

    Parameters
    ----------
    model
        From `pmflib.fit_transitions`.
    source
        The samples it was fitted to.

    Raises
    ------
    MemoryPlanError
        If there are more than ``MAX_ENTRIES`` distinct probabilities.
    PmfError
        If nothing is observed.
    """
    layout, rank = model.layout, model.n_states
    values, starts = list_chain(model)
    if values.size > MAX_ENTRIES:
        raise MemoryPlanError(
            f"the model has {values.size} probabilities, above {MAX_ENTRIES}; take fewer states or questions, or "
            "equal tables in all waves"
        )
    entries = open_entries(values, starts)
    found = source.map_in_turn(
        sum_chain,
        merge_information,
        layout,
        entries,
        rank,
        result_bytes=8 * entries.size**2,
        name="information",
    )
    if not found.mass.any():
        raise PmfError("samples has no observed cell; give those that the model was fitted to")
    singles = layout.find_singles(read_entries(found.mass, rank)[1].sum(axis=1))
    mean = float(model.origin.get("pseudo_count", 0.0))
    counts = layout.shape_pseudo_counts(singles, rank, mean)
    added = np.concatenate([np.full(rank, counts.state), np.tile(counts.levels, rank)])
    return find_covariance(entries, starts, found, added)


def list_chain(model: TransitionModel) -> tuple[FloatArray, IntArray]:
    """List the initial shares and the tables of each state of a transition model, and the first entry of each PMF."""
    initial, tables = model.layout.join(model.chain)
    offsets = model.layout.find_offsets(initial.size)[:-1]
    own = initial.size + np.arange(initial.size)[:, None] * len(tables) + offsets
    return np.concatenate([initial, tables.T.ravel()]), np.concatenate([[0], own.ravel()])


def sum_chain(
    group: BlockGroup, layout: ChainLayout, entries: FloatArray, rank: int
) -> PMFInformation:
    """Sum the information of a group of blocks on the entries of `list_chain`."""
    chain = layout.split(read_entries(entries, rank))

    def list_masses(codes: IntArray) -> FloatArray:
        states, tables, _ = layout.count(DenseBlock(codes), chain, n_sums=len(codes))
        return np.hstack([states, tables.transpose(0, 2, 1).reshape(len(codes), -1)])

    blocks = iterate_distinct(group)
    return sum_scores(iterate_masses(blocks, layout.offsets, entries, list_masses), entries.size)


def find_item_covariance(model: JointPMF, source: BlockSource) -> Covariance:
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
    if size > MAX_COEFFICIENTS:
        raise MemoryPlanError(
            f"the model has {size} intercepts and slopes, above {MAX_COEFFICIENTS}; merge levels, or ask questions: "
            "answers have errors of their own"
        )
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


def list_item_numbers(model: JointPMF) -> dict[str, tuple[FloatArray, FloatArray]]:
    """List the numbers that item response models are read by, with their derivatives by the coefficients.

    Returns
    -------
    By name, the values, of any shape, and float64 of shape (values.size, n_coefficients): ``discriminations`` and, of
    one trait, ``thresholds`` of `pmflib.families.traits.discriminations.Discriminations`; ``base`` and ``slopes`` of
    the trait model.
    """
    assert isinstance(model, TraitPMF)
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


def _open_design(model: JointPMF) -> ItemDesign:
    return ItemDesign(model.schema, _read_slopes(model).shape[1])


def _read_slopes(model: JointPMF) -> FloatArray:
    assert isinstance(model, TraitPMF)
    return model.trait_model.slopes


@dataclass(frozen=True, eq=False)
class _ItemInformation:
    """Sums over samples: complete-data information, products of scores, gradient, level counts."""

    complete: FloatArray
    crossed: FloatArray
    outer: FloatArray
    gradient: FloatArray
    level_counts: FloatArray


def _sum_items(group: BlockGroup, model: JointPMF, design: ItemDesign) -> _ItemInformation:
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


def iterate_item_scores(blocks: Iterable[Block], model: JointPMF) -> Iterator[ItemScores]:
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


def _list_scores(model: JointPMF, design: ItemDesign) -> list[FloatArray]:
    return [_find_scores(model, design, k) for k in range(model.schema.n_variables)]


def _find_scores(model: JointPMF, design: ItemDesign, position: int) -> FloatArray:
    """Derivatives of a variable's log-probabilities by its coefficients: (cardinality + 1, n_points, n_coefficients).

    The last row is 0, for a missing answer.
    """
    expanded = design.open_variable(position).expand()
    chances = model.factor(position)
    centred = expanded - np.einsum("lqp,lq->qp", expanded, chances)
    return np.concatenate([centred, np.zeros((1, *centred.shape[1:]))])


def _derive_penalty(model: JointPMF, design: ItemDesign, level_counts: FloatArray) -> FloatArray:
    """Gradient of the penalty of the pseudo-counts by the coefficients."""
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
    model: JointPMF, design: ItemDesign, level_counts: FloatArray, scales: FloatArray
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
