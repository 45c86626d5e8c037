"""Averages of several fits, for all ranks, pseudo-counts and numbers of passes: what a benchmark chooses from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import pmflib as pmf

MEMBERS = 10


def fit_averages(
    codes: np.ndarray,
    schema: pmf.Schema,
    ranks: Sequence[int],
    pseudo_counts: Sequence[float],
    passes: Sequence[int],
) -> Iterator[pmf.JointPMF]:
    """Averages of `MEMBERS` fits from random starts.

    `pmflib.fit_em` averages too, and stops at the pass that is best for the joint log-likelihood of held-out samples;
    here the number of passes is left to what the benchmark asks of a model.
    """
    counts = pmf.count_pairs(codes, schema, n_folds=1)
    for rank in ranks:
        n_members = MEMBERS if rank > 1 else 1
        starts = [
            pmf.fit(counts, rank, method="random", rng=seed).model for seed in range(n_members)
        ]
        for pseudo_count in pseudo_counts:
            members, done = starts, 0
            for n_passes in passes if rank > 1 else (1,):
                members = [
                    pmf.fit_em(
                        codes, each, pseudo_count=pseudo_count, max_passes=n_passes - done, tol=0
                    ).model
                    for each in members
                ]
                done = n_passes
                yield mix(members)


def mix(models: Sequence[pmf.JointPMF]) -> pmf.JointPMF:
    """The mean of joint PMFs: one of all their states."""
    prior = np.concatenate([model.prior for model in models]) / len(models)
    return pmf.JointPMF(prior, np.hstack([each.factors for each in models]), models[0].schema)
