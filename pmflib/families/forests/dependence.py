"""Dependence of variables within latent states: a fit with forests, compared with one without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.comparison import Comparison
from pmflib.base.defaults import Limits
from pmflib.cluster.clients import find_memory
from pmflib.cluster.memory import MemoryPlan, format_bytes
from pmflib.counts.marginals import estimate_block_singles
from pmflib.counts.pair_counts import PairCounts, count_block
from pmflib.em.block_source import BlockSource
from pmflib.em.checkpoint import Checkpoint, digest_fit
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.forests.em import (
    TreeOptions,
    TreeRun,
    are_modest,
    find_largest,
    load_samples,
    plan_trees,
    run_tree_em,
)
from pmflib.families.forests.forest_search import (
    REFIT_PASSES,
    FittedForests,
    ForestSearch,
    FoundForests,
    report_forests,
)
from pmflib.families.forests.tree_fit import START_ROWS
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.fits.em_fit import MIN_SAMPLES, N_FOLDS, EMFit
from pmflib.fits.fit_result import FitResult
from pmflib.fits.pair_residuals import find_residuals
from pmflib.fits.starts import StoredCounts, digest_counts
from pmflib.model import JointPMF

NAMED = 3
"""Number of pairs with a large residual named in a note."""

SEARCH_WORK = 1 << 27
"""Cells times rank, including missing cells, of the stored samples used for the forest search: about a quarter of a
second per pass. With more samples, a subset of this size is used, followed by passes over all samples.
"""


class HeldOutSamples(NamedTuple):
    """Held-out samples: their number, a source of all of them, a reader for some of them, and their digest."""

    n_rows: int
    samples: BlockSource
    take: Callable[[int], DenseBlock]
    digest: str

    @classmethod
    def open(cls, fit: EMFit, validation: object | None) -> HeldOutSamples | None:
        """Open held-out samples as given to `pmflib.fit_em`; None if there are none."""
        if validation is None:
            return None
        if isinstance(validation, StoredSamples):
            if not validation.n_rows:
                return None
            stored = validation.with_target(fit.target)
            samples = stored
            return cls(stored.n_rows, samples, stored.read_some, stored.digest())
        codes = fit.schema.encode(validation)
        rank = fit.rank * fit.options.members
        loaded = load_samples(codes, fit.schema.offsets, rank, fit.target)
        return cls(len(codes), loaded, partial(_take_codes, codes), digest_fit(codes))


class Found(NamedTuple):
    """Fits with forests, to be compared with the fit without.

    Parameters
    ----------
    search
        The search that found them.
    fitted
        One run per member.
    comparisons
        Comparisons made during the search.
    held_out
        Held-out samples for the comparison; None uses those of the search.
    note
        Note on the search; may be empty.
    block
        Samples for the final fit, if a fold of them was held out; None if the runs used all of them.
    """

    search: ForestSearch
    fitted: FittedForests
    comparisons: list[Comparison]
    held_out: BlockSource | None = None
    note: str = ""
    block: DenseBlock | None = None


def fit_dependence(
    fit: EMFit,
    plain: FitResult,
    training: StoredSamples | DenseBlock,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
    *,
    is_forced: bool,
) -> FitResult:
    """Fit latent classes with forests, and keep them if they improve the held-out likelihood.

    Parameters
    ----------
    fit
        The fit without forests.
    plain
        Result of that fit.
    training
        Training samples, stored or in memory.
    validation
        Held-out samples. Without any, a fold of samples in memory is held out, and all of them are fitted in the end.
        Stored samples without held-out samples are fitted with forests only if forests are forced; a fold of the
        samples of the search then makes the choices.
    counts
        Co-occurrence counts of stored samples; None for those in memory.
    is_forced
        Whether to fit forests regardless of pairs and held-out samples.

    Returns
    -------
    The result without forests, with a note, or the result with forests.

    Raises
    ------
    MemoryPlanError
        If the tables and counts of stored samples do not fit in memory.
    """
    offsets = fit.schema.offsets
    if not is_forced and not are_modest(offsets, fit.rank):
        largest = find_largest(offsets, fit.rank)
        much = f"tables or counts of pairs of {format_bytes(largest)} are more than is tried"
        where = "without being asked for; 'tree' fits them where they fit in memory"
        return keep_plain(plain, f"dependence none: {much} {where}")
    if isinstance(training, StoredSamples):
        find_memory(training.client).check(
            partial(plan_forest_passes, training, fit.rank, fit.options.members)
        )
        assert counts is not None
        whole = counts.load() if isinstance(counts, StoredCounts) else counts
    else:
        whole = count_block(training, fit.schema, n_folds=1)
    n_large, note = describe_residuals(plain.model, whole)
    del whole
    if not is_forced and not n_large:
        return keep_plain(plain, f"dependence none: {note}")
    if isinstance(training, StoredSamples):
        assert counts is not None
        held_out = HeldOutSamples.open(fit, validation)
        if held_out is None and not is_forced:
            return keep_plain(
                plain, f"dependence none: no samples are held out to judge by; {note}"
            )
        found = _fit_stored(fit, plain.model, training, held_out, counts)
    else:
        given = _read_held_out(validation, fit)
        if not is_forced and given is None and len(training) < MIN_SAMPLES:
            few = f"{len(training)} samples are too few to hold any out"
            return keep_plain(plain, f"dependence none: {few}; {note}")
        found = _fit_in_memory(fit, plain.model, training, given)
    note += found.note
    fitted = found.fitted
    models = [each.parameters for each in fitted.runs]
    choice = found.search.choose(models, is_forced, found.held_out)
    if choice.chosen.settings["dependence"] == "none":
        return keep_plain(plain, note, choice.reason, comparison=choice)
    compared = (*found.comparisons, choice)
    notes = (note, *(each.reason for each in compared))
    if found.block is not None:
        fitted = found.search.refit(fitted, found.block)
    return report_forests(fit, fitted, notes, compared)


def refine_forests(
    fit: EMFit,
    model: TreePMF,
    training: StoredSamples | DenseBlock,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> FitResult:
    """Refine a model with forests by EM with its own options; the forests are re-estimated during the passes.

    Parameters
    ----------
    fit
        Stopping criteria, and the pseudo-count if given; otherwise that of the model is used.
    model
        Initial model, not an average.
    training, counts
        As for `fit_dependence`.
    validation
        Held-out samples, whose likelihood stops the passes; with None, passes continue until the training likelihood
        converges.

    Returns
    -------
    The result, whose model may be the given one if held-out samples favour it.

    Raises
    ------
    MemoryPlanError
        If stored samples need more memory than available.
    """
    known = {name: model.origin[name] for name in TreeOptions._fields if name in model.origin}
    options = TreeOptions(**known)
    if len(fit.options.pseudo_counts) == 1:
        options = options._replace(pseudo_count=fit.options.pseudo_counts[0])
    if isinstance(training, StoredSamples):
        assert counts is not None
        find_memory(training.client).check(partial(plan_forest_passes, training, fit.rank, 1))
        samples: BlockSource = training
        singles = fit.estimate_singles(counts)
    else:
        samples = load_samples(training, fit.schema.offsets, fit.rank)
        singles = estimate_block_singles(training, fit.schema.offsets)
    held_out = HeldOutSamples.open(fit, validation)
    first = TreeRun.begin(model.parameters, options)
    run = _run(fit, "given", samples, singles, first, held_out, fit.limits, samples.digest())
    n_before, n_after = model.forest.n_edges, run.parameters.forest.n_edges
    note = f"forests of the model that was given, found anew: {n_after} edges, {n_before} before"
    fitted = FittedForests([run], samples, singles, held_out.samples if held_out else None)
    return report_forests(fit, fitted, (note,), (), method="given+em")


def plan_forest_passes(
    training: StoredSamples, rank: int, members: int, n_threads: int
) -> MemoryPlan:
    """Plan the memory of passes with forests, on workers and in this process."""
    n_waiting = training.plan_pass(rank).n_waiting
    return plan_trees(training.schema.offsets, rank, n_threads, members, n_waiting=n_waiting)


def count_searched(n_rows: int, n_variables: int, rank: int) -> int:
    """Return the number of training samples used in the forest search."""
    return min(n_rows, max(START_ROWS, SEARCH_WORK // (n_variables * rank)))


def describe_residuals(model: JointPMF, counts: PairCounts) -> tuple[int, str]:
    """Count the pairs with a large bivariate residual; also returns a note that names the largest."""
    residuals = find_residuals(model, counts)
    large = residuals.list_large()
    n_pairs = len(residuals.names) * (len(residuals.names) - 1) // 2
    note = f"bivariate residuals: {len(large)} of {n_pairs} pairs are large"
    if large:
        named = ", ".join(f"{first} and {second}" for first, second, _ in large[:NAMED])
        note += f", most of all {named}"
    return len(large), note


def hold_out(block: DenseBlock) -> tuple[DenseBlock, DenseBlock]:
    """Split off a held-out fold; with few samples, all of them are used for both purposes."""
    if len(block) < MIN_SAMPLES:
        return block, block
    is_held_out = block.assign_folds(N_FOLDS) == 0
    if is_held_out.all():
        # a design may have so few units that all are in one fold
        return block, block
    return block[~is_held_out], block[is_held_out] if is_held_out.any() else block


def keep_plain(plain: FitResult, *notes: str, comparison: Comparison | None = None) -> FitResult:
    """Return the result without forests, with notes on the reason."""
    more = () if comparison is None else (comparison,)
    return replace(plain, notes=(*plain.notes, *notes), comparisons=(*plain.comparisons, *more))


def _fit_in_memory(
    fit: EMFit, plain: JointPMF, block: DenseBlock, held_out: DenseBlock | None
) -> Found:
    """Search with samples in memory; a fold is held out unless held-out samples are given."""
    if held_out is not None:
        return _find(ForestSearch(fit, block, held_out, plain))
    training, held_out = hold_out(block)
    fitted = fit.fit_block(training, fit.load_held_out(held_out))[1].model
    return _find(ForestSearch(fit, training, held_out, fitted))._replace(block=block)


def _find(search: ForestSearch) -> Found:
    """Run a search and collect its fits."""
    runs, comparisons = search.run()
    fitted = FittedForests(runs, search.training, search.singles, search.held_out)
    return Found(search, fitted, comparisons)


def _fit_stored(
    fit: EMFit,
    plain: JointPMF,
    training: StoredSamples,
    held_out: HeldOutSamples | None,
    counts: PairCounts | StoredCounts,
) -> Found:
    """Search with a subset of stored samples in memory, then make passes over all of them."""
    offsets = fit.schema.offsets
    n_search = count_searched(training.n_rows, fit.schema.n_variables, fit.rank)
    some = training.read_some(n_search)
    if held_out is None:
        n_held_out = 0
        some, judges = hold_out(some)
    else:
        n_held_out = min(held_out.n_rows, n_search)
        judges = held_out.take(n_held_out)
    search = ForestSearch(fit, some, judges, plain)
    if held_out is not None and n_search == training.n_rows and n_held_out == held_out.n_rows:
        # no pass over the samples remains
        return _find(search)
    of_search: list[object] = []
    kept: Checkpoint[FoundForests] | None = None
    if fit.passes.checkpoint is not None:
        of_search = [training.digest(), digest_counts(counts), plain.prior, plain.factors]
        of_search += [n_search]
        inputs = (fit.digest_options(), held_out.digest if held_out else "", *of_search)
        path = fit.passes.checkpoint / "forests-search.npz"
        unpack = partial(FoundForests.from_arrays, offsets)
        kept = Checkpoint(path, digest_fit(*inputs), FoundForests.to_arrays, unpack)
    found = None if kept is None else kept.load()
    if found is None:
        found = search.run()
        if kept is not None:
            kept.save(found)
    limits = fit.limits
    if held_out is None:
        # the best model for the samples held out of the search needs only a few more passes
        limits = limits._replace(max_passes=min(REFIT_PASSES, limits.max_passes))
    samples, singles = training, fit.estimate_singles(counts)
    runs = [
        _run(fit, f"{number}", samples, singles, first, held_out, limits, *of_search)
        for number, first in enumerate(found.runs)
    ]
    note = f"; forests were searched on {n_search:,} of {training.n_rows:,} samples"
    of_held_out = held_out.samples if held_out else None
    fitted = FittedForests(runs, samples, singles, of_held_out)
    return Found(search, fitted, found.comparisons, of_held_out, note)


def _run(
    fit: EMFit,
    name: str,
    samples: BlockSource,
    singles: FloatArray,
    first: TreeRun,
    held_out: HeldOutSamples | None,
    limits: Limits,
    *inputs: object,
) -> TreeRun:
    """Run EM from a model, or from a checkpoint that is identified by the given inputs."""
    report = fit.on_pass
    title = "forests" if name == "given" else f"forests {name}"
    start, folder = first.parameters, fit.passes.checkpoint
    of_start = start.prior, start.tables, start.forest.parents, first.options
    of_held_out = held_out.digest if held_out else ""
    return run_tree_em(
        samples,
        start,
        first.options,
        singles,
        held_out=held_out.samples if held_out else None,
        checkpoint=None if folder is None else folder / f"forests-{name}.npz",
        inputs=[fit.digest_options(), of_held_out, singles, *inputs, *of_start],
        on_pass=None if report is None else lambda state: report(title, state),
        limits=limits,
    )


def _take_codes(codes: IntArray, number: int) -> DenseBlock:
    """Return evenly spaced rows."""
    rows = np.linspace(0, len(codes) - 1, min(number, len(codes))).astype(np.int64)
    return DenseBlock(codes[rows])


def _read_held_out(validation: object | None, fit: EMFit) -> DenseBlock | None:
    """Read held-out samples, stored or in memory; None if there are none."""
    if isinstance(validation, StoredSamples):
        return validation.read_block() if validation.n_rows else None
    return None if validation is None else DenseBlock(fit.schema.encode(validation))
