"""Held-out scores of a model on stored samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pmflib.arrays import FloatArray
from pmflib.model import JointPMF
from pmflib.model.evaluation import HeldOutScores, choose_hidden, score_hidden
from pmflib.running.clients import Client
from pmflib.running.grouping import group_blocks
from pmflib.running.maps import run_blocks
from pmflib.store.sample_blocks import BlockReference, read_blocks

SCORES = "scores.json"
"""Scores by variable, and the calibration, in the folder of an artefact: what `HeldOutScores.to_json` gives."""


def evaluate_stored(
    client: Client,
    blocks: Sequence[BlockReference],
    model: JointPMF,
    baseline: FloatArray,
    share: float,
    seed: int,
) -> HeldOutScores:
    """Hide some observed cells of stored samples, predict them from the others, and add up the scores.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the scores are the same bits.
    blocks
        Test samples, in the order of the dataset; there may be none.
    model
        The model.
    baseline
        float64 of shape (n_levels,): PMF of each variable alone.
    share
        Expected share of the observed cells to hide, in [0, 1].
    seed
        Integer in [0, 2**64): which cells are hidden.

    Returns
    -------
    The scores.
    """
    groups = group_blocks(blocks)
    if not groups:
        return HeldOutScores.zero(model.schema.n_variables)
    shared = model, baseline, share, seed
    return run_blocks(client, score_group, groups, HeldOutScores.merge, *shared)


def score_group(
    group: Sequence[BlockReference], model: JointPMF, baseline: FloatArray, share: float, seed: int
) -> HeldOutScores:
    """Held-out scores of a group; which cells are hidden depends on their place in their partition and the seed."""
    parts = []
    for reference, block in zip(group, read_blocks(group), strict=True):
        codes = block.to_codes(model.schema.offsets)
        hidden = choose_hidden(codes, reference.rows, share, make_key(reference, seed))
        parts.append(score_hidden(codes, hidden, model, baseline))
    return HeldOutScores.merge(parts)


def make_key(block: BlockReference, seed: int) -> int:
    """Seed of what is hidden in the partition of a block: its folder is named by its digest."""
    return int(Path(block.path).parent.name[:12], 16) ^ seed
