"""Replicates of latent classes without refits: where one pass over the samples says that they move a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pmflib.core.arrays import BoolArray, FloatArray, IntArray, Parameters, sum_blocks
from pmflib.core.blocks import Block
from pmflib.core.errors import MemoryPlanError, PmfError
from pmflib.core.survey_design import join_lone_strata
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
"""How the samples of a block were drawn, given the block and the position of its first row among all: float64 of shape
(n_replicates, n_rows), the weights of each replicate in the unit of the block's own; or int64 of shape (n_rows, 2),
stratum and unit of each row. It travels to workers."""

SHORT = 1e-3
"""Share of its step that a model is moved by, for it to be a derivative: rounding leaves a dozen digits of it."""
LEAST_LEFT = 0.5
"""Share that such a step leaves of any probability, at least."""


@dataclass(frozen=True, eq=False)
class LinearReplicates:
    """Where replicates of the design move a model, to first order.

    Parameters
    ----------
    steps
        float64 of shape (n_replicates, n_entries): what each moves the entries of `list_pmfs` by.
    factors
        float64 of shape (n_replicates,): factor of the squared step of each in a variance.
    errors
        float64 of shape (n_entries,): standard errors of the entries.
    is_determined, is_edge
        As in `LatentCurvature`.
    n_drawn
        Replicates of the design, or units.
    degrees
        Units less strata; 0 of replicates.
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
    n_drawn: int
    degrees: int
    distance: float
    is_maximum: bool


def linearise(
    model: JointPMF, source: BlockSource, read_drawn: ReadDrawn, factors: FloatArray | None = None
) -> LinearReplicates:
    """Find where replicates move a model: the inverse of the curvature by what each changes of the scores.

    With strata and units these are left out one after another, the infinitesimal jackknife, whose variances are those
    of the sandwich; where they are more than free parameters, as many combinations of them have the same variances.

    Parameters
    ----------
    model
        Latent classes, a single fit to the samples.
    source
        The samples, all rows in their order.
    read_drawn
        How those of a block were drawn.
    factors
        float64 of shape (n_replicates,): shares of squared departures in a variance; None of units.

    Raises
    ------
    MemoryPlanError
        If prior and tables have more than ``MAX_ENTRIES`` entries.
    PmfError
        If all samples are of one unit.

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
        return _solve(model, sums, factors)


def _solve(model: JointPMF, sums: LatentSums, factors: FloatArray | None) -> LinearReplicates:
    """Steps of replicates from sums over the samples."""
    entries, starts = list_pmfs(model.parameters)
    mass = flatten_states(sums.mass)
    pseudo_counts = find_pseudo_counts(model, model.parameters, mass)
    curvature = LatentCurvature.find(entries, starts, sums, pseudo_counts)
    changes, shares, degrees = _find_changes(sums, factors)
    moved = (changes @ curvature.scores) @ curvature.inverse
    n_drawn = len(moved)
    if n_drawn > moved.shape[1]:
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
        n_drawn,
        degrees,
        float((to_maximum[known] / errors[known]).max(initial=0.0)),
        curvature.is_maximum,
    )


def move_model(model: JointPMF, found: LinearReplicates) -> tuple[list[JointPMF], FloatArray]:
    """Move a model by a small part of the step of each replicate.

    Returns
    -------
    The models, and factors of their squared departures in a variance.
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
    """Samples that the fit has added to each entry of prior and tables, from the samples expected in each."""
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


def _find_changes(
    sums: LatentSums, factors: FloatArray | None
) -> tuple[FloatArray, FloatArray, int]:
    """What each replicate changes of the masses, its factor in a variance, and the degrees of freedom of units."""
    totals = flatten_states(sums.totals)
    if factors is not None:
        return totals - flatten_states(sums.mass), factors, 0
    if len(totals) < 2:
        raise PmfError(
            "all rows are one sampling unit, which shows no spread; a variance takes two"
        )
    strata = np.unique(sums.keys[:, 0], return_inverse=True)[1].ravel().astype(np.int64)
    strata, _ = join_lone_strata(strata)
    n_each = np.bincount(strata)
    means = np.zeros((n_each.size, totals.shape[1]))
    np.add.at(means, strata, totals)
    means /= n_each[:, None]
    shares = (n_each / (n_each - 1))[strata]
    return totals - means[strata], shares, len(totals) - n_each.size


def _combine(moved: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fewer steps, each of a factor of 1, with the same sums of squares in all directions."""
    values, vectors = np.linalg.eigh((moved * shares[:, None]).T @ moved)
    kept = values > values.max(initial=0.0) * np.finfo(np.float64).eps
    return np.sqrt(values[kept])[:, None] * vectors[:, kept].T, np.ones(int(kept.sum()))


def read_entries(entries: NDArray[S], rank: int) -> tuple[NDArray[S], NDArray[S]]:
    """What is given for the entries of `list_pmfs`, as arrays like prior and factors."""
    return entries[:rank], np.ascontiguousarray(entries[rank:].reshape(rank, -1).T)
