"""The rank of a fit by EM, where it is left open: by its target, by held-out samples, or by pairs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.em.in_memory import SamplesInMemory
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.em_fit import EMFit
from pmflib.fitting.from_pairs import FitResult
from pmflib.fitting.starts import StoredCounts
from pmflib.fitting.target_fit import TARGET_CELLS
from pmflib.fitting.target_ranks import fit_target_ranks
from pmflib.schema import Schema
from pmflib.selection.comparison import Comparison
from pmflib.store.taken_samples import take_samples

if TYPE_CHECKING:
    from pmflib.ranks.choice import RankChoice


class SettledRank(NamedTuple):
    """The rank of a fit, what was compared to choose it, and the result where the choice has made the fit already."""

    rank: int
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()
    result: FitResult | None = None

    def explain(self, result: FitResult) -> FitResult:
        """Put how the rank was chosen before what is said of a fit of that rank."""
        return replace(
            result,
            comparisons=(*self.comparisons, *result.comparisons),
            notes=(*self.notes, *result.notes),
        )


def load_counts(
    samples: StoredSamples, counts: PairCounts | StoredCounts | None
) -> PairCounts | StoredCounts:
    """Co-occurrence counts of all folds: those given, or counted."""
    return samples.count_pairs() if counts is None else counts


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
    return choose_rank(fit, samples, validation, counts)


def fit_ranks_for_target(
    fit: EMFit, samples: StoredSamples | IntArray, validation: object | None
) -> FitResult | None:
    """Fit for a target with the rank that predicts it best; None where there is no time for that, or nothing judges."""
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


def choose_rank(
    fit: EMFit,
    samples: StoredSamples | IntArray,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> SettledRank:
    """Choose the rank by held-out samples, or of stored samples by their pairs."""
    # ranks are chosen by fits
    from pmflib.ranks.by_pairs import select_rank
    from pmflib.ranks.in_memory_choice import choose_rank_in_memory

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
        # by stored ones only passes are judged
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
    """As many stored samples as ranks are compared on, and others to judge by; None where there are none of either."""
    from pmflib.ranks.in_memory_choice import MOST_SAMPLES

    if not isinstance(samples, StoredSamples) or validation is None:
        return None
    if isinstance(validation, StoredSamples):
        held_out = take_samples(validation.blocks, schema, MOST_SAMPLES // 4)
    else:
        held_out = schema.encode(validation)
    if not len(held_out) or not samples.n_rows:
        return None
    return take_samples(samples.blocks, schema, MOST_SAMPLES), held_out
