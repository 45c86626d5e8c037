"""Stage: predictions for stored samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.model import JointPMF
from pmflib.model.reference_scores import REFERENCE, ReferenceScores
from pmflib.model.score_outputs import claim_parts, publish_folder
from pmflib.model.score_tables import TableScorer, Wanted
from pmflib.model.stored_predictions import score_stored
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_layers
from tasks.stage import build_artefact, open_store, open_workers, stage
from tasks.stage_progress import report

# 3: what is unusual about each row, and percentiles; no column of samples or rows that there are not
VERSION = 3


@stage(name="score")
def score(
    config: PipelineConfig,
    dataset: Reference,
    model: Reference,
    reference_scores: Reference,
    wanted: Wanted,
    run: int = 0,
    address: str = "",
) -> Reference:
    """Score every sample of a dataset, and predict some variables of each.

    Parameters
    ----------
    config
        The pipeline.
    dataset, model, reference_scores
        References from `ingest`, `refine` and `reference`.
    wanted
        Targets, and variables that are passed through.
    run
        Run that made the model; 0 where that is not known.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to a folder of Parquet files, one per partition, with the columns of `TableScorer`.

    Raises
    ------
    SchemaError
        If a target, or one that is kept, is no variable.
    """
    store = open_store(config)
    scorer = load_scorer(store, model, reference_scores, wanted, run)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        layers, show = list_layers(store, dataset), partial(report, "score")
        with open_workers(config, address) as (client, _):
            n_samples, measures = score_stored(client, layers, scorer, claim_parts(work), show)
        publish_folder(work, folder, n_samples)
        return {"samples": n_samples, "targets": list(wanted.targets), "measures": measures}

    return build_artefact(
        store,
        "predictions",
        inputs={"dataset": dataset, "model": model, "reference": reference_scores},
        options={**wanted.to_json(), "run": run},
        version=VERSION,
        write=write,
    ).reference


def load_scorer(
    store: Store, model: Reference, reference_scores: Reference, wanted: Wanted, run: int
) -> TableScorer:
    """Model and reference of a store, and what the metadata of predictions say of them."""
    fitted = JointPMF.load(store.locate(model) / "model")
    scores = ReferenceScores.load(store.locate(reference_scores) / REFERENCE)
    return TableScorer(fitted, scores, wanted, {"model": model.digest, "run": str(run)})
