"""Stages: predictions for stored samples, and for the rows of wide files without identifiers."""

from __future__ import annotations

from pmflib.apps.scoring.file_scoring import VERSION as FILE_VERSION
from pmflib.apps.scoring.score_tables import TableScorer
from pmflib.model import JointPMF
from pmflib.model.row_scores import REFERENCE, ReferenceScores
from pmflib.model.table_makers import ScoreOptions
from pmflib.store.artefacts import Reference, Store
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.predictions import publish_files, publish_samples
from pmflib_tasks.stage import open_store, stage

# 4: treatment of rejected rows. 3: what is unusual about each row, and percentiles; no columns of samples or rows if
# there are none
VERSION = 4


@stage(name="score", makes="predictions")
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
        Targets, and variables to pass through.
    run
        Run that made the model; 0 if it is not known.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    is_new
        Whether the samples come from files that no run has checked, those of the configuration.

    Returns
    -------
    Reference to a folder of Parquet files, one per partition, with the columns of `TableScorer`.

    Raises
    ------
    SchemaError
        If a target or a variable to pass through is unknown; for new files, if most rows of one do not fit, or no value
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
    """Load the model and the reference of a store as a scorer, with the metadata of its predictions."""
    fitted = JointPMF.load(store.locate(model) / "model")
    scores = ReferenceScores.load(store.locate(reference_scores) / REFERENCE)
    return TableScorer(fitted, scores, requested, {"model": model.digest, "run": str(run)})


@stage(name="score-files", makes="predictions")
def score_files(
    config: PipelineConfig,
    model: Reference,
    reference_scores: Reference,
    requested: ScoreOptions,
    run: int = 0,
    columns: tuple[str, ...] = (),
) -> Reference:
    """Score the rows of the pipeline's source, and predict some variables of each.

    Threads of this process share the work, or Dask workers if a scheduler or processes are configured.

    Parameters
    ----------
    config
        The pipeline, with a wide layout and samples without identifiers.
    model, reference_scores, requested, run
        As for `score`.
    columns
        Columns of the files, other than variables, to pass through.

    Returns
    -------
    Reference to a folder of Parquet files in the order of the files and their rows; rows that do not fit are in its
    folder ``_quarantine``.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read, or a row does not fit and the policy is to stop.
    """
    scorer = load_scorer(open_store(config), model, reference_scores, requested, run)
    return publish_files(
        config,
        lambda: scorer,
        {"model": model, "reference": reference_scores},
        {**requested.to_json(), "run": run},
        FILE_VERSION,
        columns,
    )
