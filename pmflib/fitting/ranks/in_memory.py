"""How many latent states, for samples in memory: by a target, by held-out samples, or by pairs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from pmflib.core.arrays import IntArray
from pmflib.core.defaults import RANKS_BY_SAMPLES
from pmflib.core.hashing import assign_folds
from pmflib.counting.marginals import estimate_code_singles
from pmflib.counting.pair_counts import PairCounts, count_pairs
from pmflib.em.samples import SamplesInMemory
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.candidates import LARGEST_PAIRS
from pmflib.fitting.em_fit import EMFit
from pmflib.fitting.fit_result import FitResult, SettledRank
from pmflib.fitting.ranks.by_pairs import select_rank
from pmflib.fitting.ranks.by_samples import compare_on_samples
from pmflib.fitting.ranks.by_target import fit_target_ranks
from pmflib.fitting.ranks.choice import RankChoice
from pmflib.fitting.ranks.sample_fits import RankSamples
from pmflib.fitting.ranks.with_forests import ForestRank, choose_with_forests
from pmflib.fitting.starts import StoredCounts, load_counts
from pmflib.fitting.target_fit import TARGET_CELLS
from pmflib.schema import Schema
from pmflib.store.dataset import take_samples

N_FOLDS = 5
"""Folds that samples are assigned to where none are given to evaluate on; one is held out."""

LEAST_SAMPLES = 20
"""Samples below which none are held out."""

MOST_SAMPLES = 20_000
"""Training samples that ranks are compared on, spread over all of them; a quarter as many are held out."""

CROSSED_CELLS = 200_000
"""Cells, missing ones included, of samples that are few: one fold of them is too little to tell ranks apart by, and all
folds, each held out in its turn, take seconds."""

FIRST = 2
"""Rank from which ranks are doubled; independent variables, rank 1, are compared as well."""

BUDGET = 60.0
"""Seconds of processor time that the choice may take, by the model of costs."""


def choose_forest_rank(
    fit: EMFit, samples: StoredSamples | IntArray, validation: object | None
) -> ForestRank | None:
    """Choose the number of states with forests, on some of the samples; None where it cannot be.

    Parameters
    ----------
    fit
        The fit, of any rank.
    samples, validation
        As for `settle_rank`.
    """
    if isinstance(samples, StoredSamples):
        some = _take_some(samples, fit.schema, validation)
    elif validation is not None and not isinstance(validation, StoredSamples):
        some = samples, fit.schema.encode(validation)
    elif len(samples) >= LEAST_SAMPLES:
        is_held_out = assign_folds(np.arange(len(samples)), N_FOLDS) == 0
        some = samples[~is_held_out], samples[is_held_out]
    else:
        some = None
    if some is None:
        return None
    codes, held_out = _spread(some[0], MOST_SAMPLES), _spread(some[1], MOST_SAMPLES // 4)
    return choose_with_forests(fit.schema, codes, held_out, target=fit.target, seed=fit.seed)


def choose_rank_in_memory(
    codes: IntArray,
    schema: Schema,
    *,
    held_out: IntArray | None = None,
    members: int = 1,
    target: int | None = None,
    seed: int = 0,
    budget: float = BUDGET,
) -> RankChoice | None:
    """Double the rank from `FIRST` on, until held-out samples have not become more likely twice.

    Parameters
    ----------
    codes
        Codes of shape (n_rows, n_variables), -1 missing.
    schema
        Variables.
    held_out
        Codes to evaluate on; None holds a fifth of the samples out, by a hash of their position.
    members, target, budget
        As for `pmflib.fitting.ranks.by_samples.select_rank_by_samples`; the target is a position.
    seed
        Seed of the starts.

    Returns
    -------
    The choice; None where nothing can be chosen: of one variable, or fewer than `LEAST_SAMPLES` samples.
    """
    if len(codes) and schema.n_variables > 1:
        splits = split_samples(codes, held_out, schema, target)
    else:
        splits = []
    if not splits:
        return None
    return compare_on_samples(
        splits,
        first=FIRST,
        lower=[1],
        pseudo_counts=RANKS_BY_SAMPLES,
        members=members,
        seed=seed,
        budget=budget,
    )


def split_samples(
    codes: IntArray, held_out: IntArray | None, schema: Schema, target: int | None = None
) -> list[RankSamples]:
    """Split samples into those that are fitted and those that are held out, in turns where they are few.

    Parameters
    ----------
    codes
        Codes of shape (n_rows, n_variables), -1 missing.
    held_out
        Codes to evaluate on, which leave nothing to split; None holds folds out, by a hash of the position.
    schema
        Variables.
    target
        Position of the variable that models are evaluated by, for which one fold is held out.

    Returns
    -------
    The splits: `N_FOLDS` of them of `CROSSED_CELLS` cells or fewer, so that each sample is held out once; one of more,
    and where held-out samples are given; none where there is nothing to hold out.
    """
    if held_out is not None:
        pairs = [(codes, held_out)] if len(held_out) and len(codes) else []
    elif len(codes) < LEAST_SAMPLES:
        pairs = []
    else:
        folds = assign_folds(np.arange(len(codes)), N_FOLDS)
        n_splits = N_FOLDS if codes.size <= CROSSED_CELLS and target is None else 1
        pairs = [(codes[folds != fold], codes[folds == fold]) for fold in range(n_splits)]
    positions = np.arange(schema.n_variables)
    splits = []
    for each, rest in pairs:
        if not len(each) or not len(rest):
            continue
        some = _spread(each, MOST_SAMPLES)
        from_pairs = schema.n_levels**2 <= LARGEST_PAIRS * np.count_nonzero(some >= 0)
        is_asked = target is not None and bool((rest[:, target] >= 0).any())
        splits.append(
            RankSamples(
                schema,
                some,
                _spread(rest, MOST_SAMPLES // 4),
                count_pairs(some, schema, n_folds=1) if from_pairs else None,
                positions,
                estimate_code_singles(some, schema.offsets),
                target if is_asked else None,
            )
        )
    return splits


def _spread(codes: IntArray, most: int) -> IntArray:
    """As many rows as that, from all over: tables are often sorted."""
    if len(codes) <= most:
        return codes
    return codes[np.linspace(0, len(codes) - 1, most).astype(np.int64)]


def settle_rank(
    fit: EMFit,
    samples: StoredSamples | IntArray,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> SettledRank:
    """Choose the rank of a fit: by its target where there is the time for that, or else by all variables.

    Parameters
    ----------
    fit
        The fit with two states, whose options are those of any larger number.
    samples
        Training samples: stored, or codes of shape (n_rows, n_variables), -1 missing.
    validation
        Held-out samples; None is none.
    counts
        Co-occurrence counts of stored samples; None counts them where they are needed.
    """
    if fit.target is not None:
        of_least = replace(fit, rank=fit.schema[fit.target].cardinality)
        result = fit_ranks_for_target(of_least, samples, validation)
        if result is not None:
            bare = replace(result, comparisons=(), notes=())
            return SettledRank(result.model.rank, result.comparisons, result.notes, bare)
    return choose_fit_rank(fit, samples, validation, counts)


def fit_ranks_for_target(
    fit: EMFit, samples: StoredSamples | IntArray, validation: object | None
) -> FitResult | None:
    """Fit for a target with the rank that predicts it best; None where there is no time for it, or nothing held out."""
    codes: IntArray
    if isinstance(samples, StoredSamples):
        held_out = fit.open_held_out(validation)
        is_small = samples.n_rows * fit.schema.n_variables <= TARGET_CELLS
        if held_out is None or not is_small or not fit.is_for_target(samples.n_observed):
            return None
        codes = samples.read_codes()
    else:
        if not fit.is_for_target(int(np.count_nonzero(samples >= 0))):
            return None
        codes, held_out = samples, fit.open_held_out(validation)
    if isinstance(held_out, StoredSamples):
        held_out = held_out.load(fit.rank)
    assert held_out is None or isinstance(held_out, SamplesInMemory)
    return fit_target_ranks(fit, codes, held_out)


def choose_fit_rank(
    fit: EMFit,
    samples: StoredSamples | IntArray,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> SettledRank:
    """Choose the rank by held-out samples, or of stored samples by their pairs."""
    schema, target, seed = fit.schema, fit.target, fit.seed
    choose = partial(choose_rank_in_memory, members=fit.options.members, target=target, seed=seed)
    choice: RankChoice | None
    some = _take_some(samples, schema, validation) if target is not None else None
    if some is not None:
        choice = choose(some[0], schema, held_out=some[1])
    elif isinstance(samples, StoredSamples):
        counts = load_counts(samples, counts)
        if isinstance(counts, StoredCounts):
            stored = PairCounts.load(counts.path)
            counts = stored if counts.folds is None else stored.select_folds(counts.folds)
        choice = select_rank(counts, rng=seed)
    else:
        # by stored ones only passes are evaluated
        is_given = validation is not None and not isinstance(validation, StoredSamples)
        held_out = schema.encode(validation) if is_given else None
        choice = choose(samples, schema, held_out=held_out)
    if choice is None:
        few = "rank 1: too few samples or variables to choose another"
        return SettledRank(1, notes=(few,))
    return SettledRank(choice.rank, choice.comparisons, (choice.reason, *choice.notes))


def _take_some(
    samples: StoredSamples | IntArray, schema: Schema, validation: object | None
) -> tuple[IntArray, IntArray] | None:
    """As many stored samples as ranks are compared on, and held-out ones; None where there are none of either."""
    if not isinstance(samples, StoredSamples) or validation is None:
        return None
    if isinstance(validation, StoredSamples):
        held_out = take_samples(validation.blocks, schema, MOST_SAMPLES // 4)
    else:
        held_out = schema.encode(validation)
    if not len(held_out) or not samples.n_rows:
        return None
    return take_samples(samples.blocks, schema, MOST_SAMPLES), held_out
