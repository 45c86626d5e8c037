"""Stage: predictions for stored samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.model import JointPMF
from pmflib.model.stored_predictions import score_stored
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_layers
from tasks.stage import build_artefact, open_store, open_workers, stage
from tasks.stage_progress import report

VERSION = 2


@stage(name="score")
def score(
    config: PipelineConfig,
    dataset: Reference,
    model: Reference,
    targets: tuple[str, ...],
    address: str = "",
    probabilities: bool = False,
    keep: tuple[str, ...] = (),
) -> Reference:
    """Score every sample of a dataset, and predict some variables of each.

    Parameters
    ----------
    config
        The pipeline.
    dataset, model
        References from `ingest` and `refine`.
    targets
        Names of the variables to predict from the others.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    probabilities, keep
        Whether the probability of every level of a target is wanted; variables that are passed through.

    Returns
    -------
    Reference to a folder of Parquet files, one per partition, with the columns of `score_samples`.

    Raises
    ------
    SchemaError
        If a target, or one that is kept, is no variable.
    """
    store = open_store(config)
    fitted = JointPMF.load(store.locate(model) / "model")
    for target in (*targets, *keep):
        fitted.schema.position(target)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        layers, show = list_layers(store, dataset), partial(report, "score")
        with open_workers(config, address) as (client, _):
            n_samples, measures = score_stored(
                client,
                layers,
                fitted,
                targets,
                folder,
                show,
                probabilities=probabilities,
                keep=keep,
            )
        return {"samples": n_samples, "targets": list(targets), "measures": measures}

    return build_artefact(
        store,
        "predictions",
        inputs={"dataset": dataset, "model": model},
        options={"targets": list(targets), "probabilities": probabilities, "keep": list(keep)},
        version=VERSION,
        write=write,
    ).reference
