"""Stage: fit of traits, with given or selected settings, within the memory of the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.answering.weighing import weigh_model
from pmflib.base.display.progress import Progress, divert_functions, report_progress
from pmflib.base.errors import MemoryPlanError
from pmflib.cluster.clients import Client
from pmflib.cluster.memory import MemoryPlan, PlanWorker, format_bytes
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.traits.em import TraitSettings
from pmflib.families.traits.level_scores import LevelScores
from pmflib.families.traits.traits import fit_traits as fit_to_samples
from pmflib.families.traits.traits import plan_fit_traits, plan_trait_memory
from pmflib.fits.fit_result import summarise_fit
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference, identify
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.planned_stages import PlannedStage, RunSizes
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

# 4: likelihood and criteria of the model
VERSION = 5


def explain_refusal(
    config: PipelineConfig, dataset: Reference, start: Reference | None, address: str
) -> str:
    """Explain in a clause why traits cannot be fitted to the training folds; empty if they can or have been.

    Parameters
    ----------
    config, dataset, start, address
        As for `fit_traits`.
    """
    inputs, options = _specify(config, dataset, start)
    if open_store(config).find(identify("model", inputs, options, VERSION)) is not None:
        return ""
    with open_workers(config, address) as (client, memory):
        plan = _plan(config, _open_training(config, dataset, client), start)
        try:
            memory.check(plan)
        except MemoryPlanError:
            # the message must not name the free memory, which changes from run to run
            needed = format_bytes(plan(1).join_client().needed)
            return f"traits would need {needed} of memory, more than may be used"
    return ""


def _specify(
    config: PipelineConfig, dataset: Reference, start: Reference | None
) -> tuple[dict[str, Reference], dict[str, object]]:
    """Collect the inputs and options of the artefact of the model."""
    inputs = {"dataset": dataset} | ({} if start is None else {"start": start})
    options: dict[str, object] = {
        "method": "traits",
        "rank": choose_n_states(config),
        "seed": config.seed,
        "train": list(config.fold_split.train),
        "unseen": [*config.fold_split.validation, *config.fold_split.test],
        **_list_given(config),
    }
    return inputs, options


def _list_given(config: PipelineConfig) -> dict[str, Any]:
    """Settings of traits that the configuration gives; "compare" has none."""
    return dict(config.model.method_options) if config.has_traits else {}


def choose_n_states(config: PipelineConfig) -> int | str:
    """Choose the number of states of a fit without a starting model."""
    # a configuration without a rank is that of a stack
    return "auto" if config.compares_traits else (config.model.rank or "auto")


def _find_settings(config: PipelineConfig, start: Reference | None) -> dict[str, Any]:
    """Collect the options of the fit."""
    if start is None:
        return {"n_states": choose_n_states(config), **_list_given(config)}
    model = JointPMF.load(open_store(config).locate(start) / "model")
    return model.origin.select(TraitSettings).to_json() | {"n_states": model.rank}


def _open_training(config: PipelineConfig, dataset: Reference, client: Client) -> StoredSamples:
    """Open the samples of the training folds."""
    folds = config.fold_split.train
    return StoredSamples.open(open_store(config), dataset, load_schema(config), folds, client)


def _open_unseen(config: PipelineConfig, dataset: Reference, client: Client) -> StoredSamples:
    """Open the samples of all other folds."""
    folds = [*config.fold_split.validation, *config.fold_split.test]
    return StoredSamples.open(open_store(config), dataset, load_schema(config), folds, client)


def _plan(config: PipelineConfig, training: StoredSamples, start: Reference | None) -> PlanWorker:
    """Plan the memory of the fit for a worker, as a function of its number of threads."""
    settings = _find_settings(config, start)
    sizes = {name: settings[name] for name in ("dimensions", "n_states") if name in settings}

    def plan_worker(n_threads: int) -> MemoryPlan:
        return plan_fit_traits(training, **sizes, n_threads=n_threads)

    return plan_worker


@stage(name="fit_traits", makes="model")
def fit_traits(
    config: PipelineConfig, dataset: Reference, start: Reference | None = None, address: str = ""
) -> Reference:
    """Fit traits to the samples of the training folds, and compile them into the states of a joint PMF.

    Settings that are not given are selected on held-out cells of these samples. The other folds are used only to
    determine the equivalent number of samples of the model in answers.

    Parameters
    ----------
    config
        The pipeline; its rank is the number of states, which is selected if traits are compared with latent classes.
    dataset
        Reference from `ingest`.
    start
        Model with traits whose dimensions, shrinkage, passes and number of states are used, without selection.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the model, which includes the trait model.

    Raises
    ------
    MemoryPlanError
        If the sums of a pass do not fit in memory; they grow with the levels, not with the samples.
    """

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, memory), divert_functions(_pass_on):
            training = _open_training(config, dataset, client)
            plan = _plan(config, training, start)
            memory.check(plan)
            training = training.with_spare(memory.find_kept(plan)[0])
            settings = _find_settings(config, start)
            result = fit_to_samples(training, **settings, rng=config.seed, checkpoint=work)
            model = weigh_model(result.model, training, _open_unseen(config, dataset, client))
        model.save(folder / "model")
        # the passes are those of the trait model
        passes = [-each for each in result.loss_history]
        return summarise_fit(result) | {"log_likelihood_per_row": passes}

    report_progress("fit_traits", 0, 1)
    inputs, options = _specify(config, dataset, start)
    entry = build_artefact(
        open_store(config), "model", inputs=inputs, options=options, version=VERSION, write=write
    )
    report_progress(
        "fit_traits", 1, 1, f"{entry.summary['n_traits']} traits, {entry.summary['rank']} states"
    )
    return entry.reference


def _pass_on(progress: Progress) -> None:
    """Report a step of the fit, except its end."""
    if not progress.is_over:
        report_progress("fit_traits", progress.done, progress.total, progress.text)


def plan_stages(sizes: RunSizes) -> Iterator[PlannedStage]:
    """Plan the fit of traits, if the model has them or is compared with one that has."""
    config, schema = sizes.config, sizes.schema
    if not (config.has_traits or config.compares_traits):
        return
    scores = LevelScores.make(schema, np.zeros(schema.n_levels))
    n_states: Any = choose_n_states(config)
    dimensions = _list_given(config).get("dimensions", "auto")

    def plan_traits(n: int) -> MemoryPlan:
        return plan_trait_memory(
            scores,
            sizes.costs,
            sizes.n_samples,
            sizes.n_observed,
            dimensions=dimensions,
            n_states=n_states,
            n_threads=n,
            n_all_threads=sizes.n_threads,
        )

    otherwise = "latent classes are published" if config.compares_traits else ""
    yield PlannedStage("fit_traits", memory=plan_traits, otherwise=otherwise)
