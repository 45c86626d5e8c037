"""What replicates and sampling units say of latent classes: sums of their scores, and the curvature of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pmflib.core.arrays import FLOOR, BoolArray, FloatArray, IntArray, Parameters, repeat_blocks
from pmflib.core.blocks import Block, weigh_rows
from pmflib.model.statistics import take_logs
from pmflib.solvers.numeric.information import (
    EDGE_MASS,
    EDGE_RATIO,
    LEAST_MASS,
    OPENED,
    TOUCHED,
    Spectrum,
    span_steps,
)

BATCH_CELLS = 1 << 20
"""Levels of rows, held or not, that are worked on at a time: what a core's cache and the next one hold."""
STRIP_LEVELS = 96
"""Levels whose pairs with later ones are added up in one product, so that few pairs are added for nothing."""
SURE = 1e-7
"""A row whose state is known but for this has no part in what is missing: that is a rounding of single precision, in
which products of rows are."""
NULL_SHARE = 1e-5
"""A direction is not determined where less than this share of its information is left by what is not known of the
states: errors are then above three hundred times those of known states, and rounding of single precision is near."""


@dataclass(frozen=True, eq=False)
class LatentSums:
    """Sums over samples under latent classes; additive.

    Parameters
    ----------
    mass
        float64 of shape (rank, 1 + n_levels): samples expected in each state, and with each level in it.
    missing
        float64 of shape (n_state_pairs, 1 + n_levels, 1 + n_levels): sum over samples of the product of the posteriors
        of two states, by two levels that a sample holds; a first level is held by all. States pair as `combinations`;
        upper triangles.
    totals
        float64 of shape (n_groups, rank, 1 + n_levels): `mass` by the weights of each replicate, or of each unit alone.
    keys
        int64 of shape (n_groups, 2): stratum and unit of each, in their order; of replicates 0 and their number.
    """

    mass: FloatArray
    missing: FloatArray
    totals: FloatArray
    keys: IntArray


def sum_latent(
    block: Block, offsets: IntArray, model: Parameters, drawn: FloatArray | IntArray
) -> LatentSums:
    """Add up a block of samples.

    Parameters
    ----------
    block
        Valid samples, whose rows may have weights; what is missing is summed out.
    offsets
        int64 of shape (n_variables + 1,).
    model
        Prior and factors.
    drawn
        How the rows were drawn: float64 of shape (n_replicates, n_rows), weights of the rows in each replicate; or
        int64 of shape (n_rows, 2), stratum and unit of each.
    """
    prior, factors = model
    rank, n_levels = prior.size, int(offsets[-1])
    log_prior, log_factors = take_logs(*open_entries(prior, factors, offsets))
    pairs = list(combinations(range(rank), 2))
    missing = np.zeros((len(pairs), 1 + n_levels, 1 + n_levels))
    mass = np.zeros((rank, 1 + n_levels))
    by_unit = drawn.dtype.kind == "i"
    keys, of_row = _number_units(drawn) if by_unit else (_number_replicates(len(drawn)), None)
    totals = np.zeros((len(keys), rank * (1 + n_levels)))
    step = max(1, BATCH_CELLS // (1 + n_levels))
    for start in range(0, block.n_rows, step):
        part = block.cut(start, min(start + step, block.n_rows))
        stop = start + part.n_rows
        held = _mark_levels(part.to_codes(offsets), offsets)
        logs = held[:, 1:] @ log_factors + log_prior
        posteriors = np.exp(logs - logs.max(axis=1, keepdims=True))
        posteriors /= posteriors.sum(axis=1, keepdims=True)
        weights = weigh_rows(part)
        mass += (posteriors * weights[:, None]).T @ held
        if of_row is None:
            of_states = drawn[:, None, start:stop] * posteriors.T
            totals += (of_states.reshape(-1, part.n_rows) @ held).reshape(len(keys), -1)
        else:
            _add_by_unit(of_row[start:stop], posteriors * weights[:, None], held, totals)
        _add_missing(posteriors, weights, held, pairs, missing)
    return LatentSums(mass, missing, totals.reshape(len(keys), rank, -1), keys)


def merge_latent(parts: Sequence[LatentSums]) -> LatentSums:
    """Sum over parts of the samples, at least one, in the order given; units may be in several."""
    keys, places = np.unique(
        np.concatenate([part.keys for part in parts]), axis=0, return_inverse=True
    )
    totals = np.zeros((len(keys), *parts[0].totals.shape[1:]))
    first = 0
    for part in parts:
        own = places.ravel()[first : first + len(part.keys)]
        totals[own] += part.totals
        first += len(part.keys)
    mass = np.sum([part.mass for part in parts], axis=0)
    return LatentSums(mass, np.sum([part.missing for part in parts], axis=0), totals, keys)


def open_entries(prior: FloatArray, factors: FloatArray, offsets: IntArray) -> Parameters:
    """Prior and factors without zeros."""
    opened, tables = np.maximum(prior, OPENED), np.maximum(factors, OPENED)
    sums = np.add.reduceat(tables, offsets[:-1], axis=0)
    return opened / opened.sum(), tables / repeat_blocks(sums, offsets)


def _number_replicates(n_replicates: int) -> IntArray:
    return np.stack([np.zeros(n_replicates, np.int64), np.arange(n_replicates)], axis=1)


def _number_units(drawn: FloatArray | IntArray) -> tuple[IntArray, IntArray]:
    """Strata and units that there are, in order, and which of them each row is in."""
    keys, of_row = np.unique(drawn.astype(np.int64), axis=0, return_inverse=True)
    return keys, of_row.ravel().astype(np.int64)


def _mark_levels(codes: IntArray, offsets: IntArray) -> FloatArray:
    """1 for each level that a row holds, else 0, after a first one that all hold: (n_rows, 1 + n_levels)."""
    held = np.zeros((len(codes), 1 + int(offsets[-1])))
    held[:, 0] = 1.0
    rows, variables = np.nonzero(codes >= 0)
    held[rows, 1 + offsets[variables] + codes[rows, variables]] = 1.0
    return held


def _add_by_unit(
    of_row: IntArray, of_states: FloatArray, held: FloatArray, totals: FloatArray
) -> None:
    """Add the masses of rows to those of their units."""
    order = np.argsort(of_row, kind="stable")
    own, starts = np.unique(of_row[order], return_index=True)
    ordered, n = held[order], held.shape[1]
    for state in range(of_states.shape[1]):
        masses = ordered * of_states[order, state, None]
        totals[own, state * n : (state + 1) * n] += np.add.reduceat(masses, starts, axis=0)


def _add_missing(
    posteriors: FloatArray,
    weights: FloatArray,
    held: FloatArray,
    pairs: Sequence[tuple[int, int]],
    missing: FloatArray,
) -> None:
    """Add the products of posteriors of two states by pairs of levels, which single precision is enough for."""
    unsure = np.flatnonzero(posteriors.max(axis=1) < 1 - SURE)
    levels, shares = held[unsure].astype(np.float32), posteriors[unsure]
    for number, (first, second) in enumerate(pairs):
        both = shares[:, first] * shares[:, second] * weights[unsure]
        scaled = levels * both.astype(np.float32)[:, None]
        # pairs that come later, for the others are the same
        for start in range(0, held.shape[1], STRIP_LEVELS):
            stop = start + STRIP_LEVELS
            missing[number, start:stop, start:] += scaled[:, start:stop].T @ levels[:, start:]


@dataclass(frozen=True, eq=False)
class LatentCurvature:
    """Curvature of the log-likelihood of latent classes, in free directions in which that of known states is 1.

    A PMF p of n samples moves by ``diag(sqrt(p / n)) Q y``, with Q orthonormal and orthogonal to sqrt(p): its sum stays
    1, and were states known the log-likelihood would fall by y'y / 2. Entries are those of `list_pmfs`.

    Parameters
    ----------
    steps
        float64 of shape (n_entries, n_free): what y moves.
    scores
        float64 of the same shape: derivatives of the log-likelihood by y, from the mass of each entry.
    inverse
        float64 of shape (n_free, n_free): inverse of the curvature in the directions that are determined.
    is_determined
        bool of shape (n_entries,): whether samples determine an entry.
    is_edge
        bool of shape (n_entries,): at 0, or 1 where all others of the PMF are at 0, and taken as fixed.
    is_maximum
        Whether the log-likelihood rises in no direction.
    """

    steps: FloatArray
    scores: FloatArray
    inverse: FloatArray
    is_determined: BoolArray
    is_edge: BoolArray
    is_maximum: bool

    @classmethod
    def find(
        cls, entries: FloatArray, starts: IntArray, sums: LatentSums, pseudo_counts: FloatArray
    ) -> LatentCurvature:
        """Find the curvature at a model.

        Parameters
        ----------
        entries, starts
            As `list_pmfs` gives them.
        sums
            Sums over the samples.
        pseudo_counts
            float64 of shape (n_entries,): what the fit has added to each entry; its curvature is included.

        References
        ----------
        Louis (1982), JRSS B 44(2): what is missing is the variance of the scores of known states, given the samples.
        """
        sizes = np.diff(np.append(starts, entries.size))
        mass = flatten_states(sums.mass)
        expected = mass + pseudo_counts
        held = np.repeat(np.add.reduceat(mass, starts), sizes)
        whole = np.repeat(np.add.reduceat(expected, starts), sizes)
        is_alive = np.repeat(sizes > 1, sizes) & (held >= LEAST_MASS)
        is_low = expected < np.minimum(EDGE_RATIO * entries * whole, EDGE_MASS)
        is_edge = is_alive & ((entries <= OPENED) | is_low)
        is_moving = is_alive & ~is_edge
        n_moving = np.repeat(np.add.reduceat(is_moving, starts, dtype=np.int64), sizes)
        scores = span_steps(np.sqrt(entries), starts, sizes, is_moving)
        scores /= np.sqrt(entries * np.maximum(whole, FLOOR))[:, None]
        steps = entries[:, None] * scores
        curvature = np.eye(scores.shape[1]) - scores.T @ _join_missing(sums) @ scores
        spectrum = Spectrum.find(curvature, NULL_SHARE)
        moved = np.sqrt(((steps @ spectrum.loose) ** 2).sum(axis=1))
        known = np.sqrt(np.maximum(entries, 1 / np.maximum(whole, 1.0)) / np.maximum(whole, 1.0))
        is_open = np.repeat(sizes > 1, sizes) & (held < LEAST_MASS)
        return cls(
            steps,
            scores,
            spectrum.invert(),
            ~is_open & (moved <= TOUCHED * known),
            is_edge | (is_moving & (n_moving == 1)),
            spectrum.lowest >= -NULL_SHARE,
        )


def flatten_states(by_state: FloatArray) -> FloatArray:
    """Sums of shape (..., rank, 1 + n_levels) in the order of `list_pmfs`: (..., n_entries)."""
    levels = by_state[..., 1:].reshape(*by_state.shape[:-2], -1)
    return np.concatenate([by_state[..., 0], levels], axis=-1)


def _join_missing(sums: LatentSums) -> FloatArray:
    """What is missing by two entries, in the order of `list_pmfs`: the variance of the scores of known states."""
    rank, n = sums.mass.shape
    joined = np.zeros((rank, n, rank, n))
    for half, (first, second) in zip(sums.missing, combinations(range(rank), 2), strict=True):
        table = np.triu(half) + np.triu(half, 1).T
        joined[first, :, first] += table
        joined[second, :, second] += table
        joined[first, :, second] -= table
        joined[second, :, first] -= table
    # the entries of the second index come in order, and those of the first follow
    return flatten_states(np.moveaxis(flatten_states(joined), -1, 0)).T
