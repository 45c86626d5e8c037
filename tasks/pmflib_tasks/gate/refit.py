"""The decision whether a model is fitted from scratch or refitted warm, from the live model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pmflib.base.errors import StoreError
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.facts import Refit, RunFacts
from pmflib_tasks.gate.comparison import compare_datasets
from pmflib_tasks.guards.findings import Finding

GROWN = 2.0
"""Growth of the number of observed cells, since the last fit from scratch, after which another is due: pseudo-count,
rank and start were selected for fewer cells. Fits at every doubling take less than twice the time of the last one."""


def choose_refit(
    refresh: timedelta | None,
    now: datetime,
    options: str,
    made: RunRecord | None,
    last_fresh: RunRecord | None,
    *,
    obstacle: str = "",
    drift: str = "",
    growth: float = 1.0,
    erased: bool = False,
    inputs: Mapping[str, Reference] | None = None,
) -> Refit:
    """Decide how to fit: warm, unless there is a reason for a fit from scratch.

    Parameters
    ----------
    refresh
        Age of the last fit from scratch after which another is due; None is never.
    now
        Time of the decision, with a time zone.
    options
        Digest of the options of the fit.
    made
        Record of the run that made the live model; None if there is none.
    last_fresh
        Record of the last complete run that fitted from scratch with these options; None if there is none.
    obstacle
        Clause that explains why a fit cannot start from the live model; empty if it can.
    drift
        Guard that found a drift from the data of the live model; empty if there is none.
    growth
        Observed cells of this run's dataset, as a multiple of those of the last fit from scratch.
    erased
        Whether samples have been erased since the live model was made; a fit must not start from a model that has seen
        them.
    inputs
        Dataset and counts of this run.
    """

    def fresh(reason: str) -> Refit:
        return Refit("fresh", f"fresh: {reason}", options)

    if made is None:
        return fresh("there is no live model to start from")
    if refresh == timedelta(0):
        return fresh("model.refresh is 0")
    if obstacle:
        return fresh(obstacle)
    earlier_fit = RunFacts(made.facts).refit
    if earlier_fit is None or earlier_fit.options != options:
        return fresh(f"the options of the fit have changed since run {made.number}")
    if drift:
        return fresh(f"drift: {drift}")
    if last_fresh is None:
        return fresh("the history has no fit from scratch with these options")
    if erased:
        return fresh(f"samples have been erased since run {made.number}")
    age = now - datetime.fromisoformat(last_fresh.started)
    if refresh is not None and age >= refresh:
        return fresh(f"{_describe(age)} since run {last_fresh.number}")
    if growth >= GROWN:
        return fresh(f"{growth:.1f} times the observed cells of run {last_fresh.number}")
    start = made.stages.get("start")
    if inputs and all(made.stages.get(stage) == each for stage, each in inputs.items()):
        # a warm fit has the same start as before, so that the manifest has its result
        earlier = start if start is not None and start.kind == "model" else None
        return Refit("same", f"as in run {made.number}: nothing is new", options, earlier)
    fitted = f"fitted from scratch {_describe(age)} ago, in run {last_fresh.number}"
    return Refit("warm", f"warm from run {made.number}: {fitted}", options, made.stages["model"])


def plan_refit(
    store: Store,
    config: PipelineConfig,
    schema: Schema,
    records: Sequence[RunRecord],
    inputs: Mapping[str, Reference],
    findings: Iterable[Finding],
    now: datetime,
) -> Refit:
    """Decide how the model of a run is fitted, by the history of its pipeline.

    Parameters
    ----------
    store, config, schema
        Store, configuration and schema of the pipeline.
    records
        All records of the pipeline, in order.
    inputs
        Dataset and counts of this run.
    findings
        Findings of the guards.
    now
        Time of the decision, with a time zone.

    Returns
    -------
    The decision. Only it depends on the time; artefacts are identified by their inputs.
    """
    options = digest_fit_options(config)
    live = records[-1].live if records else None
    runs = [record for record in reversed(records) if record.action == "run"]
    made = next((run for run in runs if live is not None and run.stages.get("model") == live), None)
    fresh = (
        run
        for run in runs
        if run.is_complete
        and (fit := RunFacts(run.facts).refit) is not None
        and (fit.way, fit.options) == ("fresh", options)
    )
    drifts = (
        each.sentence for each in findings if each.guard.endswith("drift") and not each.passed
    )
    last_fresh = next(fresh, None)
    # if nothing is new, the model is not fitted, and need not be opened to look for obstacles
    is_same = made is not None and all(made.stages.get(name) == inputs[name] for name in inputs)
    obstacle = ""
    if made is not None and not is_same:
        obstacle = compare_datasets(store, inputs["dataset"], made.stages["dataset"])
        obstacle = obstacle or _find_obstacle(store, config, schema, made)
    return choose_refit(
        config.model.refresh_after,
        now,
        options,
        made,
        last_fresh,
        obstacle=obstacle,
        drift=next(drifts, ""),
        growth=_measure_growth(store, last_fresh, inputs),
        erased=made is not None and _has_erased(records, made),
        inputs=inputs,
    )


def _has_erased(records: Sequence[RunRecord], since: RunRecord) -> bool:
    """Whether samples in the store have been erased since a run."""
    return any(record.number > since.number and record.samples_erased > 0 for record in records)


def digest_fit_options(config: PipelineConfig) -> str:
    """Hash with SHA-256 the options that affect a fit, except the frequency of fits from scratch."""
    unused = {"refresh"}
    if config.model.rank != "auto":
        unused.add("rank_budget")
    if not config.is_stack:
        unused.add("effort")
    content = {
        "model": config.model.model_dump(mode="json", exclude=unused),
        "em": config.em.model_dump(mode="json", exclude={"errors"}),
        "evaluate": config.evaluate.model_dump(mode="json", exclude={"hide"}),
        "folds": config.store.folds,
        "seed": config.seed,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _measure_growth(
    store: Store, last_fresh: RunRecord | None, inputs: Mapping[str, Reference]
) -> float:
    """Compute the growth of the number of observed cells since the last fit from scratch; 1 if unknown."""
    entry = store.find(inputs["dataset"].identity)
    if last_fresh is None or entry is None:
        return 1.0
    before = RunFacts(last_fresh.facts).account
    if before is None or not before.observed:
        return 1.0
    return DatasetAccount.from_json(entry.summary).observed / before.observed


def _find_obstacle(store: Store, config: PipelineConfig, schema: Schema, made: RunRecord) -> str:
    """Explain in a clause why a fit cannot start from the model of a run; empty if it can."""
    try:
        model = JointPMF.load(store.locate(made.stages["model"]) / "model")
    except StoreError:
        return "the live model is not in the store any more, or damaged"
    if model.schema.digest != schema.digest:
        return "the schema has changed"
    if model.kind == "traits":
        # traits use the settings of the live model, which every model has
        return ""
    if config.em.members > 1:
        return "the model is an average, or made of one"
    if not config.em.max_passes:
        return "em.max_passes is 0"
    if "conditional_share" in model.origin:
        return "the live model is fitted to its target, which EM would undo"
    if "stack" in model.origin and not config.is_stack:
        return "the live model is a stack"
    if not model.origin.pseudo_count:
        return "without pseudo-counts EM never leaves a zero of the live model"
    return ""


def _describe(age: timedelta) -> str:
    hours = round(age / timedelta(hours=1))
    return f"{hours} hours" if hours < 48 else f"{age.days} days"
