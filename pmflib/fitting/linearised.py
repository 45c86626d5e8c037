"""Replicates of latent classes to first order, from one pass over the samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, Parameters, sum_blocks
from pmflib.core.blocks import Block
from pmflib.core.errors import MemoryPlanError, PmfError
from pmflib.core.replicate_weights import ReplicateWeights
from pmflib.em.block_source import BlockSource
from pmflib.fitting.parameter_errors import MAX_ENTRIES
from pmflib.model import JointPMF
from pmflib.model.forests.statistics import TreeParameters
from pmflib.model.information import list_pmfs
from pmflib.model.latent_information import (
    LatentCurvature,
    LatentSums,
    flatten_states,
    merge_latent,
    sum_latent,
)
from pmflib.solvers import PseudoCounts
from pmflib.store.sample_blocks import BlockGroup, BlockReference, read_block

S = TypeVar("S", bound=np.generic)

ReadDrawn: TypeAlias = Callable[[Block | BlockReference, int], FloatArray | IntArray]
"""Reads the replicate weights of a block, given the block and the position of its first row among all rows: float64 of
shape (n_columns, n_rows), in the unit of the block's own weights; or their sparse form, int64 of shape (n_rows,). It
travels to workers."""

SHORT = 1e-3
"""Fraction of its step that a model is moved by: a derivative, of which rounding leaves a dozen digits."""
LEAST_LEFT = 0.5
"""Minimum share of any probability that is left after such a step."""


@dataclass(frozen=True, eq=False)
class LinearReplicates:
    """Steps of a model towards the fits to the replicates, to first order.

    Parameters
    ----------
    steps
        float64 of shape (n_steps, n_entries): step of the entries of `list_pmfs` for each replicate, or for each of
        fewer combinations of these with the same variances.
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
    if n_entries > MAX_ENTRIES:
        raise MemoryPlanError(
            f"prior and tables have {n_entries} entries, above {MAX_ENTRIES}; lower the rank, merge levels, or "
            "fit again to each replicate: method='refit'"
        )
    # loaded on first use; one thread, for the last bits of a product depend on their number
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        parameters = model.prior, model.factors
        sums = source.map_rows(_sum_group, merge_latent, source.offsets, parameters, read_drawn)
        return _solve(model, sums, record)


def _solve(model: JointPMF, sums: LatentSums, record: ReplicateWeights) -> LinearReplicates:
    """Compute the steps from sums over the samples."""
    entries, starts = list_pmfs(model.parameters)
    mass = flatten_states(sums.mass)
    pseudo_counts = find_pseudo_counts(model, model.parameters, mass)
    curvature = LatentCurvature.find(entries, starts, sums, pseudo_counts)
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
        not curvature.n_rising,
    )


def move_model(model: JointPMF, found: LinearReplicates) -> tuple[list[JointPMF], FloatArray]:
    """Move a model by a small fraction of each step.

    Returns
    -------
    The models, and the factors of their squared departures in a variance.
    """
    # in proportion, so that what is at 0 stays there
    ratios = found.steps / list_pmfs(model.parameters)[0]
    scales = np.minimum(SHORT, LEAST_LEFT / np.maximum(-ratios.min(axis=1), LEAST_LEFT))
    whole = np.concatenate([model.prior, model.factors.T.ravel()])
    moved = [
        read_entries(whole * (1 + scale * ratio), model.rank)
        for scale, ratio in zip(scales.tolist(), ratios, strict=True)
    ]
    models = [JointPMF(*each, model.schema, dict(model.origin)) for each in moved]
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
        raise PmfError("samples has no rows; give those that the model was fitted to")
    return merge_latent(parts)


def find_pseudo_counts(model: JointPMF, parameters: TreeParameters, mass: FloatArray) -> FloatArray:
    """Find the pseudo-counts of each entry of prior and tables, given the samples expected in each."""
    rank, forest, offsets = model.rank, parameters.forest, model.schema.offsets
    mean = float(model.origin.get("pseudo_count", 0.0))
    held = forest.sum_levels(mass[rank:]).sum(axis=1)
    totals = np.repeat(sum_blocks(held, offsets), np.diff(offsets))
    singles = np.where(totals > 0, held / np.where(totals > 0, totals, 1.0), 0.0)
    added = PseudoCounts.shaped_by(singles, offsets, mean)
    # what edges add goes by the states' own PMFs, which the entries are close to
    of_edges = float(model.origin.get("edge_pseudo_count", 0.0)) * parameters.tables
    of_levels = np.where(forest.has_parent, of_edges, added.levels[forest.levels])
    return np.concatenate([np.full(rank, added.state), of_levels])


def _combine(moved: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Combine steps into fewer with a factor of 1 each and the same sums of squares in all directions."""
    values, vectors = np.linalg.eigh((moved * shares[:, None]).T @ moved)
    kept = values > values.max(initial=0.0) * np.finfo(np.float64).eps
    return np.sqrt(values[kept])[:, None] * vectors[:, kept].T, np.ones(int(kept.sum()))


def read_entries(entries: NDArray[S], rank: int) -> tuple[NDArray[S], NDArray[S]]:
    """Reshape values of the entries of `list_pmfs` like prior and factors."""
    return entries[:rank], np.ascontiguousarray(entries[rank:].reshape(rank, -1).T)
