"""Stage: scores of held-out samples, the reference of percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.model import JointPMF
from pmflib.model.row_scores import REFERENCE
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.questions.stored_predictions import reference_stored
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage

VERSION = 1


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
