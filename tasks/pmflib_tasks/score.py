"""Stage: predictions for stored samples."""

from __future__ import annotations

from pmflib.model import JointPMF
from pmflib.model.row_scores import REFERENCE, ReferenceScores
from pmflib.model.score_tables import ScoreOptions, TableScorer
from pmflib.store.artefacts import Reference, Store
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.predictions import publish_samples
from pmflib_tasks.stage import open_store, stage

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
    return publish_samples(
        config,
        dataset,
        lambda: scorer,
        {"model": model, "reference": reference_scores},
        {**requested.to_json(), "run": run},
        VERSION,
        address,
        is_new,
    )


def load_scorer(
    store: Store, model: Reference, reference_scores: Reference, requested: ScoreOptions, run: int
) -> TableScorer:
    """Model and reference of a store, and what the metadata of predictions say of them."""
    fitted = JointPMF.load(store.locate(model) / "model")
    scores = ReferenceScores.load(store.locate(reference_scores) / REFERENCE)
    return TableScorer(fitted, scores, requested, {"model": model.digest, "run": str(run)})
