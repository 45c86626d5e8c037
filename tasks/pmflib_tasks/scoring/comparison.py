"""Two models compared cell by cell: every observed cell is hidden once and predicted from the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.core.comparison import N_SUMS, PairedGain, estimate_gain_per_cell, merge_sums
from pmflib.core.errors import RefusedStoreError, StoreError, UnreachableStoreError
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.sampling import draw_cells
from pmflib.model.score_tables import digest_model
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import (
    BlockReference,
    group_blocks,
    read_blocks,
    scale_blocks,
)
from pmflib_tasks.scoring.evaluation import make_partition_seed

MAX_ROUNDS = 20
"""Rounds at most: to hide less than a twentieth at a time changes next to nothing, and every round costs a look at all
samples."""


def count_rounds(share: float) -> int:
    """Rounds in which all cells are hidden once, about this share of them at a time: two at least.

    Parameters
    ----------
    share
        In (0, 1).
    """
    return max(2, min(round(1 / share), MAX_ROUNDS))


def assign_rounds(codes: IntArray, rows: IntArray, n_rounds: int, seed: int) -> IntArray:
    """Assign observed cells to rounds by a hash of their position: the same in every run, however rows are cut.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rows
        int64 of shape (n_rows,): numbers of the rows, distinct.
    n_rounds
        Number of rounds, at least 1.
    seed
        Integer in [0, 2**64).

    Returns
    -------
    int64 of shape (n_rows, n_variables), in [0, n_rounds); -1 where nothing is observed.
    """
    # with 32 bits the product stays in uint64
    drawn = draw_cells(codes.shape, rows, seed) >> np.uint64(32)
    rounds = (drawn * np.uint64(n_rounds)) >> np.uint64(32)
    return np.where(codes >= 0, rounds.astype(np.int64), -1)


def compare_hidden(
    codes: IntArray,
    rounds: IntArray,
    n_rounds: int,
    better: JointPMF,
    worse: JointPMF,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Predict the cells of each round from those of the others, by two models, and add up by how much the first gains.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rounds
        int64 of the same shape: round in which a cell is hidden, as `assign_rounds` gives it; cells of rounds from
        ``n_rounds`` on are never hidden.
    n_rounds
        Number of rounds to go through.
    better, worse
        Models of one schema; the gain is that of the first.
    weights
        float64 of shape (n_rows,): number of samples that each row counts for; None is one each.

    Returns
    -------
    float64 of shape (N_SUMS,), additive over samples: number of samples with hidden cells; sums over them of the cells
    m, of the gain g (log-probability of the true answers under the first model less that under the second, nats), of
    m^2, of g m and of g^2.
    """
    gains, n_cells = np.zeros(len(codes)), np.zeros(len(codes))
    for index in range(n_rounds):
        hidden = rounds == index
        samples, variables = np.nonzero(hidden)
        if not samples.size:
            continue
        shown = np.where(hidden, -1, codes).astype(codes.dtype)
        cells = samples, variables, codes[samples, variables].astype(np.int64)
        gain = _score_cells(better, shown, *cells)
        gain -= _score_cells(worse, shown, *cells)
        gains += np.bincount(samples, gain, len(codes))
        n_cells += np.bincount(samples, minlength=len(codes))
    parts = (n_cells > 0, n_cells, gains, n_cells**2, gains * n_cells, gains**2)
    if weights is None:
        return np.array([part.sum() for part in parts], float)
    return np.array([weights @ part for part in parts], float)


def _score_cells(
    model: JointPMF, shown: IntArray, samples: IntArray, variables: IntArray, truths: IntArray
) -> FloatArray:
    """Log-probability of the true codes of some cells, from what is shown of their samples."""
    chances = model.predict_codes(shown, samples, variables, truths)
    return np.log(np.maximum(chances, FLOOR))


ENOUGH_CELLS = 1_000_000
"""Hidden cells beyond which no further round is made: the standard error is then some ten-thousandths of a nat."""


def compare_stored(
    client: Client,
    blocks: Sequence[BlockReference],
    better: JointPMF,
    worse: JointPMF,
    share: float,
    seed: int,
    target: int | None = None,
) -> PairedGain:
    """Hide the observed cells of stored samples in rounds, and predict them from the others by two models.

    Every cell is hidden once; of so many that fewer rounds give ``ENOUGH_CELLS``, those of the first rounds are.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the result is the same bits.
    blocks
        Test samples, in the order of the dataset; there may be none. Weights are scaled to add up to Kish's effective
        number of them, which the standard error is of.
    better, worse
        Models of the schema of the samples; the gain is that of the first.
    share
        Share of the observed cells to hide at a time, in (0, 1).
    seed
        Integer in [0, 2**64): which cells are hidden together.
    target
        Place of the only variable that is hidden, in all samples at once; None hides all in turn.

    Returns
    -------
    The gain.
    """
    sums = np.zeros(N_SUMS)
    if groups := group_blocks(scale_blocks(blocks)):
        n_rounds = count_rounds(share)
        n_observed = sum(block.n_observed for block in blocks)
        n_scored = min(n_rounds, math.ceil(ENOUGH_CELLS * n_rounds / max(n_observed, 1)))
        shared = better, worse, n_rounds, n_scored, seed, target
        sums = run_blocks(client, compare_group, groups, merge_sums, *shared)
    gain, error = estimate_gain_per_cell(sums)
    return PairedGain(gain, error, round(sums[1]), round(sums[0]))


def compare_group(
    group: Sequence[BlockReference],
    better: JointPMF,
    worse: JointPMF,
    n_rounds: int,
    n_scored: int,
    seed: int,
    target: int | None = None,
) -> FloatArray:
    """Sums of a group, as `compare_hidden` gives them for a block."""
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(better.schema.offsets)
        if target is None:
            rounds = assign_rounds(
                codes, reference.rows, n_rounds, make_partition_seed(reference, seed)
            )
        else:
            rounds = np.full(codes.shape, -1)
            rounds[codes[:, target] >= 0, target] = 0
        parts.append(compare_hidden(codes, rounds, n_scored, better, worse, block.weights))
    return merge_sums(parts)


def have_same_parameters(store: Store, new: Reference, live: Reference) -> bool:
    """Whether two models answer alike: passes from the live model have then found none that is better.

    Parameters
    ----------
    store
        Store that holds the new model.
    new, live
        The models; the live one may be gone.
    """
    if new.digest == live.digest:
        return True
    try:
        old = JointPMF.load(store.locate(live) / "model")
    except (RefusedStoreError, UnreachableStoreError):
        # nothing is known of the live model, and nothing may take its place for that
        raise
    except StoreError:
        return False
    made = JointPMF.load(store.locate(new) / "model")
    return digest_model(made) == digest_model(old)


def find_obstacle(store: Store, new: Reference, live: Reference) -> str:
    """Why two models cannot be compared on held-out samples, as a clause; "" if they can.

    Parameters
    ----------
    store
        Store that holds the models.
    new, live
        The models.
    """
    entry = store.find(live.identity)
    if entry is None:
        return "the live model is not in the store any more"
    try:
        schema = JointPMF.load(store.locate(live) / "model").schema
    except (RefusedStoreError, UnreachableStoreError):
        raise
    except StoreError as error:
        return f"the live model cannot be read ({error})"
    if schema.digest != JointPMF.load(store.locate(new) / "model").schema.digest:
        return "the schema has changed"
    made = store.find(new.identity)
    # where other folds are held out, one model has been fitted to what the other is evaluated on
    if made is None or made.options.get("train") != entry.options.get("train"):
        return "other folds are held out than when the live model was made"
    return ""


ModelKind = Literal["traits", "classes"]
"""What a model is made of."""

NAMES = {"traits": "continuous traits", "classes": "latent classes"}
"""Words for the kinds of models."""


@dataclass(frozen=True)
class ModelChoice:
    """Which of two models is taken, and why.

    Parameters
    ----------
    chosen
        Its kind.
    reason
        One sentence for a person.
    gain
        How much more probable hidden answers are by traits than by latent classes; None where nothing was compared.
    """

    chosen: ModelKind
    reason: str
    gain: PairedGain | None = None

    def to_json(self) -> dict[str, object]:
        """Plain JSON types, for the origin of the model and the summary of its fit."""
        numbers = {} if self.gain is None else self.gain.to_json()
        return {"chosen": self.chosen, "reason": self.reason, **numbers}


def choose_model(gain: PairedGain) -> ModelChoice:
    """Take traits if they make hidden answers more probable by more than one standard error, else latent classes.

    Parameters
    ----------
    gain
        That of traits over latent classes, on samples that neither was fitted to.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, section 3.4.3, for the rule of one
    standard error.
    """
    if gain.samples < 2:
        few = "latent classes: fewer than two validation samples have an answer to compare by"
        return ModelChoice("classes", few, gain)
    chosen: ModelKind = "traits" if gain.gain > gain.standard_error else "classes"
    by = "more" if gain.gain >= 0 else "less"
    reason = (
        f"{NAMES[chosen]}: traits make hidden answers of the validation samples {abs(gain.gain):.4f} +- "
        f"{gain.standard_error:.4f} nats {by} probable than latent classes do ({gain.cells:,} answers)"
    )
    if chosen == "classes" and gain.gain > 0:
        reason += ", which is not above one standard error"
    return ModelChoice(chosen, reason, gain)
