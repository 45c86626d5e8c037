"""Comparison of two models by cells: each observed cell is hidden once and predicted from the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.comparison import N_SUMS, PairedGain, estimate_gain_per_cell, merge_sums
from pmflib.base.errors import RefusedStoreError, StoreError, UnreachableStoreError
from pmflib.base.json_records import Form, JsonRecord
from pmflib.cluster.clients import Client
from pmflib.cluster.maps import run_blocks
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.sampling import draw_cells
from pmflib.model.table_makers import digest_model
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import (
    BlockReference,
    group_blocks,
    read_blocks,
    scale_blocks,
)
from pmflib_tasks.features import list_offers
from pmflib_tasks.stages.evaluation import make_partition_seed

MAX_ROUNDS = 20
"""Maximum number of rounds: hiding less than a twentieth at a time changes little, and a round reads all samples."""


def count_rounds(share: float) -> int:
    """Compute the number of rounds, at least two, that hide all cells once, about this share at a time.

    Parameters
    ----------
    share
        In (0, 1).
    """
    return max(2, min(round(1 / share), MAX_ROUNDS))


def assign_rounds(codes: IntArray, rows: IntArray, n_rounds: int, seed: int) -> IntArray:
    """Assign observed cells to rounds by a hash of their position, the same for any partition into blocks.

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
    int64 of shape (n_rows, n_variables), in [0, n_rounds); -1 for missing cells.
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
    """Predict the cells of each round from the others with two models, and sum the gains of the first.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    rounds
        int64 of the same shape: round in which a cell is hidden, from `assign_rounds`; cells of rounds from
        ``n_rounds`` on are never hidden.
    n_rounds
        Number of rounds to evaluate.
    better, worse
        Models with the same schema; the gain is that of the first.
    weights
        float64 of shape (n_rows,): number of samples that each row represents; None is 1 each.

    Returns
    -------
    float64 of shape (N_SUMS,), additive over samples: number of samples with hidden cells, and sums over them of the
    number of cells m, the gain g (log-probability of the true answers under the first model minus that under the
    second, nats), m^2, g m and g^2.
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
    """Compute the log-probability of the true codes of cells, given the shown cells of their samples."""
    chances = model.predict_codes(shown, samples, variables, truths)
    return np.log(np.maximum(chances, FLOOR))


ENOUGH_CELLS = 1_000_000
"""Number of hidden cells after which no further round is evaluated: the standard error is then about 1e-4 nats."""


def compare_stored(
    client: Client,
    blocks: Sequence[BlockReference],
    better: JointPMF,
    worse: JointPMF,
    share: float,
    seed: int,
    target: int | None = None,
) -> PairedGain:
    """Hide the observed cells of stored samples in rounds, and predict them from the others with two models.

    Each cell is hidden once; if fewer rounds have ``ENOUGH_CELLS``, only the cells of the first rounds are.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the result has the same bits.
    blocks
        Test samples, in the order of the dataset; may be empty. Weights are scaled to sum to Kish's effective number of
        samples, on which the standard error is based.
    better, worse
        Models with the schema of the samples; the gain is that of the first.
    share
        Share of the observed cells to hide at a time, in (0, 1).
    seed
        Integer in [0, 2**64) that determines which cells are hidden together.
    target
        Position of the only variable to hide, in all samples at once; None hides all variables in rounds.

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
    """Sum the results of `compare_hidden` over the blocks of a group."""
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
    """Whether two models have the same parameters, because passes from the live model found no better ones.

    Parameters
    ----------
    store
        Store with the new model.
    new, live
        The models; the live one may be gone.
    """
    if new.digest == live.digest:
        return True
    try:
        old = JointPMF.load(store.locate(live) / "model")
    except (RefusedStoreError, UnreachableStoreError):
        # the live model is unknown, and must not be replaced for that reason
        raise
    except StoreError:
        return False
    made = JointPMF.load(store.locate(new) / "model")
    return digest_model(made) == digest_model(old)


def find_obstacle(store: Store, new: Reference, live: Reference) -> str:
    """Explain in a clause why two models cannot be compared on held-out samples; empty if they can.

    Parameters
    ----------
    store
        Store with the models.
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
    # with different held-out folds, one model would be evaluated on training data of the other
    if made is None or made.options.get("train") != entry.options.get("train"):
        return "other folds are held out than when the live model was made"
    return compare_datasets(store, made.inputs["dataset"], entry.inputs["dataset"])


def compare_datasets(store: Store, one: Reference, other: Reference) -> str:
    """Explain in a clause why models of two datasets cannot be compared; empty if they can."""
    compared = (compare(store, one, other) for compare in list_offers("compare_datasets"))
    return next(filter(None, compared), "")


ModelKind = Literal["traits", "classes"]
"""Kind of a model."""

NAMES = {"traits": "continuous traits", "classes": "latent classes"}
"""Names of the kinds of models."""


@dataclass(frozen=True)
class ModelChoice(JsonRecord):
    """Choice between two models.

    Parameters
    ----------
    chosen
        Kind of the chosen model.
    reason
        One sentence for people.
    gain
        Gain of traits over latent classes in the log-probability of hidden answers; None if nothing was compared.
    """

    chosen: ModelKind
    reason: str
    gain: Annotated[PairedGain | None, Form.FLAT] = None


def choose_model(gain: PairedGain) -> ModelChoice:
    """Choose traits if they predict hidden answers better by more than one standard error, else latent classes.

    Parameters
    ----------
    gain
        Gain of traits over latent classes, on samples that neither was fitted to.

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
