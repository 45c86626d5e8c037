"""Annotators from the co-occurrences of their answers: no pass over the items but those that choose and label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.blocks import SparseBlock
from pmflib.counting.worker_pair_counts import count_worker_pairs
from pmflib.solvers.crowd.annotator_model import Annotators, Rule
from pmflib.solvers.crowd.class_matching import Order, fit_multispa, raise_floor, read_confusion
from pmflib.solvers.crowd.pair_imputation import factor_pairs, impute_by_one_pair, impute_designated
from pmflib.solvers.crowd.rotation_draws import draw_turns, measure_noise
from pmflib.solvers.crowd.worker_marginals import WorkerPairs
from pmflib.solvers.numeric.rotation import (
    PUBLISHED,
    draw_rotations,
    root_of,
    rotate_nonnegative,
)
from pmflib.solvers.pairs.composite import fit_composite

MomentMethod: TypeAlias = Literal[
    "robust", "equal_weights", "designated", "one_pair", "symnmf", "multispa", "cnmf"
]

ROTATIONS = 10
"""Orthogonal starts of the symmetric factorisation."""
TURNS = 500
"""Limit of the steps from each."""
SAME = 1e-3
"""End points whose confusion matrices differ by less are one."""
DRAWS = 40
"""Turns of the best end point that are judged and averaged."""
MARGIN = 1.0
"""Nats by which an end point must be likelier than the average of turns to be preferred."""
HOPE = 0.5
"""Weight of the identity in a confusion matrix that nothing is known of."""
SWEEPS = 200
"""Limit of iterations of the coupled factorisation."""

Judge: TypeAlias = Callable[[Annotators], float]
"""Log-likelihood of all answers under annotators."""


def fit_moments(
    block: SparseBlock,
    n_annotators: int,
    n_classes: int,
    method: MomentMethod,
    *,
    judge: Judge,
    rng: np.random.Generator,
    order: Order = "joint",
) -> Annotators:
    """Estimate confusion matrices and the class prior from pairs of annotators.

    Parameters
    ----------
    block
        Items as rows, answers as levels ``annotator * n_classes + class``.
    n_annotators, n_classes
        Sizes.
    method
        Symmetric factorisation of the pairs' matrix, missing pairs by a factorisation robust to bad ones ("robust"), by
        least squares ("equal_weights"), by all designated annotators ("designated"), by one pair of them ("one_pair"),
        or left zero ("symnmf"); each annotator's own extreme columns ("multispa"); or the coupled factorisation in KL
        divergence, started there ("cnmf").
    judge
        Chooses among the end points of the symmetric factorisation: the distance from a nonnegative matrix does not,
        for the least of it may belong to annotators that nobody's answers look like. It weighs turns of the one chosen,
        too: see Notes.
    rng
        Source of starts.
    order
        How columns are matched with classes: see `read_confusion`.

    Raises
    ------
    MemoryPlanError
        If the method needs all pairs in one matrix, and there are too many.

    Notes
    -----
    Pairs leave a symmetric factorisation some freedom: all turns of it that stay nonnegative, but for the noise, fit
    them as well, and an end point is but the corner where a search has stopped. The least expected error is that of the
    mean over the posterior. Turns near the best end point are drawn from that which pairs leave, and averaged with the
    likelihood of all answers, the judge's, as weights; where the answers tell turns apart, the likeliest remain.
    """
    counts = count_worker_pairs(block, n_annotators, n_classes)
    return fit_pairs(
        counts.normalise(), counts.n_answers, method, judge=judge, rng=rng, order=order
    )


def fit_pairs(
    pairs: WorkerPairs,
    n_answers: IntArray,
    method: MomentMethod,
    *,
    judge: Judge,
    rng: np.random.Generator,
    order: Order = "joint",
) -> Annotators:
    """Do what `fit_moments` does after the pairs are counted.

    Parameters
    ----------
    pairs
        Pairwise marginals.
    n_answers
        int64 of shape (n_annotators,).
    method, judge, rng, order
        As for `fit_moments`.

    Returns
    -------
    The annotators; without any pair nothing is known of them.
    """
    n_classes = pairs.n_classes
    if not pairs.first.size:
        even = np.full((pairs.n_annotators, n_classes, n_classes), 1.0 / n_classes)
        return _hold(np.ones(n_classes), even)
    if method == "multispa":
        return _hold(np.ones(n_classes), fit_multispa(pairs))
    if method == "cnmf":
        return _fit_coupled(pairs)
    root = _find_root(pairs, method, rng)

    def read(nonnegative: FloatArray) -> Annotators:
        confusion, prior = read_confusion(nonnegative, n_answers, order=order)
        return _hold(prior, confusion)

    found: list[tuple[float, FloatArray, Annotators]] = []
    for rotation in draw_rotations(n_classes, ROTATIONS, rng):
        nonnegative, _ = rotate_nonnegative(
            root, rotations=[rotation], settings=PUBLISHED, max_iter=TURNS
        )
        annotators = read(nonnegative)
        if all(np.abs(annotators.mass - other.mass).max() > SAME for *_, other in found):
            found.append((judge(annotators), nonnegative, annotators))
    height, corner, best = max(found, key=lambda each: each[0])
    turned = draw_turns(root, measure_noise(root, pairs), corner, DRAWS, rng)
    heights = np.array([judge(read(each)) for each in turned])
    weights = np.exp(heights - heights.max())
    average = read(np.tensordot(weights / weights.sum(), turned, 1))
    return best if height > judge(average) + MARGIN else average


def _find_root(pairs: WorkerPairs, method: str, rng: np.random.Generator) -> FloatArray:
    """Square root of the matrix of all pairs, (n_levels, n_classes)."""
    n_classes = pairs.n_classes
    if method in ("robust", "equal_weights"):
        return factor_pairs(pairs, rng=rng, reweighted=method == "robust")[0]
    if method == "symnmf":
        return root_of(pairs.to_sparse(), n_classes)
    marginals, support, observed = pairs.to_dense()
    if method == "one_pair":
        filled, _ = impute_by_one_pair(marginals, observed, n_classes=n_classes, rng=rng)
    else:
        filled, _ = impute_designated(marginals, support, observed, n_classes=n_classes)
    return root_of(filled, n_classes)


def _fit_coupled(pairs: WorkerPairs) -> Annotators:
    n_classes = pairs.n_classes
    marginals, support, observed = pairs.to_dense()
    begun = fit_multispa(pairs)
    # uniform matrices would stay where they are: take annotators of whom nothing is known to be better than chance
    unknown = (begun == begun[:, :1, :1]).all(axis=(1, 2))
    begun[unknown] = HOPE * np.eye(n_classes) + (1 - HOPE) / n_classes
    result = fit_composite(
        marginals,
        pairs.offsets,
        observed,
        initial=(np.full(n_classes, 1.0 / n_classes), begun.reshape(-1, n_classes)),
        weights=support,
        max_iter=SWEEPS,
    )
    return _hold(result.prior, raise_floor(result.factors.reshape(-1, n_classes, n_classes)))


def _hold(prior: FloatArray, confusion: FloatArray) -> Annotators:
    return Annotators(prior, confusion, 0.0, Rule(strength=0.0, variational=False, votes=False))
