"""Two models compared on stored samples, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray
from pmflib.errors import RefusedStoreError, StoreError, UnreachableStoreError
from pmflib.model.joint_pmf import JointPMF
from pmflib.model.paired_scores import N_SUMS, compare_hidden, count_rounds, deal_rounds
from pmflib.model.score_tables import digest_model
from pmflib.model.stored_evaluation import make_key
from pmflib.running.clients import Client
from pmflib.running.grouping import group_blocks
from pmflib.running.maps import run_blocks
from pmflib.selection.comparison import estimate_gain_per_cell
from pmflib.store.artefacts import Reference, Store
from pmflib.store.sample_blocks import BlockReference, read_blocks

ENOUGH_CELLS = 1_000_000
"""Hidden cells beyond which no further round is made: the standard error is then some ten-thousandths of a nat."""


@dataclass(frozen=True)
class PairedGain:
    """By how much one model predicts hidden cells better than another.

    Parameters
    ----------
    gain
        Mean, nats per cell.
    standard_error
        That of the mean, over samples; infinite for fewer than two.
    cells, samples
        Number of hidden cells, and of samples that have some.
    """

    gain: float
    standard_error: float
    cells: int
    samples: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types: an unknown standard error is None."""
        known = math.isfinite(self.standard_error)
        return asdict(self) | {"standard_error": self.standard_error if known else None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PairedGain:
        """Read what `to_json` gave."""
        error = content["standard_error"]
        return cls(
            content["gain"],
            math.inf if error is None else error,
            content["cells"],
            content["samples"],
        )


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
        Test samples, in the order of the dataset; there may be none.
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
    if groups := group_blocks(blocks):
        n_rounds = count_rounds(share)
        n_observed = sum(block.n_observed for block in blocks)
        n_judged = min(n_rounds, math.ceil(ENOUGH_CELLS * n_rounds / max(n_observed, 1)))
        shared = better, worse, n_rounds, n_judged, seed, target
        sums = run_blocks(client, compare_group, groups, merge_sums, *shared)
    gain, error = estimate_gain_per_cell(sums)
    return PairedGain(gain, error, int(sums[1]), int(sums[0]))


def compare_group(
    group: Sequence[BlockReference],
    better: JointPMF,
    worse: JointPMF,
    n_rounds: int,
    n_judged: int,
    seed: int,
    target: int | None = None,
) -> FloatArray:
    """Sums of a group, as `compare_hidden` gives them for a block."""
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(better.schema.offsets)
        if target is None:
            rounds = deal_rounds(codes, reference.rows, n_rounds, make_key(reference, seed))
        else:
            rounds = np.full(codes.shape, -1)
            rounds[codes[:, target] >= 0, target] = 0
        parts.append(compare_hidden(codes, rounds, n_judged, better, worse))
    return merge_sums(parts)


def merge_sums(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum over parts of the samples, at least one, in the order given."""
    return np.asarray(np.sum(parts, axis=0))


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
    # where other folds are held out, one model has been fitted to what judges the other
    if made is None or made.options.get("train") != entry.options.get("train"):
        return "other folds are held out than when the live model was made"
    return ""
