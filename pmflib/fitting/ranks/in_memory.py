"""How many latent states, for samples in memory: by a target, by held-out samples, or by pairs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pmflib.core.blocks import DenseBlock
from pmflib.core.defaults import RANKS_BY_SAMPLES
from pmflib.counting.pair_counts import PairCounts
from pmflib.em.block_source import BlocksInMemory
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.em_fit import EMFit
from pmflib.fitting.fit_result import FitResult, SettledRank
from pmflib.fitting.ranks.by_pairs import select_rank
from pmflib.fitting.ranks.by_samples import compare_on_samples
from pmflib.fitting.ranks.by_target import fit_target_ranks
from pmflib.fitting.ranks.choice import RankChoice
from pmflib.fitting.ranks.kinds import KindChoice, choose_kind
from pmflib.fitting.ranks.sample_fits import MOST_HELD_OUT, MOST_SAMPLES, split_samples
from pmflib.fitting.starts import StoredCounts, load_counts
from pmflib.fitting.target_fit import TARGET_CELLS
from pmflib.schema import Schema
from pmflib.store.dataset import take_block

FIRST = 2
"""Rank from which ranks are doubled; independent variables, rank 1, are compared as well."""

BUDGET = 60.0
"""Seconds of processor time that the choice may take, by the model of costs."""


def choose_fit_kind(
    fit: EMFit,
    samples: StoredSamples | DenseBlock,
    validation: object | None,
    *,
    is_forced: bool,
    with_traits: bool,
) -> KindChoice | None:
    """Choose between latent classes, states with forests and traits, on some of the samples; None where it cannot be.

    Parameters
    ----------
    fit
        The fit, of any rank.
    samples, validation
        As for `settle_rank`.
    is_forced
        Whether forests are taken whatever the samples say.
    with_traits
        Whether traits are tried.
    """
    schema, target = fit.schema, fit.target
    if isinstance(samples, StoredSamples):
        some = _take_some(samples, schema, validation)
        splits = [] if some is None else split_samples(*some, schema, target, pools=True)
    else:
        # by stored ones only passes are evaluated
        is_given = validation is not None and not isinstance(validation, StoredSamples)
        held_out = DenseBlock(schema.encode(validation)) if is_given else None
        splits = split_samples(samples, held_out, schema, target)
    return choose_kind(
        splits,
        is_forced=is_forced,
        with_traits=with_traits,
        members=fit.options.members,
        seed=fit.seed,
        budget=BUDGET,
    )


def choose_rank_in_memory(
    block: DenseBlock,
    schema: Schema,
    *,
    held_out: DenseBlock | None = None,
    members: int = 1,
    target: int | None = None,
    seed: int = 0,
    budget: float = BUDGET,
) -> RankChoice | None:
    """Double the rank from `FIRST` on, until held-out samples have not become more likely twice.

    Parameters
    ----------
    block
        Samples.
    schema
        Variables.
    held_out
        Samples to evaluate on; None holds a fifth of the samples out, by a hash of their position.
    members, target, budget
        As for `pmflib.fitting.ranks.by_samples.select_rank_by_samples`; the target is a position.
    seed
        Seed of the starts.

    Returns
    -------
    The choice; None where nothing can be chosen: of one variable, or fewer than `LEAST_SAMPLES` samples.
    """
    splits = split_samples(block, held_out, schema, target)
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


def settle_rank(
    fit: EMFit,
    samples: StoredSamples | DenseBlock,
    validation: object | None,
    counts: PairCounts | StoredCounts | None,
) -> SettledRank:
    """Choose the rank of a fit: by its target where there is the time for that, or else by all variables.

    Parameters
    ----------
    fit
        The fit with two states, whose options are those of any larger number.
    samples
        Training samples, stored or in memory.
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
    fit: EMFit, samples: StoredSamples | DenseBlock, validation: object | None
) -> FitResult | None:
    """Fit for a target with the rank that predicts it best; None where there is no time for it, or nothing held out."""
    if isinstance(samples, StoredSamples):
        held_out = fit.open_held_out(validation)
        is_small = samples.n_rows * fit.schema.n_variables <= TARGET_CELLS
        if held_out is None or not is_small or not fit.is_for_target(samples.n_observed):
            return None
        block = samples.read_block()
    else:
        if not fit.is_for_target(samples.n_observed):
            return None
        block, held_out = samples, fit.open_held_out(validation)
    if isinstance(held_out, StoredSamples):
        held_out = held_out.load(fit.rank)
    assert held_out is None or isinstance(held_out, BlocksInMemory)
    return fit_target_ranks(fit, block, held_out)


def choose_fit_rank(
    fit: EMFit,
    samples: StoredSamples | DenseBlock,
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
        held_out = DenseBlock(schema.encode(validation)) if is_given else None
        choice = choose(samples, schema, held_out=held_out)
    if choice is None:
        few = "rank 1: too few samples or variables to choose another"
        return SettledRank(1, notes=(few,))
    return SettledRank(choice.rank, choice.comparisons, (choice.reason, *choice.notes))


def _take_some(
    samples: StoredSamples | DenseBlock, schema: Schema, validation: object | None
) -> tuple[DenseBlock, DenseBlock] | None:
    """As many stored samples as ranks are compared on, and held-out ones; None where there are none of either."""
    if not isinstance(samples, StoredSamples) or validation is None:
        return None
    if isinstance(validation, StoredSamples):
        held_out = take_block(validation.blocks, schema, MOST_HELD_OUT)
    else:
        held_out = DenseBlock(schema.encode(validation))
    if not len(held_out) or not samples.n_rows:
        return None
    return take_block(samples.blocks, schema, MOST_SAMPLES), held_out
