"""Sums over samples that bivariate residuals are found by: of latent classes, forests and traits on a grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.core.blocks import Block, DenseBlock, weigh_rows
from pmflib.core.hashing import HashArray, mix_hashes
from pmflib.em.block_source import BlockSource, iterate_distinct
from pmflib.em.traits.quadrature import ItemDesign
from pmflib.fitting.item_errors import iterate_item_scores
from pmflib.model import JointPMF
from pmflib.model.forests.tree_pmf import TreePMF
from pmflib.model.imputing import draw_gaps, seed_rows
from pmflib.model.information import iterate_scores, list_pmfs
from pmflib.model.statistics import sum_fields
from pmflib.schema import Schema
from pmflib.solvers.numeric.information import LEAST_MASS, NULL_SHARE, span_steps
from pmflib.store.sample_blocks import BlockGroup

LEAST_ENTRY = 1e-6
"""Entries below which a probability is at its edge, and fixed."""
LEAST_HELD = 1.0
"""Samples of a state that hold a level from which on its probability is a parameter that they estimate."""


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """Sums over samples: additive.

    Parameters
    ----------
    outer, gradient
        (n_entries, n_entries) and (n_entries,): products of the scores of the parameters, and the scores.
    mass
        (n_entries,): samples by PMF entry, as of `pmflib.model.information.RowScores`; 0 of parameters that are none.
    residuals
        (n_cells,): residuals of the free cells of all pairs.
    expected
        (n_cells,): what the model expects of the sums of their squares.
    crossed
        (n_cells, n_entries): products of residuals and scores.
    spreads
        (n_squares,): products of the residuals of each pair, one pair after the other.
    support
        (n_pairs,): samples that hold both.
    n_samples
        Number of the samples with anything observed.
    """

    outer: FloatArray
    gradient: FloatArray
    mass: FloatArray
    residuals: FloatArray
    expected: FloatArray
    crossed: FloatArray
    spreads: FloatArray
    support: FloatArray
    n_samples: float


@dataclass(frozen=True, eq=False)
class ResidualRows:
    """Some rows, the scores of the parameters there, and how answers deviate within the latent states.

    Parameters
    ----------
    codes
        (n_rows, n_variables), -1 missing.
    weights
        float64 (n_rows,): samples that a row stands for.
    posteriors
        float64 (n_rows, n_states): of states, or of points of traits.
    scores
        float64 (n_rows, n_entries): derivatives of a row's log-probability by the parameters.
    mass
        float64 (n_entries,): as of `ResidualSums`.
    chances
        By variable the probabilities of its free levels: (n_states, n_free) where other answers say nothing of it, and
        (n_rows, n_states, n_free) with forests, where its neighbours do.
    """

    codes: IntArray
    weights: FloatArray
    posteriors: FloatArray
    scores: FloatArray
    mass: FloatArray
    chances: list[FloatArray]


def count_work(model: JointPMF) -> tuple[int, int]:
    """Number of parameters of a model, and of free cells of all pairs."""
    if model.trait_model is not None:
        n_entries = ItemDesign(model.schema, model.trait_model.n_traits).starts[-1]
    else:
        n_entries = model.prior.size + model.parameters.tables.size
    return n_entries, int(list_cells(model.schema)[-1])


def list_cells(schema: Schema) -> IntArray:
    """Offset of the first free cell of each pair, in the order of `iterate_pairs`, and the total."""
    free = np.diff(schema.offsets) - 1
    rows, columns = np.triu_indices(free.size, 1)
    return np.concatenate([[0], np.cumsum(free[rows] * free[columns])])


def iterate_pairs(schema: Schema) -> Iterator[tuple[int, int, slice]]:
    """Both variables of each pair, and where its free cells are."""
    cells = list_cells(schema).tolist()
    rows, columns = (each.tolist() for each in np.triu_indices(schema.n_variables, 1))
    for pair, (one, other) in enumerate(zip(rows, columns, strict=True)):
        yield one, other, slice(cells[pair], cells[pair + 1])


def list_free(model: JointPMF) -> list[IntArray]:
    """Free levels of each variable: all but the most probable one."""
    singles = model.factors @ model.prior
    parts = [singles[model.schema.rows_of(k)] for k in range(model.schema.n_variables)]
    return [np.delete(np.arange(each.size), int(each.argmax())) for each in parts]


def sum_residuals(model: JointPMF, source: BlockSource, share: float = 1.0) -> ResidualSums:
    """Add up residuals and scores over samples.

    Parameters
    ----------
    model
        Latent classes, forests, or traits on a grid: a single fit.
    source
        Valid samples.
    share
        Share of the samples that are taken, in (0, 1], drawn by numbers that depend on the blocks alone.
    """
    n_entries, n_cells = count_work(model)
    return source.map_in_turn(
        _sum_group,
        sum_fields,
        model,
        share,
        result_bytes=8 * (n_entries + n_cells) * n_entries,
        name="residuals",
    )


def _sum_group(group: BlockGroup, model: JointPMF, share: float) -> ResidualSums:
    (size, n_cells), cells = count_work(model), list_cells(model.schema)
    squares = np.diff(cells) ** 2
    sums = ResidualSums(
        np.zeros((size, size)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(n_cells),
        np.zeros(n_cells),
        np.zeros((n_cells, size)),
        np.zeros(int(squares.sum())),
        np.zeros(squares.size),
        0.0,
    )
    blocks = (_draw_samples(block, model.schema, share) for block in iterate_distinct(group))
    free = list_free(model)
    edges, n_samples = _Edges(model) if isinstance(model, TreePMF) else None, 0.0
    for rows in _iterate_rows(blocks, model, free):
        weighted = rows.scores * rows.weights[:, None]
        sums.outer[...] += weighted.T @ rows.scores
        sums.gradient[...] += weighted.sum(axis=0)
        sums.mass[...] += rows.mass
        _add_pairs(rows, model.schema, free, edges, sums)
        n_samples += float(rows.weights.sum())
    return replace(sums, n_samples=n_samples)


def _draw_samples(block: Block, schema: Schema, share: float) -> DenseBlock:
    """Draw a share of the samples of a block."""
    codes, weights = block.to_codes(schema.offsets), weigh_rows(block)
    if share < 1.0:
        rng = np.random.default_rng([block.n_rows, block.n_observed])
        times = np.ceil(weights)
        weights = rng.binomial(times.astype(np.int64), share) * (weights / times)
        codes, weights = codes[weights > 0], weights[weights > 0]
    return DenseBlock(codes, weights)


def _iterate_rows(
    blocks: Iterable[DenseBlock], model: JointPMF, free: list[IntArray]
) -> Iterator[ResidualRows]:
    """Rows of blocks in batches that bound the memory of their scores."""
    offsets = model.schema.offsets
    chances = [model.factors[offsets[k] + own].T for k, own in enumerate(free)]
    if model.trait_model is not None:
        no_mass = np.zeros(count_work(model)[0])
        for each in iterate_item_scores(blocks, model):
            yield ResidualRows(
                each.codes, each.weights, each.posteriors, each.scores, no_mass, chances
            )
        return
    forests = _Edges(model) if isinstance(model, TreePMF) else None
    if forests is not None:
        blocks = (_repeat_gaps(block) for block in blocks)
    for rows in iterate_scores(blocks, model.parameters):
        mass, posteriors = rows.weights @ rows.masses, rows.masses[:, : model.rank]
        if forests is not None:
            # what neighbours hold is drawn where it is missing: the mean of a residual stays what it is
            seeds = seed_rows(_hash_rows(rows.codes), 0)
            filled = draw_gaps(model, rows.codes, rows.codes < 0, seeds)
            posteriors = model.posterior(filled)
            chances = forests.find_conditionals(filled, free)
        yield ResidualRows(rows.codes, rows.weights, posteriors, rows.scores, mass, chances)


def _repeat_gaps(block: DenseBlock) -> DenseBlock:
    """The same samples, with one row for each repetition of rows with gaps, which are drawn separately."""
    weights = weigh_rows(block)
    times = np.where((block.codes < 0).any(axis=1), np.ceil(weights), 1.0).astype(np.int64)
    return DenseBlock(np.repeat(block.codes, times, axis=0), np.repeat(weights / times, times))


def _hash_rows(codes: IntArray) -> HashArray:
    """Hash of each row's content and position: uint64 (n_rows,)."""
    keys = mix_hashes(np.arange(len(codes)))
    for column in codes.T:
        keys = mix_hashes(keys ^ column.astype(np.uint64))
    return keys


class _Edges:
    """Neighbours of each variable in the forest of each state.

    Parameters
    ----------
    model
        A model with forests.
    """

    def __init__(self, model: TreePMF) -> None:
        self._forest, self._schema = model.forest, model.schema
        self._tables = np.log(np.maximum(model.tables, LEAST_ENTRY))

    @cached_property
    def apart(self) -> dict[tuple[int, int], IntArray]:
        """States in which two variables are not neighbours, for pairs that are neighbours in some state."""
        parents, found = self._forest.parents, {}
        for state, position in np.argwhere(parents >= 0).tolist():
            one, other = sorted((position, int(parents[state, position])))
            is_joined = (parents[:, one] == other) | (parents[:, other] == one)
            found[one, other] = np.flatnonzero(~is_joined)
        return found

    def find_conditionals(self, codes: IntArray, free: list[IntArray]) -> list[FloatArray]:
        """PMFs of each variable in each state given all others, at its free levels: (n_rows, rank, n_free) each."""
        parents, found = self._forest.parents, []
        for k in range(self._schema.n_variables):
            logs = np.zeros((len(codes), len(parents), self._schema[k].cardinality))
            for state, above in enumerate(parents[:, k].tolist()):
                table = self._forest.view_table(self._tables, state, k)
                logs[:, state] = table[codes[:, above]] if above >= 0 else table[0]
                for child in np.flatnonzero(parents[state] == k).tolist():
                    below = self._forest.view_table(self._tables, state, child)
                    logs[:, state] += below[:, codes[:, child]].T
            logs = np.exp(logs - logs.max(axis=2, keepdims=True))
            found.append((logs / logs.sum(axis=2, keepdims=True))[:, :, free[k]])
        return found


def _add_pairs(
    rows: ResidualRows,
    schema: Schema,
    free: list[IntArray],
    edges: _Edges | None,
    sums: ResidualSums,
) -> None:
    """Add the residuals of some rows to the sums, in place."""
    first = 0
    for pair, (one, other, own) in enumerate(iterate_pairs(schema)):
        both = np.flatnonzero((rows.codes[:, one] >= 0) & (rows.codes[:, other] >= 0))
        n_own = own.stop - own.start
        if both.size and n_own:
            weights = rows.weights[both]
            has_left, has_right = (
                (rows.codes[both, each, None] == free[each]).astype(np.float64)
                for each in (one, other)
            )
            posteriors = rows.posteriors[both]
            left, right = rows.chances[one], rows.chances[other]
            if edges is None:
                found, expected = _multiply(has_left, has_right, posteriors, left, right, weights)
            else:
                states = edges.apart.get((one, other), np.arange(posteriors.shape[1]))
                found, expected = _multiply_in_rows(
                    has_left,
                    has_right,
                    posteriors[:, states],
                    left[np.ix_(both, states)],
                    right[np.ix_(both, states)],
                    weights,
                )
            weighted = found * weights[:, None]
            sums.residuals[own] += weighted.sum(axis=0)
            sums.expected[own] += expected
            sums.crossed[own] += weighted.T @ rows.scores[both]
            sums.spreads[first : first + n_own**2] += (weighted.T @ found).ravel()
            sums.support[pair] += weights.sum()
        first += n_own**2


def _multiply(
    has_left: FloatArray,
    has_right: FloatArray,
    posteriors: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Posterior means of the products of two deviations (n_rows, n_cells), and the expected sum of their squares."""
    rank, n_cells = len(left), left.shape[1] * right.shape[1]
    found = has_left[:, :, None] * has_right[:, None, :]
    found -= has_left[:, :, None] * (posteriors @ right)[:, None, :]
    found -= (posteriors @ left)[:, :, None] * has_right[:, None, :]
    found = found.reshape(-1, n_cells)
    found += posteriors @ (left[:, :, None] * right[:, None, :]).reshape(rank, n_cells)
    spreads = (left * (1 - left))[:, :, None] * (right * (1 - right))[:, None, :]
    return found, (weights @ posteriors) @ spreads.reshape(rank, n_cells)


def _multiply_in_rows(
    has_left: FloatArray,
    has_right: FloatArray,
    posteriors: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """The same with probabilities by row, (n_rows, n_states, n_free)."""
    n_rows = len(posteriors)
    by_state = posteriors[:, :, None]
    deviations = ((has_left[:, None, :] - left) * by_state).transpose(0, 2, 1)
    found = deviations @ (has_right[:, None, :] - right)
    spreads = (left * (1 - left) * by_state).transpose(0, 2, 1) @ (right * (1 - right))
    return found.reshape(n_rows, -1), weights @ spreads.reshape(n_rows, -1)


def find_directions(sums: ResidualSums, model: JointPMF) -> FloatArray:
    """Directions of unit information in parameter space: (n_entries, n_directions)."""
    if model.trait_model is not None:
        scales = np.sqrt(np.maximum(np.diagonal(sums.outer), LEAST_MASS))
        steps = np.diag(1.0 / scales)
    else:
        entries, starts = list_pmfs(model.parameters)
        sizes = np.diff(np.append(starts, entries.size))
        samples = np.repeat(np.add.reduceat(sums.mass, starts), sizes)
        scales = np.sqrt(entries / np.maximum(samples, LEAST_MASS))
        is_moving = (entries > LEAST_ENTRY) & (samples >= LEAST_MASS) & np.repeat(sizes > 1, sizes)
        # one step to the maximum leads nowhere near an edge, where pseudo-counts alone hold a probability above 0
        is_moving &= sums.mass >= LEAST_HELD
        steps = scales[:, None] * span_steps(scales, starts, sizes, is_moving)
    values, vectors = np.linalg.eigh(steps.T @ sums.outer @ steps)
    kept = values > NULL_SHARE * values.max(initial=0.0)
    return np.asarray(steps @ (vectors[:, kept] / np.sqrt(values[kept])))
