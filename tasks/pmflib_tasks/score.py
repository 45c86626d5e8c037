"""Stage: predictions for stored samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.sources import find_sources
from pmflib.model import JointPMF
from pmflib.model.row_scores import REFERENCE, ReferenceScores
from pmflib.model.score_tables import ScoreOptions, TableScorer
from pmflib.scoring.score_accounts import ScoreAccount
from pmflib.scoring.score_outputs import claim_parts, publish_folder
from pmflib.scoring.stored_predictions import score_stored
from pmflib.scoring.unknown_levels import check_dataset
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_layers
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage

# 4: what became of the rows
# 3: what is unusual about each row, and percentiles; no column of samples or rows that there are not
VERSION = 4


@stage(name="score")
def score(
    config: PipelineConfig,
    dataset: Reference,
    model: Reference,
    reference_scores: Reference,
    requested: ScoreOptions,
    run: int = 0,
    address: str = "",
    is_new: bool = False,
) -> Reference:
    """Score every sample of a dataset, and predict some variables of each.

    Parameters
    ----------
    config
        The pipeline.
    dataset, model, reference_scores
        References from `ingest`, `refine` and `reference`.
    requested
        Targets, and variables that are passed through.
    run
        Run that made the model; 0 where that is not known.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    is_new
        Whether the samples are of files that no run has checked: the source of the configuration.

    Returns
    -------
    Reference to a folder of Parquet files, one per partition, with the columns of `TableScorer`.

    Raises
    ------
    SchemaError
        If a target, or one that is kept, is no variable; or, of new files, if most rows of one do not fit, or no value
        of a column is a level.
    """
    store = open_store(config)
    scorer = load_scorer(store, model, reference_scores, requested, run)
    entry = store.find(dataset.identity)
    assert entry is not None
    unknown: dict[str, dict[str, int]] = {}

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        if is_new:
            sources = find_sources(config.source_paths, config.source.suffixes, skip_empty=True)
            known = scorer.model.schema, requested.targets
            unknown.update(check_dataset(store, dataset, sources, config.source, *known))
        layers, show = list_layers(store, dataset), partial(report_progress, "score")
        with open_workers(config, address) as (client, _):
            n_samples, measures = score_stored(client, layers, scorer, claim_parts(work), show)
        publish_folder(work, folder, n_samples)
        rows = DatasetAccount.from_json(entry.summary)
        return ScoreAccount.of_dataset(rows, n_samples, unknown, measures, len(layers)).to_json()

    return build_artefact(
        store,
        "predictions",
        inputs={"dataset": dataset, "model": model, "reference": reference_scores},
        options={**requested.to_json(), "run": run, "new": is_new},
        version=VERSION,
        write=write,
    ).reference


def load_scorer(
    store: Store, model: Reference, reference_scores: Reference, requested: ScoreOptions, run: int
) -> TableScorer:
    """Model and reference of a store, and what the metadata of predictions say of them."""
    fitted = JointPMF.load(store.locate(model) / "model")
    scores = ReferenceScores.load(store.locate(reference_scores) / REFERENCE)
    return TableScorer(fitted, scores, requested, {"model": model.digest, "run": str(run)})
