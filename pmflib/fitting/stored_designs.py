"""Replicates of a model of stored samples: by strata and units, or replicate weights, that their dataset has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, Parameters
from pmflib.core.blocks import Block
from pmflib.core.defaults import Limits
from pmflib.core.errors import PmfError, StoreError
from pmflib.core.hashing import mix_hashes
from pmflib.core.machine import count_processors
from pmflib.core.survey_design import (
    MOST_REPLICATES,
    count_degrees,
    find_factors,
    join_lone_strata,
)
from pmflib.counting.marginals import normalise_singles
from pmflib.em.block_source import BlockSource, StoredBlocks
from pmflib.em.family import run_em
from pmflib.em.latent_classes import (
    ClassState,
    LatentClasses,
    evaluate_models,
    join_statistics,
    split_members,
)
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.linearised import linearise
from pmflib.fitting.replicates import (
    GAIN,
    MAX_PASSES,
    MOST_TOTALS,
    TOL,
    Replicates,
    describe_linear,
    describe_refits,
)
from pmflib.model import JointPMF
from pmflib.model.statistics import EMStatistics, em_statistics, merge_each, take_logs
from pmflib.solvers import PseudoCounts
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import (
    NO_REPLICATES,
    BlockGroup,
    BlockReference,
    read_block,
    read_replicates,
    read_sampling_units,
)


@dataclass(frozen=True)
class StoredDesign:
    """How the samples of a dataset were drawn, where that is more than by weights.

    Parameters
    ----------
    method
        How replicates were made, or "jackknife" of strata and units.
    factors
        Share of the squared departure of each replicate in a variance; none of strata and units.
    """

    method: str
    factors: tuple[float, ...] = ()

    @classmethod
    def open(cls, store: Store, dataset: Reference) -> StoredDesign | None:
        """Read it from a dataset; None of one whose samples have weights alone, or none.

        Raises
        ------
        StoreError
            If the dataset is not in the store, or damaged.
        """
        # with it comes pyarrow.compute, which takes longer to load than the rest of this package
        from pmflib.store.dataset import read_source

        source = read_source(store, dataset)
        if "replicates" in source:
            how = source["replicate_method"], len(source["replicates"])
            factors = find_factors(*how, source.get("fay"), source.get("replicate_factors"))
            return cls(source["replicate_method"], tuple(factors.tolist()))
        return cls("jackknife") if "psu" in source else None


def find_stored_replicates(
    model: JointPMF,
    samples: StoredSamples,
    design: StoredDesign,
    method: Literal["linear", "refit"] = "linear",
) -> Replicates:
    """Find how each replicate of the design of stored samples moves a model, as `pmflib.fit_replicates` does in memory.

    Parameters
    ----------
    model
        Latent classes, a single fit to these samples. To first order it is taken as it is; refits begin at it, that to
        the whole among them.
    samples
        Samples with weights, and with units or replicate weights.
    design
        How they were drawn.
    method
        "linear" is one pass; "refit" makes passes until the fits to all replicates have converged, each pass of all.

    Raises
    ------
    PmfError
        If all samples are of one unit.
    MemoryPlanError
        If it is "linear", and prior and factors have too many entries.
    StoreError
        If a partition is gone or damaged, or has no units or replicate weights.
    """
    # blocks that workers keep have neither units nor replicates
    source = StoredBlocks(samples.blocks, samples.schema.offsets, samples.client)
    notes: tuple[str, ...] = ()
    if design.factors:
        factors = np.array(design.factors)
        degrees = count_degrees(design.method, factors.size)
        read: ReadWeights | ReadUnits = ReadWeights(factors.size)
        if method == "linear":
            found = linearise(model, source, read, factors)
            return describe_linear(model, found, degrees, design.method, (), found.distance)
    else:
        most = MOST_TOTALS // (model.rank * (1 + model.schema.n_levels))
        groups, notes = group_units(samples.blocks, MOST_REPLICATES if method == "refit" else most)
        degrees, read = groups.degrees, ReadUnits(groups)
        if method == "linear":
            found = linearise(model, source, read)
            return describe_linear(model, found, degrees, design.method, notes, found.distance)
        n_each = np.bincount(groups.strata)
        factors, read = ((n_each - 1) / n_each)[groups.strata], ReadUnits(groups, leaves_out=True)
    start = evaluate_models(samples, [(model.prior, model.factors)])[0]
    fitted = _refit(model, start, source, read, factors)
    notes += () if fitted.converged else ("refits were stopped before all had converged",)
    fits = split_members(fitted.parameters, 1 + factors.size)
    whole, *made = [JointPMF(*each, model.schema, dict(model.origin)) for each in fits]
    return describe_refits(model, whole, made, factors, degrees, design.method, notes)


@dataclass(frozen=True, eq=False)
class UnitGroups:
    """Sampling units, and the groups that are left out together.

    Parameters
    ----------
    hashes
        int64 of shape (n_units,), sorted: hash of each unit within its stratum.
    groups
        int64 of shape (n_units,): group of each, itself where there are few.
    strata
        int64 of shape (n_groups,): stratum of each group; strata of a single unit are taken together.
    degrees
        Units less strata.
    """

    hashes: IntArray
    groups: IntArray
    strata: IntArray
    degrees: int


def group_units(blocks: Sequence[BlockReference], most: int) -> tuple[UnitGroups, tuple[str, ...]]:
    """List the units of stored samples, and put them into groups of a stratum where they are more than some number.

    Returns
    -------
    The groups, two a stratum at least, and what is to be said of strata with a single unit.

    Raises
    ------
    PmfError
        If all samples are of one unit.
    StoreError
        If a partition is gone or damaged, or has no units.
    """
    filled = [block for block in blocks if block.n_rows]
    with ThreadPoolExecutor(count_processors(), "units") as pool:
        parts = list(pool.map(_list_units, filled))
    drawn = np.unique(np.concatenate([np.empty((0, 2), np.int64), *parts]), axis=0)
    drawn = drawn[np.argsort(drawn[:, 1], kind="stable")]
    if len(drawn) < 2:
        raise PmfError(
            "all samples are of one sampling unit, which shows no spread; a variance takes two"
        )
    numbered = np.unique(drawn[:, 0], return_inverse=True)[1].ravel().astype(np.int64)
    strata, n_lone = join_lone_strata(numbered)
    n_each = np.bincount(strata)
    n_groups = n_each if len(drawn) <= most else np.maximum(n_each * most // len(drawn), 2)
    order = np.lexsort((mix_hashes(drawn[:, 1].view(np.uint64)), strata))
    place = np.empty(len(drawn), np.int64)
    place[order] = np.arange(len(drawn)) - (np.cumsum(n_each) - n_each)[strata[order]]
    first = np.cumsum(n_groups) - n_groups
    groups = first[strata] + place % n_groups[strata]
    of_groups = np.repeat(np.arange(n_groups.size), n_groups)
    notes: tuple[str, ...] = ()
    if n_lone:
        notes += (f"{n_lone} strata with a single unit are taken together, or with the next",)
    if len(drawn) > most:
        notes += (f"{len(drawn):,} units are put into groups, which are taken as units",)
    found = UnitGroups(drawn[:, 1].copy(), groups, of_groups, len(drawn) - n_each.size)
    return found, notes


def _list_units(block: BlockReference) -> IntArray:
    return np.unique(_read_units(block), axis=0)


def _read_units(block: Block | BlockReference) -> IntArray:
    found = read_sampling_units(block) if isinstance(block, BlockReference) else None
    if found is None:
        raise StoreError(
            "a partition of samples has no sampling units; delete its dataset, and run the pipeline again"
        )
    return found


@dataclass(frozen=True)
class ReadWeights:
    """Reads the weights of all replicates of the samples of a block, in the unit of its own weights."""

    n_replicates: int

    def __call__(self, item: Block | BlockReference, first: int) -> FloatArray:
        """float64 of shape (n_replicates, n_rows)."""
        found = read_replicates(item) if isinstance(item, BlockReference) else None
        if found is None or found.shape[1] != self.n_replicates:
            raise StoreError(NO_REPLICATES)
        assert isinstance(item, BlockReference)
        assert item.weights is not None
        # equal weights are left out of the block: each is then one sample
        scale = item.n_rows / item.weights.totals[0] if item.scale is None else item.scale
        weights: FloatArray = found.T * np.float64(scale)
        return weights


@dataclass(frozen=True, eq=False)
class ReadUnits:
    """Reads strata and units of the samples of a block, numbered: int64 of shape (n_rows, 2).

    Parameters
    ----------
    groups
        The units.
    leaves_out
        Whether weights are read in their place, float64 of shape (n_groups, n_rows): each group is left out in turn,
        and its weight given to the others of its stratum.
    """

    groups: UnitGroups
    leaves_out: bool = False

    def __call__(self, item: Block | BlockReference, first: int) -> FloatArray | IntArray:
        """What is known of the samples of a block."""
        found, strata = self.groups, self.groups.strata
        own = found.groups[np.searchsorted(found.hashes, _read_units(item)[:, 1])]
        if not self.leaves_out:
            return np.column_stack([strata[own], own])
        block = read_block(item) if isinstance(item, BlockReference) else item
        n_each = np.bincount(strata)
        more = (n_each / np.maximum(n_each - 1, 1))[strata]
        shares: FloatArray = np.where(strata[:, None] == strata[own], more[:, None], 1.0)
        shares[own, np.arange(own.size)] = 0.0
        return shares if block.weights is None else shares * block.weights


@dataclass(frozen=True, eq=False)
class _ReplicateClasses(LatentClasses):
    """Latent classes, each member fitted under the weights of another replicate, the first under those of the whole."""

    read: ReadWeights | ReadUnits | None = None

    def start(self, source: BlockSource, state: ClassState) -> Callable[[], EMStatistics]:
        """Return the pass: one task for all members, for the replicates of a block are read once."""
        models = split_members(state.parameters, self.n_members)
        shared = self.offsets, models, self.read
        return lambda: join_statistics(source.map_rows(_evaluate_group, merge_each, *shared))


def _evaluate_group(
    group: BlockGroup,
    first: int,
    offsets: IntArray,
    models: Sequence[Parameters],
    read: ReadWeights | ReadUnits,
) -> list[EMStatistics]:
    logs = [take_logs(*model) for model in models]
    parts = []
    for item in group:
        block = read_block(item) if isinstance(item, BlockReference) else item
        found = [em_statistics(block, offsets, *logs[0])]
        for weights, log in zip(read(item, first), logs[1:], strict=True):
            kept = np.flatnonzero(weights)
            part = replace(block.take(kept), weights=weights[kept])
            found.append(em_statistics(part, offsets, *log))
        parts.append(found)
        first += block.n_rows
    return merge_each(parts)


def _refit(
    model: JointPMF,
    start: EMStatistics,
    source: StoredBlocks,
    read: ReadWeights | ReadUnits,
    factors: FloatArray,
) -> ClassState:
    """Fit to the whole and to all replicates, side by side, from a model with its statistics."""
    offsets = model.schema.offsets
    singles = normalise_singles(start.level_mass.sum(axis=1), offsets)
    pseudo_count = float(model.origin.get("pseudo_count", 0.0))
    shape = PseudoCounts.shaped_by(singles, offsets, pseudo_count)
    starts = [(model.prior, model.factors)] * (1 + factors.size)
    family = _ReplicateClasses(offsets, shape, len(starts), accelerate=True, read=read)
    tol = min(TOL, GAIN / max(abs(start.log_likelihood), 1.0))
    return run_em(family, source, family.begin(starts), limits=Limits(MAX_PASSES, tol))
