"""Fisher information of samples about a model's PMFs, block by block: scores, their products, second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block, weigh_rows
from pmflib.families.forests.statistics import TreeParameters, TreePasses
from pmflib.inference.errors.covariance import OPENED, PMFInformation

BATCH_SCORES = 1 << 21
"""Number of scores in memory at a time."""


def list_pmfs(parameters: TreeParameters) -> tuple[FloatArray, IntArray]:
    """List the PMFs of a model: the prior, then the tables of all states (the factors, in a model without edges).

    Returns
    -------
    Entries (n_entries,), raised to ``OPENED`` if smaller, and the first entry of each PMF.
    """
    prior, forest, tables = parameters
    starts = np.concatenate([[0], prior.size + forest.rows])
    return open_entries(np.concatenate([prior, tables]), starts), starts


def open_entries(values: FloatArray, starts: IntArray) -> FloatArray:
    """Raise the entries of concatenated PMFs to ``OPENED`` if smaller, and normalise each PMF."""
    entries = np.maximum(values, OPENED)
    sizes = np.diff(np.append(starts, entries.size))
    return np.asarray(entries / np.repeat(np.add.reduceat(entries, starts), sizes))


def sum_information(blocks: Iterable[Block], parameters: TreeParameters) -> PMFInformation:
    """Sum the information of some blocks of samples.

    Parameters
    ----------
    blocks
        Valid samples, whose rows may have weights; missing cells are summed out.
    parameters
        The model, laid out by `list_pmfs`.

    Returns
    -------
    Their information. Second derivatives are computed only for models without edges, in which an entry affects the
    probability of a row only through its own state; with edges, missing cells would need the posteriors of pairs of
    tables.
    """
    is_plain, size = not parameters.forest.n_edges, list_pmfs(parameters)[0].size
    return sum_scores(iterate_scores(blocks, parameters), size, parameters if is_plain else None)


def sum_scores(
    batches: Iterable[RowScores], size: int, plain: TreeParameters | None = None
) -> PMFInformation:
    """Sum the information of batches of rows on ``size`` entries, of latent classes with second derivatives."""
    outer, gradient, mass = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    crossed = None if plain is None else np.zeros((size, size))
    for rows in batches:
        weighted = rows.scores * rows.weights[:, None]
        outer += weighted.T @ rows.scores
        gradient += weighted.sum(axis=0)
        mass += rows.weights @ rows.masses
        if plain is not None and crossed is not None:
            _add_crossed(rows, plain, crossed)
    return PMFInformation(outer, crossed, gradient, mass)


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of rows with at least one observed cell.

    Parameters
    ----------
    codes
        (n_rows, n_variables), -1 missing.
    weights
        float64 (n_rows,): number of samples that a row represents.
    masses
        float64 (n_rows, n_entries): posteriors of the entries of `list_pmfs`, those of the states first.
    scores
        float64 of that shape: derivatives of a row's log-probability with respect to the entries.
    """

    codes: IntArray
    weights: FloatArray
    masses: FloatArray
    scores: FloatArray


def iterate_scores(blocks: Iterable[Block], parameters: TreeParameters) -> Iterator[RowScores]:
    """Return the scores of the rows of blocks of valid samples, in batches of at most `BATCH_SCORES` values."""
    rank, forest = parameters.prior.size, parameters.forest
    entries, _ = list_pmfs(parameters)
    opened = TreeParameters(entries[:rank], forest, entries[rank:])
    passes = TreePasses(opened) if forest.n_edges else None
    list_masses = partial(_list_masses, plain=opened) if passes is None else passes.list_masses
    return iterate_masses(blocks, forest.offsets, entries, list_masses)


def iterate_masses(
    blocks: Iterable[Block],
    offsets: IntArray,
    entries: FloatArray,
    list_masses: Callable[[IntArray], FloatArray],
) -> Iterator[RowScores]:
    """Yield the scores of the rows of blocks, given a function of codes that lists their ``masses``."""
    step = max(1, BATCH_SCORES // entries.size)
    for block in blocks:
        for start in range(0, block.n_rows, step):
            part = block.cut(start, min(start + step, block.n_rows))
            codes = np.ascontiguousarray(part.to_codes(offsets))
            seen = (codes >= 0).any(axis=1)
            codes, weights = codes[seen], weigh_rows(part)[seen]
            masses = list_masses(codes)
            yield RowScores(codes, weights, masses, masses / entries)


def merge_information(parts: Sequence[PMFInformation]) -> PMFInformation:
    """Sum the information of one or more parts of the samples, in the order given."""
    crossed = [part.crossed for part in parts if part.crossed is not None]
    return PMFInformation(
        outer=np.sum([part.outer for part in parts], axis=0),
        crossed=np.sum(crossed, axis=0) if crossed else None,
        gradient=np.sum([part.gradient for part in parts], axis=0),
        mass=np.sum([part.mass for part in parts], axis=0),
    )


def find_factor_slopes(parameters: TreeParameters) -> FloatArray:
    """Compute the derivatives of the factors with respect to the entries of `list_pmfs`.

    Returns
    -------
    float64 of shape (n_levels * rank, n_entries), with the factors in memory order; a table affects the factors of all
    variables below it in the tree.
    """
    rank, forest = parameters.prior.size, parameters.forest
    offsets, factors = forest.offsets, forest.find_marginals(parameters.tables)
    n_levels = int(offsets[-1])
    slopes = np.zeros((n_levels, rank, rank + forest.n_entries))
    for state in range(rank):
        for position in forest.order[state].tolist():
            parent, start = (
                int(forest.parents[state, position]),
                int(forest.starts[state, position]),
            )
            own = np.arange(offsets[position], offsets[position + 1])
            if parent < 0:
                slopes[own, state, rank + start + np.arange(own.size)] = 1.0
                continue
            above = slice(int(offsets[parent]), int(offsets[parent + 1]))
            table = forest.view_table(parameters.tables, state, position)
            slopes[own, state] = table.T @ slopes[above, state]
            for row, share in enumerate(factors[above, state].tolist()):
                entries = rank + start + row * own.size + np.arange(own.size)
                slopes[own, state, entries] += share
    return slopes.reshape(n_levels * rank, -1)


def _list_masses(codes: IntArray, plain: TreeParameters) -> FloatArray:
    """Compute each row's posteriors of the states, and of its observed levels in each state: (n_rows, n_entries)."""
    rank, offsets = plain.prior.size, plain.forest.offsets
    factors = plain.tables.reshape(rank, -1).T
    # with so few entries, loading compiled code would take longer than computing the answer
    held = _mark_levels(codes, offsets)
    logs = held @ np.log(factors) + np.log(plain.prior)
    posteriors = np.exp(logs - logs.max(axis=1, keepdims=True))
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    levels = posteriors[:, :, None] * held[:, None, :]
    return np.hstack([posteriors, levels.reshape(len(codes), plain.tables.size)])


def _mark_levels(codes: IntArray, offsets: IntArray) -> FloatArray:
    """Return an indicator matrix of the observed levels: (n_rows, n_levels), 1 if the row has the level, else 0."""
    held = np.zeros((len(codes), int(offsets[-1])))
    rows, variables = np.nonzero(codes >= 0)
    held[rows, offsets[variables] + codes[rows, variables]] = 1.0
    return held


def _add_crossed(rows: RowScores, parameters: TreeParameters, crossed: FloatArray) -> None:
    """Add the second derivatives for two PMFs of one state, or for a PMF and the prior; within one PMF they are 0."""
    entries, _ = list_pmfs(parameters)
    rank, offsets = parameters.prior.size, parameters.forest.offsets
    n_levels, held = int(offsets[-1]), _mark_levels(rows.codes, offsets)
    for state in range(rank):
        own = slice(rank + state * n_levels, rank + (state + 1) * n_levels)
        mine = rows.scores[:, own] * rows.weights[:, None]
        pairs = mine.T @ held / entries[own]
        np.fill_diagonal(pairs, 0.0)
        crossed[own, own] += pairs
        with_prior = mine.sum(axis=0) / entries[state]
        crossed[own, state] += with_prior
        crossed[state, own] += with_prior
