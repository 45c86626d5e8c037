"""Plan the number of rows of a pipeline for an accuracy of its answers, with its live model as the pilot."""

from __future__ import annotations

import numpy as np

from pmflib.base.arrays import sum_blocks
from pmflib.base.errors import StoreError
from pmflib.counts.pair_counts import load_singles
from pmflib.inference.planning.sample_sizes import SampleSize, sample_size
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.model import JointPMF
from pmflib.store.run_records import find_live, find_run_of
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.stage import open_store


def plan_accuracy(config: PipelineConfig, accuracy: float) -> tuple[SampleSize, int]:
    """Find the number of samples for an accuracy of answers, and that of the live model's own.

    Parameters
    ----------
    config
        The pipeline.
    accuracy
        Root mean square error of P(a variable | another), in (0, 1).

    Raises
    ------
    StoreError
        If the pipeline has no live model, or its run is not on record.
    PmfError, MemoryPlanError
        As for `pmflib.inference.planning.sample_sizes.sample_size`.
    """
    store = open_store(config)
    live = find_live(store, config.name)
    run = None if live is None else find_run_of(store, config.name, live)
    if live is None or run is None:
        raise StoreError(
            f"pipeline {config.name!r} has no live model whose answers could be planned: `pmf run` makes one, and "
            "pmflib.inference.bound_sample_size bounds the rows before there are data"
        )
    model = JointPMF.load(store.locate(live) / "model")
    account = RunFacts(run.facts).account or DatasetAccount()
    answers = load_singles(store.locate(run.stages["counts"]) / "pairs")
    n_samples = max(account.samples, 1)
    observed = np.clip(sum_blocks(answers, model.schema.offsets) / n_samples, 0.0, 1.0)
    return sample_size(model, accuracy, observed=observed), n_samples
