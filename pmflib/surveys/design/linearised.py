"""Replicates of latent classes to first order: one pass over the samples, and one Newton step for each replicate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np

from pmflib.base.arrays import (
    FLOOR,
    BoolArray,
    FloatArray,
    IntArray,
    Parameters,
    repeat_blocks,
)
from pmflib.base.blocks import Block, weigh_rows
from pmflib.base.constraints import check_size
from pmflib.base.errors import PmfError
from pmflib.base.replicate_weights import ReplicateWeights
from pmflib.em.block_source import BlockSource
from pmflib.information.covariance import (
    EDGE_MASS,
    EDGE_RATIO,
    LEAST_MASS,
    OPENED,
    TOUCHED,
    Spectrum,
    span_steps,
)
from pmflib.information.latent_classes import ClassInformation, mark_levels
from pmflib.information.parameter_errors import MAX_ENTRIES
from pmflib.information.scores import read_entries
from pmflib.model import JointPMF
from pmflib.model.sufficient_statistics import take_logs
from pmflib.store.sample_blocks import BlockGroup, BlockReference, read_block

ReadDrawn: TypeAlias = Callable[[Block | BlockReference, int], FloatArray | IntArray]
"""Reads the replicate weights of a block, given the block and the position of its first row among all rows: float64 of
shape (n_columns, n_rows), in the unit of the block's own weights; or their sparse form, int64 of shape (n_rows,). It
travels to workers."""

SHORT = 1e-3
"""Fraction of its step that a model is moved by: a derivative, of which rounding leaves a dozen digits."""
LEAST_LEFT = 0.5
"""Minimum share of any probability that is left after such a step."""
BATCH_CELLS = 1 << 20
"""Cells of rows that are worked on at a time, held or not: those fit into the two nearest caches of a core."""
STRIP_LEVELS = 96
"""Levels whose pairs with later ones are added up in one product, which computes few pairs that are not needed."""
KNOWN_WITHIN = 1e-7
"""Rows whose state is known up to this probability add nothing to the missing information: the products of rows are in
single precision."""
NULL_SHARE = 1e-5
"""A direction is not determined if less than this share of its information is left, as states are not observed: errors
are then above three hundred times those of known states, and near the rounding of single precision."""


@dataclass(frozen=True, eq=False)
class LinearReplicates:
    """Steps of a model towards the fits to the replicates, to first order.

    Parameters
    ----------
    steps
        float64 of shape (n_steps, n_entries): step of the entries of `ClassInformation` for each replicate, or for each
        of fewer combinations of these with the same variances.
    factors
        float64 of shape (n_steps,): factor of each squared step in a variance.
    errors
        float64 of shape (n_entries,): standard errors of the entries.
    is_determined, is_edge
        As in `LatentCurvature`.
    distance
        Newton's step to the maximum, in standard errors of the entry that it moves most.
    is_maximum
        Whether the log-likelihood falls in all directions.
    """

    steps: FloatArray
    factors: FloatArray
    errors: FloatArray
    is_determined: BoolArray
    is_edge: BoolArray
    distance: float
    is_maximum: bool


def linearise(
    model: JointPMF, source: BlockSource, read_drawn: ReadDrawn, record: ReplicateWeights
) -> LinearReplicates:
    """Compute the step for each replicate: the inverse of the curvature times its departure of the scores.

    For sampling units this is the infinitesimal jackknife, whose variances are those of the sandwich. If there are more
    replicates than free parameters, as many combinations of them give the same variances.

    Parameters
    ----------
    model
        Latent classes, a single fit to the samples.
    source
        The samples, all rows in their order.
    read_drawn, record
        The replicate weights.

    Raises
    ------
    MemoryPlanError
        If prior and tables have more than ``MAX_ENTRIES`` entries.

    References
    ----------
    Binder (1983), International Statistical Review 51(3), for errors of what solves equations of weighted sums; Rao,
    Wu and Yue (1992), Survey Methodology 18(2), for one step of Newton from the whole in place of each refit.
    """
    n_entries = model.rank * (1 + model.schema.n_levels)
    hint = "lower the rank, or fit again to each replicate: method='refit'"
    check_size(n_entries, MAX_ENTRIES, "entries of prior and tables", hint)
    # loaded on first use; one thread, for the last bits of a product depend on their number
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        parameters = model.prior, model.factors
        sums = source.map_rows(_sum_group, merge_latent, source.offsets, parameters, read_drawn)
        return _solve(model, sums, record)


def _solve(model: JointPMF, sums: LatentSums, record: ReplicateWeights) -> LinearReplicates:
    """Compute the steps from sums over the samples."""
    information, mass = ClassInformation(model), flatten_states(sums.mass)
    pseudo_counts = information.find_pseudo_counts(mass)
    curvature = LatentCurvature.find(information.entries, information.starts, sums, pseudo_counts)
    totals = np.zeros((record.n_columns, mass.size))
    totals[sums.columns] = flatten_states(sums.totals)
    moved = (record.find_departures(totals, mass) @ curvature.scores) @ curvature.inverse
    shares = record.factors
    if len(moved) > moved.shape[1]:
        moved, shares = _combine(moved, shares)
    steps = moved @ curvature.steps.T
    errors = np.sqrt(shares @ steps**2)
    pull = (mass + pseudo_counts) @ curvature.scores
    to_maximum = np.abs(curvature.steps @ (curvature.inverse @ pull))
    known = curvature.is_determined & (errors > 0)
    return LinearReplicates(
        steps,
        shares,
        errors,
        curvature.is_determined,
        curvature.is_edge,
        float((to_maximum[known] / errors[known]).max(initial=0.0)),
        curvature.is_maximum,
    )


def move_model(model: JointPMF, found: LinearReplicates) -> tuple[list[JointPMF], FloatArray]:
    """Move a model by a small fraction of each step.

    Returns
    -------
    The models, and the factors of their squared departures in a variance.
    """
    # in proportion, so that what is at 0 stays there
    ratios = found.steps / ClassInformation(model).entries
    scales = np.minimum(SHORT, LEAST_LEFT / np.maximum(-ratios.min(axis=1), LEAST_LEFT))
    whole = np.concatenate([model.prior, model.factors.T.ravel()])
    moved = [
        read_entries(whole * (1 + scale * ratio), model.rank)
        for scale, ratio in zip(scales.tolist(), ratios, strict=True)
    ]
    models = [JointPMF(*each, model.schema, model.origin) for each in moved]
    return models, found.factors / scales**2


def _sum_group(
    group: BlockGroup, first: int, offsets: IntArray, model: Parameters, read_drawn: ReadDrawn
) -> LatentSums:
    parts = []
    for item in group:
        block = read_block(item) if isinstance(item, BlockReference) else item
        parts.append(sum_latent(block, offsets, model, read_drawn(item, first)))
        first += block.n_rows
    if not parts:
        raise PmfError("samples has no rows; pass those that the model was fitted to")
    return merge_latent(parts)


def _combine(moved: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Combine steps into fewer with a factor of 1 each and the same sums of squares in all directions."""
    values, vectors = np.linalg.eigh((moved * shares[:, None]).T @ moved)
    kept = values > values.max(initial=0.0) * np.finfo(np.float64).eps
    return np.sqrt(values[kept])[:, None] * vectors[:, kept].T, np.ones(int(kept.sum()))


@dataclass(frozen=True, eq=False)
class LatentSums:
    """Sums over samples under latent classes; additive.

    Parameters
    ----------
    mass
        float64 of shape (rank, 1 + n_levels): expected number of samples in each state, and with each level in it.
    missing
        float64 of shape (n_state_pairs, 1 + n_levels, 1 + n_levels): sum over samples of the product of the posteriors
        of two states, by two levels that a sample has; all samples have the first level. Pairs of states are in the
        order of `combinations`; upper triangles.
    totals
        float64 of shape (n_held, rank, 1 + n_levels): `mass` by the weights of each column of the replicate weights.
    columns
        int64 of shape (n_held,), ascending: number of each of these columns; those without any sample may be left out.
    """

    mass: FloatArray
    missing: FloatArray
    totals: FloatArray
    columns: IntArray


def sum_latent(
    block: Block, offsets: IntArray, model: Parameters, drawn: FloatArray | IntArray
) -> LatentSums:
    """Add up a block of samples.

    Parameters
    ----------
    block
        Valid samples, whose rows may have weights; missing cells are summed out.
    offsets
        int64 of shape (n_variables + 1,).
    model
        Prior and factors.
    drawn
        Replicate weights of the rows: float64 of shape (n_columns, n_rows); or their sparse form, int64 of shape
        (n_rows,), the one column in which each row has its own weight.
    """
    prior, factors = model
    rank, n_levels = prior.size, int(offsets[-1])
    log_prior, log_factors = take_logs(*open_entries(prior, factors, offsets))
    pairs = list(combinations(range(rank), 2))
    missing = np.zeros((len(pairs), 1 + n_levels, 1 + n_levels))
    mass = np.zeros((rank, 1 + n_levels))
    columns, of_row = np.arange(len(drawn)), None
    if drawn.ndim == 1:
        columns, of_row = np.unique(drawn.astype(np.int64), return_inverse=True)
    totals = np.zeros((columns.size, rank * (1 + n_levels)))
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
            totals += (of_states.reshape(-1, part.n_rows) @ held).reshape(columns.size, -1)
        else:
            _add_by_column(of_row[start:stop], posteriors * weights[:, None], held, totals)
        _add_missing(posteriors, weights, held, pairs, missing)
    return LatentSums(mass, missing, totals.reshape(columns.size, rank, -1), columns)


def merge_latent(parts: Sequence[LatentSums]) -> LatentSums:
    """Sum over parts of the samples, at least one, in the order given; a column may be in several."""
    columns = np.unique(np.concatenate([part.columns for part in parts]))
    totals = np.zeros((columns.size, *parts[0].totals.shape[1:]))
    for part in parts:
        totals[np.searchsorted(columns, part.columns)] += part.totals
    mass = np.sum([part.mass for part in parts], axis=0)
    return LatentSums(mass, np.sum([part.missing for part in parts], axis=0), totals, columns)


def open_entries(prior: FloatArray, factors: FloatArray, offsets: IntArray) -> Parameters:
    """Prior and factors without zeros."""
    opened, tables = np.maximum(prior, OPENED), np.maximum(factors, OPENED)
    sums = np.add.reduceat(tables, offsets[:-1], axis=0)
    return opened / opened.sum(), tables / repeat_blocks(sums, offsets)


def _mark_levels(codes: IntArray, offsets: IntArray) -> FloatArray:
    """Indicators of the levels of each row, after a column of ones: float64 of shape (n_rows, 1 + n_levels)."""
    return np.hstack([np.ones((len(codes), 1)), mark_levels(codes, offsets)])


def _add_by_column(
    of_row: IntArray, of_states: FloatArray, held: FloatArray, totals: FloatArray
) -> None:
    """Add the masses of rows to those of their columns."""
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
    """Add the products of posteriors of two states by pairs of levels, in single precision."""
    unknown = np.flatnonzero(posteriors.max(axis=1) < 1 - KNOWN_WITHIN)
    levels, shares = held[unknown].astype(np.float32), posteriors[unknown]
    for number, (first, second) in enumerate(pairs):
        both = shares[:, first] * shares[:, second] * weights[unknown]
        scaled = levels * both.astype(np.float32)[:, None]
        # the other pairs are the same
        for start in range(0, held.shape[1], STRIP_LEVELS):
            stop = start + STRIP_LEVELS
            missing[number, start:stop, start:] += scaled[:, start:stop].T @ levels[:, start:]


@dataclass(frozen=True, eq=False)
class LatentCurvature:
    """Curvature of the log-likelihood of latent classes, scaled so that it would be 1 if states were observed.

    A PMF p of n samples moves by ``diag(sqrt(p / n)) Q y``, with Q orthonormal and orthogonal to sqrt(p): its sum stays
    1, and with observed states the log-likelihood would fall by y'y / 2. Entries are those of `ClassInformation`.

    Parameters
    ----------
    steps
        float64 of shape (n_entries, n_free): derivatives of the entries by y.
    scores
        float64 of the same shape: derivatives of the log-likelihood by y are the masses of the entries times these.
    inverse
        float64 of shape (n_free, n_free): inverse of the curvature in the directions that are determined.
    is_determined
        bool of shape (n_entries,): whether samples determine an entry.
    is_edge
        bool of shape (n_entries,): at 0, or at 1 if all others of the PMF are at 0, and taken as fixed.
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
            As `ClassInformation` has them.
        sums
            Sums over the samples.
        pseudo_counts
            float64 of shape (n_entries,): pseudo-counts of the fit, whose curvature is included.

        References
        ----------
        Louis (1982), JRSS B 44(2): the missing information is the variance of the scores of the complete data, given
        the samples.
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
    """Reorder sums of shape (..., rank, 1 + n_levels) like `ClassInformation`: (..., n_entries)."""
    levels = by_state[..., 1:].reshape(*by_state.shape[:-2], -1)
    return np.concatenate([by_state[..., 0], levels], axis=-1)


def _join_missing(sums: LatentSums) -> FloatArray:
    """Missing information by two entries, in the order of `ClassInformation`."""
    rank, n = sums.mass.shape
    joined = np.zeros((rank, n, rank, n))
    for half, (first, second) in zip(sums.missing, combinations(range(rank), 2), strict=True):
        table = np.triu(half) + np.triu(half, 1).T
        joined[first, :, first] += table
        joined[second, :, second] += table
        joined[first, :, second] -= table
        joined[second, :, first] -= table
    # reorder the second index, then the first
    return flatten_states(np.moveaxis(flatten_states(joined), -1, 0)).T
