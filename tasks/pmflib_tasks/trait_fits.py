"""What a fit of traits in a pipeline is made of: settings, samples, the memory that it takes."""

from __future__ import annotations

from typing import Any

from pmflib.cluster.clients import Client
from pmflib.cluster.memory import MemoryPlan, PlanWorker, format_bytes
from pmflib.core.errors import MemoryPlanError
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.traits import plan_fit_traits
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference, identify
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import load_schema, open_store, open_workers

# 4: likelihood and criteria of the model
VERSION = 4

SETTINGS = ("dimensions", "shrinkage", "passes")
"""What the origin of a model with traits says of its fit, and another fit takes from it."""


def explain_refusal(
    config: PipelineConfig, dataset: Reference, start: Reference | None, address: str
) -> str:
    """Why traits cannot be fitted to the samples of the training folds, as a clause; "" if they can, or were.

    Parameters
    ----------
    config, dataset, start, address
        As for `pmflib_tasks.fit_traits.fit_traits`.
    """
    inputs, options = specify_trait_fit(config, dataset, start)
    if open_store(config).find(identify("model", inputs, options, VERSION)) is not None:
        return ""
    with open_workers(config, address) as (client, memory):
        plan = plan_traits(config, open_training(config, dataset, client), start)
        try:
            memory.check(plan)
        except MemoryPlanError:
            # what is free changes from run to run, and the model is to be the same
            needed = format_bytes(plan(1).join_client().needed)
            return f"traits would need {needed} of memory, more than may be used"
    return ""


def has_traits(config: PipelineConfig, model: Reference) -> bool:
    """Whether a model of the store has traits."""
    entry = open_store(config).find(model.identity)
    return entry is not None and "n_traits" in entry.summary


def specify_trait_fit(
    config: PipelineConfig, dataset: Reference, start: Reference | None
) -> tuple[dict[str, Reference], dict[str, object]]:
    """Inputs and options of the model."""
    inputs = {"dataset": dataset} | ({} if start is None else {"start": start})
    options: dict[str, object] = {
        "method": "traits",
        "rank": choose_n_states(config),
        "seed": config.seed,
        "train": list(config.fold_split.train),
        "unseen": [*config.fold_split.validation, *config.fold_split.test],
    }
    return inputs, options


def choose_n_states(config: PipelineConfig) -> int | str:
    """Number of states, where there is no model to take it from."""
    return "auto" if config.compares_traits else config.model.rank


def find_settings(config: PipelineConfig, start: Reference | None) -> dict[str, Any]:
    """Options of the fit."""
    if start is None:
        return {"n_states": choose_n_states(config)}
    model = JointPMF.load(open_store(config).locate(start) / "model")
    return {name: model.origin[name] for name in SETTINGS} | {"n_states": model.rank}


def open_training(config: PipelineConfig, dataset: Reference, client: Client) -> StoredSamples:
    """Samples of the training folds."""
    folds = config.fold_split.train
    return StoredSamples.open(open_store(config), dataset, load_schema(config), folds, client)


def open_unseen(config: PipelineConfig, dataset: Reference, client: Client) -> StoredSamples:
    """Samples of all other folds."""
    folds = [*config.fold_split.validation, *config.fold_split.test]
    return StoredSamples.open(open_store(config), dataset, load_schema(config), folds, client)


def plan_traits(
    config: PipelineConfig, training: StoredSamples, start: Reference | None
) -> PlanWorker:
    """Plan of the fit for a worker of so many threads."""
    settings = find_settings(config, start)
    sizes = {name: settings[name] for name in ("dimensions", "n_states") if name in settings}

    def plan_worker(n_threads: int) -> MemoryPlan:
        return plan_fit_traits(training, **sizes, n_threads=n_threads)

    return plan_worker
