"""Stage: rows with their missing cells filled, once for each draw."""

from __future__ import annotations

from functools import partial

from pmflib.display.progress import report_progress
from pmflib.em.stored_samples import StoredSamples
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.file_predictions import publish_files
from pmflib_tasks.predictions import publish_samples
from pmflib_tasks.scoring.imputation import TableImputer, make_imputer
from pmflib_tasks.stage import open_store, open_workers, stage

VERSION = 1


@stage(name="impute")
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
        Samples to fill; None for the rows of the source, which is wide and has no identifiers.
    model
        The model. Of several draws each is from a fit to a bootstrap sample of the training folds, which begins there.
    training
        Dataset that the model was fitted to.
    draws, seed
        Number of draws, at least 1, and the seed of all that is drawn.
    run
        Run that made the model; 0 where that is not known.
    columns
        Columns of the source, no variables, that are passed through.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    is_new
        Whether the samples are of files that no run has checked: the source of the configuration.

    Returns
    -------
    Reference to a folder of Parquet files with the columns of `TableImputer`, every row once for each draw.

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
