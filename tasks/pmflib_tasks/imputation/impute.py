"""Stage: multiple imputation of missing cells."""

from __future__ import annotations

from functools import partial

from pmflib.base.display.progress import report_progress
from pmflib.em.stored_samples import StoredSamples
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.imputation.imputation import TableImputer, make_imputer
from pmflib_tasks.predictions import publish_files, publish_samples
from pmflib_tasks.stage import open_store, open_workers, stage

VERSION = 1


@stage(name="impute", makes="predictions")
def impute(
    config: PipelineConfig,
    dataset: Reference | None,
    model: Reference,
    training: Reference,
    draws: int,
    seed: int,
    run: int = 0,
    columns: tuple[str, ...] = (),
    address: str = "",
    is_new: bool = False,
) -> Reference:
    """Fill the missing cells of samples, or of the rows of the pipeline's source.

    Parameters
    ----------
    config
        The pipeline.
    dataset
        Samples to fill; None for the rows of a wide source without identifiers.
    model
        The model. Each of several draws is from a fit to a bootstrap sample of the training folds that starts there.
    training
        Dataset that the model was fitted to.
    draws, seed
        Number of draws, at least 1, and their seed.
    run
        Run that made the model; 0 if it is not known.
    columns
        Columns of the source, other than variables, to pass through.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.
    is_new
        Whether the samples come from files that no run has checked, those of the configuration.

    Returns
    -------
    Reference to a folder of Parquet files with the columns of `TableImputer`, one row per sample and draw.

    Raises
    ------
    SourceError, SchemaError
        If a file cannot be read, or does not fit.
    """
    store, folds = open_store(config), config.fold_split.train

    def make() -> TableImputer:
        fitted = JointPMF.load(store.locate(model) / "model")
        facts = {"model": model.digest, "run": str(run)}
        report = partial(report_progress, "fit")
        with open_workers(config, address) as (client, _):
            samples = StoredSamples.open(store, training, fitted.schema, folds, client)
            return make_imputer(fitted, samples, draws, seed, facts, report)

    inputs = {"model": model, "training": training}
    options = {"draws": draws, "seed": seed, "run": run, "train": list(folds)}
    if dataset is None:
        return publish_files(config, make, inputs, options, VERSION, columns)
    return publish_samples(config, dataset, make, inputs, options, VERSION, address, is_new)
