"""Flow that imputes missing answers with draws from the live model."""

from __future__ import annotations

from pmflib.store.artefacts import Reference
from pmflib_flows.live_samples import run_on_live
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_tasks.config import load_config
from pmflib_tasks.imputation.impute import impute


@pipeline_flow(name="impute")
def impute_flow(
    config: str,
    draws: int = 1,
    data: str = "",
    columns: tuple[str, ...] = (),
    seed: int | None = None,
) -> Reference:
    """Impute missing answers of samples with draws from the live model.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    draws
        Number of imputations of every sample, at least 1; several are each based on a fit to a bootstrap sample.
    data, columns
        As for `score_flow`.
    seed
        Random seed; None uses that of the pipeline.

    Returns
    -------
    Reference to the imputed samples.

    Raises
    ------
    StoreError
        If the pipeline has no live model yet, or the samples to which it was fitted are missing.
    """
    own = draws, load_config(config).seed if seed is None else seed
    return run_on_live(impute, "dataset", config, own, data, columns)
