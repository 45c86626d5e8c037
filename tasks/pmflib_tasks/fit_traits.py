"""Stage: continuous traits, fitted to the training samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.display.progress import Progress, divert_functions, report_progress
from pmflib.fitting.fit_result import summarise_fit
from pmflib.fitting.traits import fit_traits as fit_to_samples
from pmflib.fitting.weighing import weigh_model
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage
from pmflib_tasks.trait_fits import (
    VERSION,
    find_settings,
    open_training,
    open_unseen,
    plan_traits,
    specify_trait_fit,
)


@stage(name="fit_traits")
def fit_traits(
    config: PipelineConfig, dataset: Reference, start: Reference | None = None, address: str = ""
) -> Reference:
    """Fit traits to the samples of the training folds, and compile them into the states of a joint PMF.

    What is open is chosen on cells held out of these samples; the other folds have no part in it, and say how many rows
    the model counts for in answers.

    Parameters
    ----------
    config
        The pipeline; its rank is the number of states. Where traits are compared with latent classes, that is chosen.
    dataset
        What `ingest` returned.
    start
        Model with traits whose dimensions, shrinkage, passes and states are taken, so that nothing is chosen.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to the model, which has its trait model.

    Raises
    ------
    MemoryPlanError
        If the sums of a pass would not fit in memory: they grow with the levels, not with the samples.
    """

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, memory), divert_functions(_pass_on):
            training = open_training(config, dataset, client)
            plan = plan_traits(config, training, start)
            memory.check(plan)
            training = training.with_spare(memory.find_kept(plan)[0])
            settings = find_settings(config, start)
            result = fit_to_samples(training, **settings, rng=config.seed, checkpoint=work)
            model = weigh_model(result.model, training, open_unseen(config, dataset, client))
        model.save(folder / "model")
        # the passes are those of the trait model
        passes = [-each for each in result.loss_history]
        return summarise_fit(result) | {"log_likelihood_per_row": passes}

    report_progress("fit_traits", 0, 1)
    inputs, options = specify_trait_fit(config, dataset, start)
    entry = build_artefact(
        open_store(config), "model", inputs=inputs, options=options, version=VERSION, write=write
    )
    report_progress(
        "fit_traits", 1, 1, f"{entry.summary['n_traits']} traits, {entry.summary['rank']} states"
    )
    return entry.reference


def _pass_on(progress: Progress) -> None:
    """Report a step of the fit, but for its end."""
    if not progress.is_over:
        report_progress("fit_traits", progress.done, progress.total, progress.text)
