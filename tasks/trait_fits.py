"""What a fit of traits in a pipeline is made of: settings, samples, the memory that it takes."""

from __future__ import annotations

from typing import Any

from pmflib.config import PipelineConfig
from pmflib.em.stored_samples import StoredSamples
from pmflib.errors import MemoryPlanError
from pmflib.model import JointPMF
from pmflib.running.clients import Client
from pmflib.running.memory_plan import MemoryPlan, format_bytes
from pmflib.running.worker_memory import PlanWorker
from pmflib.store.artefacts import Reference, identify
from pmflib.traits.memory import plan_fit_traits
from tasks.stage import load_schema, open_store, open_workers

# 2: samples are passed over block by block; the people of a choice and of the states are drawn by hash
VERSION = 2

SETTINGS = ("dimensions", "shrinkage", "passes")
"""What the origin of a model with traits says of its fit, and another fit takes from it."""


def explain_refusal(
    config: PipelineConfig, dataset: Reference, start: Reference | None, address: str
) -> str:
    """Why traits cannot be fitted to the samples of the training folds, as a clause; "" if they can, or were.

    Parameters
    ----------
    config, dataset, start, address
        As for `tasks.fit_traits.fit_traits`.
    """
    description = describe_fit(config, dataset, start)
    if open_store(config).find(identify("model", **description)) is not None:
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


def describe_fit(
    config: PipelineConfig, dataset: Reference, start: Reference | None
) -> dict[str, Any]:
    """Inputs, options and version of the model."""
    return {
        "inputs": {"dataset": dataset} | ({} if start is None else {"start": start}),
        "options": {
            "method": "traits",
            "rank": choose_rank(config),
            "seed": config.seed,
            "train": list(config.fold_split.train),
        },
        "version": VERSION,
    }


def choose_rank(config: PipelineConfig) -> int | str:
    """Number of states, where there is no model to take it from."""
    return "auto" if config.compares_traits else config.model.rank


def find_settings(config: PipelineConfig, start: Reference | None) -> dict[str, Any]:
    """Options of the fit."""
    if start is None:
        return {"n_states": choose_rank(config)}
    model = JointPMF.load(open_store(config).locate(start) / "model")
    return {name: model.origin[name] for name in SETTINGS} | {"n_states": model.rank}


def open_training(config: PipelineConfig, dataset: Reference, client: Client) -> StoredSamples:
    """Samples of the training folds."""
    folds = config.fold_split.train
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
