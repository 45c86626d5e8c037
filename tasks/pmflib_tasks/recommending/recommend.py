"""Stage: the best items for every sample."""

from __future__ import annotations

from pmflib.apps.recommending.options import Recommendations
from pmflib.apps.recommending.recommending import Recommender, sum_ratings
from pmflib.counts.pair_counts import load_singles
from pmflib.counts.zarr_tables import PAIRS, StoredTables
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.predictions import publish_files, publish_samples
from pmflib_tasks.stage import open_store, stage

VERSION = 2


@stage(name="recommend", makes="predictions")
def recommend(
    config: PipelineConfig,
    dataset: Reference | None,
    model: Reference,
    counts: Reference,
    requested: Recommendations,
    run: int = 0,
    columns: tuple[str, ...] = (),
    address: str = "",
    is_new: bool = False,
) -> Reference:
    """Recommend items to every sample, or to every row of the pipeline's source.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        The samples; None for the rows of a wide source without identifiers.
    model
        The model.
    counts
        Counts of the samples that the model was fitted to, for the number of ratings of each item and for values
        predicted from counts of pairs.
    requested
        Options.
    run
        Run that made the model.
    columns, address, is_new
        As for `pmflib_tasks.imputation.impute.impute`.

    Returns
    -------
    Reference to a folder of Parquet files with the columns of `Recommender.score`.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read, or does not fit; if an item is no variable, or has no value or no such level.
    QuestionError, PmfError
        As for `Recommender`.
    """
    store = open_store(config)

    def make() -> Recommender:
        fitted = JointPMF.load(store.locate(model) / "model")
        path = store.locate(counts) / PAIRS
        n_ratings = sum_ratings(load_singles(path), fitted.schema)
        tables = StoredTables(path) if requested.source == "counts" else None
        facts = {"model": model.digest, "run": str(run)}
        return Recommender(fitted, requested, n_ratings, facts, tables)

    inputs = {"model": model, "counts": counts}
    options = {**requested.to_json(), "run": run}
    if dataset is None:
        return publish_files(config, make, inputs, options, VERSION, columns)
    return publish_samples(config, dataset, make, inputs, options, VERSION, address, is_new)
