"""Fitted rungs, and the stack that they are with their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.blocks import weigh_rows
from pmflib.base.comparison import PairedDifference, estimate_gain
from pmflib.em.block_source import ScoreUnder, iterate_distinct
from pmflib.em.blocks import score_rows
from pmflib.fits.stack.ladder import Rung, mix_models
from pmflib.fits.stack.weights import learn_weights, mix_scores
from pmflib.fits.target_pool import TargetPool
from pmflib.model import JointPMF
from pmflib.model.origin import ModelOrigin
from pmflib.model.rungs import RungFit
from pmflib.schema import Schema
from pmflib.store.sample_blocks import BlockGroup

LEAST_WEIGHT = 0.01
"""Weight below which a rung is dropped."""
PRIOR_ROWS = 0.1
"""Pseudo-samples of all weights, distributed inversely to the roots of the numbers of states: they decide between
models that held-out samples cannot distinguish. More would keep weight for small models that are worse.
"""


class FittedRung(NamedTuple):
    """A rung fitted to all splits.

    Parameters
    ----------
    rung
        The rung.
    passes
        Number of passes of each of its runs.
    parameters
        Joined parameters for each split.
    scores
        float64 of shape (n_samples, 1 or 2): log-probability of each held-out sample of all splits under the fit
        without it, nats; with a target, that of its other variables as well.
    """

    rung: Rung
    passes: tuple[int, ...]
    parameters: tuple[Any, ...]
    scores: FloatArray


@dataclass(frozen=True, eq=False)
class Stack:
    """Rungs with their weights.

    Parameters
    ----------
    rungs
        Fitted rungs, at least one.
    weights
        float64 of shape (n_rungs,), which sum to 1.
    counts
        float64 of shape (n_samples,): number of samples that each held-out row counts for.
    pools
        Whether PMFs of the target given the other variables are averaged, instead of the joint PMFs.
    """

    rungs: tuple[FittedRung, ...]
    weights: FloatArray
    counts: FloatArray
    pools: bool = False

    @classmethod
    def weigh(
        cls, rungs: Sequence[FittedRung], counts: FloatArray, *, pools: bool = False
    ) -> Stack:
        """Learn the weights of rungs; those with less than ``LEAST_WEIGHT`` are dropped."""
        while True:
            scores = np.stack([each.scores for each in rungs], axis=1)
            sizes = np.array([each.rung.n_states**-0.5 for each in rungs])
            prior = PRIOR_ROWS * sizes / sizes.sum()
            if pools:
                weights = learn_weights(scores[:, :, 0] - scores[:, :, 1], counts, prior)
            else:
                hidden = scores[:, :, 1] if scores.shape[2] > 1 else None
                weights = learn_weights(scores[:, :, 0], counts, prior, hidden)
            kept = weights >= LEAST_WEIGHT
            if kept.all():
                return cls(tuple(rungs), weights, counts, pools)
            rungs = [each for each, is_kept in zip(rungs, kept, strict=True) if is_kept]

    @property
    def scores(self) -> FloatArray:
        """Log-likelihood of each held-out sample, nats: float64 of shape (n_samples,)."""
        found = np.stack([each.scores for each in self.rungs], axis=1)
        if self.pools:
            return mix_scores(found[:, :, 0] - found[:, :, 1], self.weights)
        mixed = mix_scores(found[:, :, 0], self.weights)
        return mixed - mix_scores(found[:, :, 1], self.weights) if found.shape[2] > 1 else mixed

    def average(self, scores: FloatArray) -> float:
        """Return the mean over held-out samples."""
        return float(self.counts @ scores / max(self.counts.sum(), 1e-300))

    def subtract(self, other: Stack) -> PairedDifference:
        """Return the gain over another stack per held-out sample, nats, and its standard error."""
        gains = self.scores - other.scores
        sums = self.counts.sum(), self.counts @ gains, self.counts @ gains**2
        return estimate_gain(np.array(sums))

    def pool(
        self, parameters: Mapping[Rung, Any], schema: Schema, origin: ModelOrigin, target: int
    ) -> TargetPool:
        """Make a predictor of a target of the parameters of the rungs."""
        models = [each.rung.make(parameters[each.rung], schema, origin) for each in self.rungs]
        return TargetPool(tuple(models), self.list_rungs(), target)

    def mix(self, parameters: Mapping[Rung, Any], schema: Schema, origin: ModelOrigin) -> JointPMF:
        """Make one model of the parameters of the rungs."""
        models = [each.rung.make(parameters[each.rung], schema, origin) for each in self.rungs]
        return mix_models(models, self.weights, schema, origin)

    def list_rungs(self) -> tuple[RungFit, ...]:
        """Return what a result says of the rungs."""
        return tuple(
            RungFit(
                each.rung.name,
                each.rung.kind,
                each.rung.rank,
                each.rung.members,
                max(each.passes),
                self.average(each.scores[:, 0] - each.scores[:, 1:].sum(axis=1)),
                float(weight),
                each.rung.number,
            )
            for each, weight in zip(self.rungs, self.weights, strict=True)
        )


def collect_scores(
    group: BlockGroup,
    offsets: IntArray,
    models: Sequence[tuple[ScoreUnder[Any], Any]],
    target: int | None,
) -> FloatArray:
    """Score the distinct rows of a group under several models.

    Returns
    -------
    float64 of shape (n_rows, 1 + n_models, 1 or 2): the number of samples of each row, then its log-probability under
    each model, nats; with a target, that of its other variables as well.
    """
    scorers = [[score_under(parameters, offsets)] for score_under, parameters in models]
    parts = [np.zeros((0, 1 + len(models), 1 if target is None else 2))]
    for block in iterate_distinct(group):
        found = np.empty((block.n_rows, *parts[0].shape[1:]))
        found[:, 0] = weigh_rows(block)[:, None]
        for k, scorer in enumerate(scorers):
            found[:, 1 + k, 0] = score_rows(block, offsets, scorer)
            if target is not None:
                found[:, 1 + k, 1] = score_rows(block.hide(target, offsets), offsets, scorer)
        parts.append(found)
    return np.concatenate(parts)
