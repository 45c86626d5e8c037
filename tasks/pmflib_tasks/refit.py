"""Whether a model is fitted from scratch or refitted warm, by passes from the live model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pmflib.core.errors import StoreError
from pmflib.em.stored_samples import StoredSamples
from pmflib.fitting.fit_specifications import is_plenty
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.model import JointPMF
from pmflib.schema import Schema
from pmflib.store.artefacts import Reference, Store
from pmflib.store.run_records import RunRecord
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.guards.findings import Finding

GROWN = 2.0
"""Times as many observed cells as at the last fit from scratch from which another is due: pseudo-count, rank and start
were chosen for fewer, and the time of fits at every doubling adds up to less than twice that of the last."""

WARM_PATIENCE = 2
"""Passes without a rise of the held-out log-likelihood after which a warm refit of plenty of samples ends, at most: it
begins where another fit has ended, and what more passes gain is below what held-out samples can show."""


@dataclass(frozen=True)
class Refit:
    """How the model of a run is fitted.

    Parameters
    ----------
    way
        From scratch; warm, from the live model, or, of traits, with its settings; or as the run that made the live
        model did, for nothing is new.
    reason
        One sentence for a person.
    options
        Digest of the options of the fit.
    start
        Model that the fit goes on from; None where all is chosen, and starts are made of the counts.
    """

    way: Literal["fresh", "warm", "same"]
    reason: str
    options: str
    start: Reference | None = None

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> Refit | None:
        """How the model of a run was fitted, by the facts of its record; None where it did not come to that."""
        found = facts.get("refit")
        return cls(found["way"], found.get("reason", ""), found["options"]) if found else None

    def to_json(self) -> dict[str, str]:
        """Plain JSON types, for the record of the run: what the fit goes on from is among its stages."""
        return {"way": self.way, "reason": self.reason, "options": self.options}


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
    """Decide how to fit: warm, unless something asks for a fit from scratch.

    Parameters
    ----------
    refresh
        Age of the last fit from scratch from which another is due; None is never.
    now
        Time of the decision, with a time zone.
    options
        Digest of the options of the fit.
    made
        Record of the run that made the live model; None where there is none.
    last_fresh
        Record of the last run that fitted from scratch with these options and came to its end; None if there is none.
    obstacle
        Why a fit cannot go on from the live model, as a clause; "" if it can.
    drift
        Finding of quality by which the data are not those that the live model was made from; "" if there is none.
    growth
        Observed cells of this run's dataset, as a multiple of those of the last fit from scratch.
    erased
        Whether samples have been erased since the live model was made: what has seen them is not built upon.
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
    earlier_fit = Refit.find(made.facts)
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
        # what was fitted warm starts from where it started then, and is found in the manifest
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
        Those of the pipeline.
    records
        All records of the pipeline, in order.
    inputs
        Dataset and counts of this run.
    findings
        What the guards of quality found.
    now
        Time of the decision, with a time zone.

    Returns
    -------
    The decision. The time plays a part in it alone: an artefact is identified by what it is made from.
    """
    options = digest_fit_options(config)
    live = records[-1].live if records else None
    runs = [record for record in reversed(records) if record.action == "run"]
    made = next((run for run in runs if live is not None and run.stages.get("model") == live), None)
    fresh = (
        run
        for run in runs
        if run.is_complete
        and (fit := Refit.find(run.facts)) is not None
        and (fit.way, fit.options) == ("fresh", options)
    )
    drifts = (
        each.sentence for each in findings if each.guard.endswith("drift") and not each.passed
    )
    last_fresh = next(fresh, None)
    # where nothing is new the model is not fitted, and what it could not start from is not asked: that opens it
    is_same = made is not None and all(made.stages.get(name) == inputs[name] for name in inputs)
    return choose_refit(
        config.model.refresh_after,
        now,
        options,
        made,
        last_fresh,
        obstacle="" if made is None or is_same else _find_obstacle(store, config, schema, made),
        drift=next(drifts, ""),
        growth=_measure_growth(store, last_fresh, inputs),
        erased=made is not None and _has_erased(records, made),
        inputs=inputs,
    )


def _has_erased(records: Sequence[RunRecord], since: RunRecord) -> bool:
    """Whether samples that the store held have been erased since a run."""
    return any(record.number > since.number and record.samples_erased > 0 for record in records)


def digest_fit_options(config: PipelineConfig) -> str:
    """SHA-256 of the options that a fit depends on, but for how often it is made from scratch."""
    unused = {"refresh"} if config.model.rank == "auto" else {"refresh", "rank_budget"}
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
    """Observed cells of a dataset, as a multiple of those of the last fit from scratch; 1 where they are not known."""
    entry = store.find(inputs["dataset"].identity)
    if last_fresh is None or entry is None:
        return 1.0
    before = DatasetAccount.find(last_fresh.facts)
    if before is None or not before.observed:
        return 1.0
    return DatasetAccount.from_json(entry.summary).observed / before.observed


def _find_obstacle(store: Store, config: PipelineConfig, schema: Schema, made: RunRecord) -> str:
    """Why a fit cannot start from the model of a run, as a clause."""
    try:
        model = JointPMF.load(store.locate(made.stages["model"]) / "model")
    except StoreError:
        return "the live model is not in the store any more, or damaged"
    if model.schema.digest != schema.digest:
        return "the schema has changed"
    if model.trait_model is not None:
        # traits go on from what was chosen for the live model, which any has
        return ""
    if config.em.members > 1:
        return "the model is an average, or made of one"
    if not config.em.max_passes:
        return "em.max_passes is 0"
    if "conditional_share" in model.origin:
        return "the live model is fitted to its target, which EM would undo"
    if not model.origin.get("pseudo_count"):
        return "without pseudo-counts EM never leaves a zero of the live model"
    return ""


def _describe(age: timedelta) -> str:
    hours = round(age / timedelta(hours=1))
    return f"{hours} hours" if hours < 48 else f"{age.days} days"


def limit_patience(patience: int, samples: StoredSamples, rank: int) -> int:
    """Passes without a rise after which a warm refit of latent classes ends.

    Parameters
    ----------
    patience
        Those of a fit from scratch.
    samples
        Training samples. Of fewer than are plenty, passes cost little and gain more: it ends as a fit from scratch.
    rank
        Latent states.
    """
    if is_plenty(samples.n_observed, samples.schema.n_levels, rank):
        return min(patience, WARM_PATIENCE)
    return patience
