"""How many latent states, for samples in memory: what `pmflib.fit_em` does where the rank is "auto"."""

from __future__ import annotations

import numpy as np

from pmflib.arrays import IntArray
from pmflib.counting.marginals import estimate_singles
from pmflib.counting.pair_counts import count_pairs
from pmflib.fitting.candidates import LARGEST_PAIRS
from pmflib.hashing import assign_folds
from pmflib.ranks.by_samples import compare_on_samples
from pmflib.ranks.choice import RankChoice
from pmflib.ranks.sample_fits import RankSamples
from pmflib.schema import Schema
from pmflib.selection.pseudo_count_grids import RANKS_BY_SAMPLES

N_FOLDS = 5
"""Folds that samples are dealt to where none are given to judge by; one is held out."""

LEAST_SAMPLES = 20
"""Samples below which none are held out."""

MOST_SAMPLES = 20_000
"""Training samples that ranks are compared on, spread over all of them; as many as a quarter of them judge."""

FIRST = 2
"""Rank from which ranks are doubled; independent variables, rank 1, are compared as well."""

BUDGET = 60.0
"""Seconds of processor time that the choice may take, by the model of costs."""


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
        Codes to judge by; None holds a fifth of the samples out, by a hash of their place.
    members, target, budget
        As for `pmflib.ranks.by_samples.select_rank_by_samples`; the target is a place.
    seed
        Seed of the starts.

    Returns
    -------
    The choice; None where nothing can be chosen: of one variable, or fewer than `LEAST_SAMPLES` samples.
    """
    if held_out is None and len(codes) >= LEAST_SAMPLES:
        is_held_out = assign_folds(np.arange(len(codes)), N_FOLDS) == 0
        codes, held_out = codes[~is_held_out], codes[is_held_out]
    if held_out is not None and target is not None and not (held_out[:, target] >= 0).any():
        target = None
    if held_out is None or not len(held_out) or not len(codes) or schema.n_variables < 2:
        return None
    codes = _spread(codes, MOST_SAMPLES)
    counts = count_pairs(codes, schema, n_folds=1)
    places = np.arange(schema.n_variables)
    judges = _spread(held_out, MOST_SAMPLES // 4)
    from_pairs = schema.n_levels**2 <= LARGEST_PAIRS * np.count_nonzero(codes >= 0)
    samples = RankSamples(
        schema,
        codes,
        judges,
        counts,
        places,
        estimate_singles(counts),
        target,
        "pairs" if from_pairs else "random",
    )
    return compare_on_samples(
        samples,
        first=FIRST,
        lower=[1],
        pseudo_counts=RANKS_BY_SAMPLES,
        members=members,
        seed=seed,
        budget=budget,
    )


def _spread(codes: IntArray, most: int) -> IntArray:
    """As many rows as that, from all over: tables are often sorted."""
    if len(codes) <= most:
        return codes
    return codes[np.linspace(0, len(codes) - 1, most).astype(np.int64)]
