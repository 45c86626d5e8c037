"""Stage: scores of held-out samples, the reference of percentiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.model import JointPMF
from pmflib.model.row_scores import (
    HELD_OUT,
    KEPT,
    REFERENCE,
    ReferenceScores,
    RowScorer,
    score_reference,
)
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import BlockReference, group_blocks, read_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage

VERSION = 1
LEAST_REFERENCE = 200
"""Minimum number of held-out samples for a reference of percentiles."""


@stage(name="reference", makes="reference")
def reference(
    config: PipelineConfig, dataset: Reference, model: Reference, address: str = ""
) -> Reference:
    """Score the test samples of a dataset.

    Parameters
    ----------
    config
        The pipeline.
    dataset, model
        References from `ingest` and `refine`.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the scores, a `ReferenceScores`.
    """
    store, folds = open_store(config), config.fold_split.test

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        fitted = JointPMF.load(store.locate(model) / "model")
        blocks = list_dataset_blocks(store, dataset, folds)
        with open_workers(config, address) as (client, _):
            scores = reference_stored(client, blocks, fitted)
        scores.save(folder / REFERENCE)
        return {"samples": scores.surprises.size, "origin": scores.origin}

    return build_artefact(
        store,
        "reference",
        inputs={"dataset": dataset, "model": model},
        options={"test": list(folds)},
        version=VERSION,
        write=write,
    ).reference


def reference_stored(
    client: Client, blocks: Sequence[BlockReference], model: JointPMF
) -> ReferenceScores:
    """Score held-out stored samples as a reference for percentiles.

    Parameters
    ----------
    client
        Dask client, or None to work in this thread; the scores have the same bits.
    blocks
        Held-out samples; of more than `KEPT`, every second is used, or every third, and so on. If there are fewer than
        ``LEAST_REFERENCE``, samples are drawn from the model instead.
    model
        The model.
    """
    groups = group_blocks(blocks)
    n_rows = sum(len(block.rows) for block in blocks)
    if n_rows < LEAST_REFERENCE:
        return ReferenceScores.draw(model)
    step = -(-n_rows // KEPT)
    scored = map_items(client, _score_reference, groups, RowScorer(model), step)
    return ReferenceScores.make([part for parts in scored for part in parts], HELD_OUT)


def _score_reference(
    group: Sequence[BlockReference], scorer: RowScorer, step: int
) -> list[tuple[FloatArray, IntArray, FloatArray, IntArray]]:
    """Score some samples of each block of a group."""
    offsets, out = scorer.model.schema.offsets, []
    for reference, block in zip(group, read_blocks(group), strict=True):
        rows = np.flatnonzero(reference.rows % step == 0)
        out.append(score_reference(block.to_codes(offsets)[rows], reference.rows[rows], scorer))
    return out
