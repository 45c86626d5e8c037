"""Stage: the best items for every sample."""

from __future__ import annotations

import numpy as np

from pmflib.apps.recommending.item_regression import N_FOLDS
from pmflib.apps.recommending.options import Recommendations
from pmflib.apps.recommending.recommending import Recommender
from pmflib.base.blocks import SparseBlock, concatenate_blocks
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from pmflib.store.sample_blocks import read_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.predictions import publish_files, publish_samples
from pmflib_tasks.stage import load_schema, open_store, stage

VERSION = 3
NO_SAMPLES = SparseBlock(np.zeros(1, np.int64), np.empty(0, np.int32))


@stage(name="recommend", makes="predictions")
def recommend(
    config: PipelineConfig,
    dataset: Reference | None,
    learned: Reference,
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
    learned
        The samples from which values are learned.
    requested
        Options.
    run
        Run that made these.
    columns, address, is_new
        As for `pmflib_tasks.imputation.impute.impute`.

    Returns
    -------
    Reference to a folder of Parquet files with the columns of `Recommender.rank`.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read, or does not fit; if an item is no variable, or has no number or no such level.
    QuestionError, PmfError
        As for `Recommender`.
    """
    store = open_store(config)

    def make() -> Recommender:
        schema, blocks = load_schema(config), list_dataset_blocks(store, learned, None)
        parts = [each.to_sparse(schema.offsets) for each in read_blocks(blocks)]
        folds = np.repeat([each.fold for each in blocks], [each.n_rows for each in blocks])
        samples = concatenate_blocks([NO_SAMPLES, *parts], schema.offsets).to_sparse(schema.offsets)
        facts = {"samples": learned.digest, "run": str(run)}
        return Recommender(samples, schema, requested, folds % N_FOLDS == 1, facts)

    inputs, options = {"learned": learned}, {**requested.to_json(), "run": run}
    if dataset is None:
        return publish_files(config, make, inputs, options, VERSION, columns)
    return publish_samples(config, dataset, make, inputs, options, VERSION, address, is_new)
