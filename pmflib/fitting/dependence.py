"""Whether variables depend on each other within latent states: a fit with forests next to the one without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.pair_counts import PairCounts, count_pairs
from pmflib.fitting.em_fit import MIN_SAMPLES, N_FOLDS, EMFit
from pmflib.fitting.forest_search import ForestSearch, report_forests
from pmflib.fitting.from_pairs import FitResult
from pmflib.hashing import assign_folds
from pmflib.model import JointPMF
from pmflib.selection.comparison import Comparison
from pmflib.trees.residuals import find_residuals

DEPENDENCES = ("auto", "none", "tree")
"""Values of ``dependence`` of `pmflib.fit_em`."""

NAMED = 3
"""Pairs with a large residual that a note names."""


def fit_dependence(
    fit: EMFit,
    plain: FitResult,
    codes: IntArray,
    held_codes: IntArray | None,
    *,
    is_forced: bool,
    tries_ranks: bool = False,
) -> FitResult:
    """Fit latent classes with forests, where that is worth it, and take them where held-out samples say so.

    Parameters
    ----------
    fit
        The fit without forests.
    plain
        Its result.
    codes
        Samples, of shape (n_rows, n_variables), -1 missing.
    held_codes
        Held-out samples; None holds out a fold of the samples, and fits all of them at the end.
    is_forced
        Whether to fit forests whatever the pairs and the held-out samples say.
    tries_ranks
        Whether the rank was chosen without forests: then lower ones are compared. States may stand for what hangs
        together within fewer of them, so that small residuals of that rank do not end the search, but only leave it
        out.

    Returns
    -------
    The result without forests, with a note, or the one with forests.
    """
    n_large, note = describe_residuals(plain.model, count_pairs(codes, fit.schema, n_folds=1))
    if not is_forced:
        if not n_large and not tries_ranks:
            return keep_plain(plain, f"dependence none: {note}")
        if held_codes is None and len(codes) < MIN_SAMPLES:
            few = f"dependence none: {len(codes)} samples are too few to hold any out; {note}"
            return keep_plain(plain, few)
    training, judged = codes, plain.model
    if held_codes is None:
        training, held_codes = hold_out(codes)
        judge = fit.open_held_out(held_codes)
        assert judge is not None
        judged = fit.fit_codes(training, judge)[1].model
    search = ForestSearch(fit, training, held_codes, judged)
    runs, comparisons = search.run(list_ranks(fit.rank, n_large, is_forced, tries_ranks))
    models = [each.parameters for each in runs]
    choice = search.choose(models, is_forced)
    if choice.chosen.settings["dependence"] == "none":
        return keep_plain(plain, note, choice.reason, comparison=choice)
    if training is not codes:
        models = search.refit(runs, codes)
    found = (*comparisons, choice)
    notes = (note, *(each.reason for each in found))
    return report_forests(fit, runs, models, notes, found)


def describe_residuals(model: JointPMF, counts: PairCounts) -> tuple[int, str]:
    """Number of pairs whose bivariate residual is large, and a note on them."""
    residuals = find_residuals(model, counts)
    large = residuals.list_large()
    n_pairs = len(residuals.names) * (len(residuals.names) - 1) // 2
    note = f"bivariate residuals: {len(large)} of {n_pairs} pairs are large"
    if large:
        named = ", ".join(f"{first} and {second}" for first, second, _ in large[:NAMED])
        note += f", most of all {named}"
    return len(large), note


def list_ranks(rank: int, n_large: int, is_forced: bool, tries_ranks: bool) -> list[int]:
    """Ranks that forests are fitted with, rising: powers of two below the rank if those are tried, and the rank itself.

    The rank is left out where it leaves nothing to forests, and nobody asks for them.
    """
    below = [1 << power for power in range((rank - 1).bit_length())] if tries_ranks else []
    return below if below and not is_forced and not n_large else [*below, rank]


def hold_out(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Training samples, and a fold that is held out; of few samples, all of them are both."""
    if len(codes) < MIN_SAMPLES:
        return codes.copy(), codes
    is_held = assign_folds(np.arange(len(codes)), N_FOLDS) == 0
    return codes[~is_held], codes[is_held] if is_held.any() else codes


def keep_plain(plain: FitResult, *notes: str, comparison: Comparison | None = None) -> FitResult:
    """The result without forests, with notes on why it is kept."""
    more = () if comparison is None else (comparison,)
    return replace(plain, notes=(*plain.notes, *notes), comparisons=(*plain.comparisons, *more))
