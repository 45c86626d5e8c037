"""The scheduled flow, and flows for its first parts, each of which runs all stages up to its own.

A stage whose result is in the manifest returns immediately, so a flow continues where an earlier one stopped.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pmflib.cluster.workers import share_workers
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.ingest.dataset.file_accounts import find_summary
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import find_last_run, find_run_of, list_records
from pmflib_flows.pipeline_flow import pipeline_flow
from pmflib_flows.recording import RunDraft, follow_run, record_run
from pmflib_tasks.config import PipelineConfig, load_config
from pmflib_tasks.gate.publish import locate_for_people, publish
from pmflib_tasks.gate.refit import plan_refit
from pmflib_tasks.guards.findings import accept, condense, find_recorded, hold_back, refuse_empty
from pmflib_tasks.guards.quality import check_quality, read_findings
from pmflib_tasks.margins.rake import rake
from pmflib_tasks.margins.section import MarginsConfig
from pmflib_tasks.planning.planning import check_run_width
from pmflib_tasks.selection.select import select, settle
from pmflib_tasks.sites.pool import fit_pooled, pool
from pmflib_tasks.sites.section import SitesConfig
from pmflib_tasks.small_runs import describe_place, is_small
from pmflib_tasks.stage import load_schema, open_store
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine
from pmflib_tasks.traits.choose import choose
from pmflib_tasks.traits.fit_traits import explain_refusal, fit_traits, has_traits


@pipeline_flow(name="ingest")
def ingest_flow(config: str) -> Reference:
    """Encode the sources of a pipeline configuration file into partitions."""
    checked = load_config(config)
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        return ingest(checked, address, base=find_encoded(find_base(checked)))


@pipeline_flow(name="marginals")
def marginals_flow(config: str) -> Reference:
    """Count the co-occurrences of all pairs."""
    checked = load_config(config)
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        stages: dict[str, Reference] = {}
        run_to_counts(checked, address, stages)
        return stages["counts"]


@pipeline_flow(name="fit")
def fit_flow(config: str) -> Reference:
    """Fit a model to the marginals, and refine it by EM."""
    checked = load_config(config)
    with follow_run(checked), share_workers(checked.cluster, alone=is_small(checked)) as address:
        stages: dict[str, Reference] = {}
        run_to_counts(checked, address, stages)
        run_to_model(checked, address, stages, {})
        return stages["model"]


@pipeline_flow(name="etl")
def etl(
    config: str, accept_quality: bool = False, rehash: bool = False, quick: bool = False
) -> dict[str, Any]:
    """Ingest, count, check quality, fit, refine, evaluate and publish.

    Parameters
    ----------
    config
        Path of a pipeline configuration file.
    accept_quality
        Whether to accept data that fail a quality check, for this run only.
    rehash
        Whether to read the contents of all sources, including those that seem unchanged.
    quick
        Whether to limit the choice of the rank to a minute.

    Returns
    -------
    Facts of the run for display: those of its record, its outcome and reason, and the location of the live model.
    """
    checked = load_config(config)
    if quick:
        checked = checked.hurry()
    with (
        record_run(checked) as run,
        share_workers(checked.cluster, alone=(alone := is_small(checked))) as address,
    ):
        stages = run.stages
        run.facts["where"] = describe_place(checked, alone=alone)
        run_to_counts(checked, address, stages, rehash=rehash)
        guard(checked, run, accepted=accept_quality)
        run_to_model(checked, address, stages, run.facts)
        stages["scores"] = evaluate(
            checked,
            stages["dataset"],
            stages.get("pooled", stages["counts"]),
            stages["model"],
            address,
        )
        decision = publish(checked, stages, address)
        run.outcome, run.reason = decision.outcome, decision.reason
        run.live, run.before = decision.live, decision.before
        run.facts |= decision.facts
    assert run.live is not None
    paths = locate_for_people(open_store(checked), run.live)
    found = {"run": run.number, "outcome": run.outcome, "reason": run.reason}
    return {**found, **run.facts, **paths}


def find_base(config: PipelineConfig) -> dict[str, Reference]:
    """Return references by stage of the last complete run as the base of the next one; empty if there is none."""
    last = find_last_run(open_store(config), config.name)
    return {} if last is None else last.stages


def find_encoded(base: dict[str, Reference]) -> Reference | None:
    """Return the dataset of an earlier run as it was encoded, before raking; None if there is none."""
    return base.get("encoded", base.get("dataset"))


def name_counted(base: dict[str, Reference]) -> tuple[Reference, Reference] | None:
    """Return the dataset of an earlier run and its counts; None if there is none, or its weights were raked."""
    return (base["dataset"], base["counts"]) if base and "encoded" not in base else None


def run_to_counts(
    config: PipelineConfig, address: str, stages: dict[str, Reference], *, rehash: bool = False
) -> None:
    """Run the stages from new data to counts; references are added as stages are reached."""
    check_run_width(config, load_schema(config))
    base = find_base(config)
    dataset = stages["dataset"] = ingest(config, address, base=find_encoded(base), rehash=rehash)
    if config.section(MarginsConfig).are_known:
        refuse_empty(DatasetAccount.from_json(find_summary(open_store(config), dataset)))
        stages["encoded"] = dataset
        dataset = stages["dataset"] = rake(config, dataset, address)
        # factors depend on all samples, and weights of all change with them
        base = {}
    stages["counts"] = count(config, dataset, address, name_counted(base))


def guard(config: PipelineConfig, run: RunDraft, *, accepted: bool) -> None:
    """Run the quality checks on the dataset and the counts of a run.

    Parameters
    ----------
    config
        The pipeline.
    run
        Current run, whose facts receive the findings.
    accepted
        Whether the run continues even if a check fails.

    Raises
    ------
    SourceError
        If there are no usable data; this is never accepted.
    QualityError
        If a check stops the run.
    """
    store, stages = open_store(config), run.stages
    live_run = None if run.live is None else find_run_of(store, config.name, run.live)
    stages["quality"] = check_quality(
        config, stages["dataset"], stages["counts"], live_run, find_last_run(store, config.name)
    )
    findings = read_findings(config, stages["quality"])
    if accepted:
        findings = accept(findings)
    run.facts["quality"] = [asdict(each) for each in condense(findings)]
    entry = store.find(stages["dataset"].identity)
    if entry is not None:
        refuse_empty(DatasetAccount.from_json(entry.summary))
    hold_back(findings)


def run_to_model(
    config: PipelineConfig, address: str, stages: dict[str, Reference], facts: dict[str, object]
) -> None:
    """Run the stages from the counts to the refined model; facts are added as they become known.

    A model is fitted from scratch, with starts made from the counts, or warm-started from the live model. Traits are
    fitted to the samples; a warm start uses the settings of the live model. If traits and latent classes are compared,
    a fit from scratch makes both, and a warm start continues with the family of the live model. With counts of other
    sites, the model is fitted to pairs.
    """
    dataset, counts = stages["dataset"], stages["counts"]
    store = open_store(config)
    if config.section(SitesConfig).root:
        stages["pooled"] = pool(config, counts)
        stages["model"] = fit_pooled(config, dataset, stages["pooled"])
        return
    refit = plan_refit(
        store,
        config,
        load_schema(config),
        list_records(store, config.name),
        {"dataset": dataset, "counts": counts},
        find_recorded(facts),
        datetime.now(UTC),
    )
    facts["refit"] = refit.to_json()
    start = refit.start
    goes_on = start is not None and has_traits(config, start)
    refusal = ""
    if config.compares_traits and (start is None or goes_on):
        refusal = explain_refusal(config, dataset, start, address)
    if config.compares_traits and (start is None or (goes_on and refusal)):
        run_to_choice(config, address, stages, refusal)
    elif config.has_traits or goes_on:
        stages |= {} if start is None else {"start": start}
        stages["model"] = fit_traits(config, dataset, start, address)
    else:
        run_to_classes(config, address, stages, start)


def run_to_classes(
    config: PipelineConfig, address: str, stages: dict[str, Reference], start: Reference | None
) -> None:
    """Run the stages from the counts to refined latent classes, from scratch or from a given model."""
    dataset, counts = stages["dataset"], stages["counts"]
    if start is None:
        if config.model.rank == "auto":
            stages["rank"] = select(config, dataset, counts, address)
            config = settle(config, stages["rank"])
        start = fit(config, counts, stages.get("rank"))
    stages["start"] = start
    stages["model"] = refine(config, dataset, counts, start, address)


def run_to_choice(
    config: PipelineConfig, address: str, stages: dict[str, Reference], refusal: str
) -> None:
    """Fit latent classes and, unless there is a reason against them, traits, and choose the better model.

    The stages start and rank belong to the run if the model has latent classes, which were made from them.
    """
    dataset, classes = stages["dataset"], dict(stages)
    run_to_classes(config, address, classes, None)
    stages["classes"] = classes["model"]
    if not refusal:
        stages["traits"] = fit_traits(config, dataset, None, address)
    both = stages["classes"], stages.get("traits")
    stages["model"] = choose(config, dataset, *both, refusal, address)
    if not has_traits(config, stages["model"]):
        stages |= {name: each for name, each in classes.items() if name not in stages}
