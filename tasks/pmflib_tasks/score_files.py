"""Stage: predictions for the rows of wide files without identifiers, which stream from the files."""

from __future__ import annotations

from pmflib.model.score_tables import ScoreOptions
from pmflib.scoring.file_scoring import VERSION
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.file_predictions import publish_files
from pmflib_tasks.score import load_scorer
from pmflib_tasks.stage import open_store, stage


@stage(name="score-files")
def score_files(
    config: PipelineConfig,
    model: Reference,
    reference_scores: Reference,
    requested: ScoreOptions,
    run: int = 0,
    columns: tuple[str, ...] = (),
) -> Reference:
    """Score the rows of the pipeline's source, and predict some variables of each.

    Threads of this process share the work; where a Dask scheduler is configured, or processes are, it goes to these.

    Parameters
    ----------
    config
        The pipeline, its layout wide, its samples without identifiers.
    model, reference_scores, requested, run
        As for `score`.
    columns
        Columns of the files, no variables, that are passed through.

    Returns
    -------
    Reference to a folder of Parquet files in the order of the files and their rows; rows that do not fit are in a
    folder ``_quarantine`` beside them.

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
        VERSION,
        columns,
    )
