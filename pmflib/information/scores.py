"""Fisher information of samples about a model's PMFs, block by block: scores, their products, second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import Block, weigh_rows
from pmflib.information.covariance import OPENED, PMFInformation

S = TypeVar("S", bound=np.generic)

BATCH_SCORES = 1 << 21
"""Number of scores in memory at a time."""


def open_entries(values: FloatArray, starts: IntArray) -> FloatArray:
    """Raise the entries of concatenated PMFs to ``OPENED`` if smaller, and normalise each PMF."""
    entries = np.maximum(values, OPENED)
    sizes = np.diff(np.append(starts, entries.size))
    return np.asarray(entries / np.repeat(np.add.reduceat(entries, starts), sizes))


def read_entries(entries: NDArray[S], rank: int) -> tuple[NDArray[S], NDArray[S]]:
    """Reshape values of the entries of a prior and of tables, state after state, like prior and factors."""
    return entries[:rank], np.ascontiguousarray(entries[rank:].reshape(rank, -1).T)


def sum_scores(
    batches: Iterable[RowScores],
    size: int,
    add_crossed: Callable[[RowScores, FloatArray], None] | None = None,
) -> PMFInformation:
    """Sum the information of batches of rows on ``size`` entries.

    Parameters
    ----------
    batches
        Scores of the rows.
    size
        Number of entries.
    add_crossed
        Adds the second derivatives of a batch to an array (size, size), in place; None if they are not computed.
    """
    outer, gradient, mass = np.zeros((size, size)), np.zeros(size), np.zeros(size)
    crossed = None if add_crossed is None else np.zeros((size, size))
    for rows in batches:
        weighted = rows.scores * rows.weights[:, None]
        outer += weighted.T @ rows.scores
        gradient += weighted.sum(axis=0)
        mass += rows.weights @ rows.masses
        if add_crossed is not None and crossed is not None:
            add_crossed(rows, crossed)
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
        float64 (n_rows, n_entries): posteriors of the entries of the PMFs, those of the states first.
    scores
        float64 of that shape: derivatives of a row's log-probability with respect to the entries.
    """

    codes: IntArray
    weights: FloatArray
    masses: FloatArray
    scores: FloatArray


@dataclass(frozen=True, eq=False)
class StateRows:
    """A batch of rows, with scores of the parameters and conditional probabilities of the levels.

    Parameters
    ----------
    codes
        (n_rows, n_variables), -1 missing.
    weights
        float64 (n_rows,): weight of each row, in samples.
    posteriors
        float64 (n_rows, n_states): posteriors of states, or of the points of traits.
    scores
        float64 (n_rows, n_entries): derivatives of the log-probability of each row by the parameters.
    mass
        float64 (n_entries,): expected samples by PMF entry, as in `RowScores`; 0 for parameters that are no PMFs.
    chances
        Probabilities of the free levels of each variable: (n_states, n_free), or (n_rows, n_states, n_free) where they
        depend on the other answers of a row.
    apart
        States in which two variables do not depend on each other, for pairs that do in some state.
    """

    codes: IntArray
    weights: FloatArray
    posteriors: FloatArray
    scores: FloatArray
    mass: FloatArray
    chances: list[FloatArray]
    apart: Mapping[tuple[int, int], IntArray] = field(default_factory=dict)


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
