"""Exact pairs of annotators, some of them hidden: what the factorisation alone can do."""

from __future__ import annotations

import numpy as np

from pmflib.crowd.moments import MomentMethod, fit_pairs
from pmflib.crowd.synthetic import Version, draw_published_crowd
from pmflib.solvers.annotators import Annotators
from pmflib.solvers.worker_pairs import WorkerPairs


def measure_noiseless(
    method: MomentMethod, hidden: float, version: Version, rng: np.random.Generator
) -> float:
    """Mean squared error of a method, by equation (19) of the paper.

    Parameters
    ----------
    method
        Of `fit_moments`.
    hidden
        Share of the pairs that are hidden.
    version
        Of `draw_published_crowd`.
    rng
        Draws the crowd, and what is hidden.
    """
    crowd = draw_published_crowd(1, rng, version=version)
    n, n_classes = crowd.confusion.shape[:2]
    first, second = np.triu_indices(n, 1)
    seen = rng.random(first.size) >= hidden
    first, second = first[seen], second[seen]
    blocks = (crowd.confusion[first] * crowd.prior) @ crowd.confusion[second].transpose(0, 2, 1)
    pairs = WorkerPairs(first, second, blocks, np.full(first.size, 1), n)

    def judge(found: Annotators) -> float:
        scaled = found.confusion * found.prior
        model = scaled[first] @ found.confusion[second].transpose(0, 2, 1)
        return float((blocks * np.log(model)).sum())

    found = fit_pairs(pairs, np.full(n, 1), method, judge=judge, rng=rng)
    assert found.prior.size == n_classes
    return crowd.measure(found.prior, found.confusion)
