"""The stages of every run, with what they need and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pmflib.base.errors import ConfigError
from pmflib.base.hooks import find_offers
from pmflib.counts.selection import describe_requested
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.store.artefacts import Reference
from pmflib.store.run_records import find_run_of
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.features import list_offers
from pmflib_tasks.guards.findings import accept, condense, refuse_empty, stop_on_findings
from pmflib_tasks.guards.quality import check_quality, read_findings
from pmflib_tasks.guards.stored_checks import FINDINGS
from pmflib_tasks.stage import load_schema, open_store
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine
from pmflib_tasks.steps import Step, Walk, find_current


def check_options(config: PipelineConfig) -> None:
    """Refuse options for which no feature of this installation does what they ask for.

    Raises
    ------
    ConfigError
        If there is one.
    """
    em = config.em
    errors = "" if em.errors in ("auto", "off") else em.errors
    for option, given, hook, name, lack, remedy in (
        (
            "errors",
            errors,
            "model_records",
            "errors",
            "finds no errors of parameters",
            "set it to 'off'",
        ),
        ("target", em.target, "target_fits", "classes", "fits no model to a target", "remove it"),
    ):
        if given and name not in find_offers(hook):
            raise ConfigError(
                f"em.{option} is {given!r}, and this installation of pmflib {lack}; add the feature that does to "
                f"pmflib.features.FEATURES, or {remedy}"
            )


def run_ingest(walk: Walk) -> Reference:
    """Encode the sources, upon the dataset of the last run."""
    config = walk.config
    check_options(config)
    for check in list_offers("check_run"):
        check(config, load_schema(config))
    base = walk.find_original("dataset", walk.base)
    return ingest(config, walk.address, base=base, rehash=walk.rehash)


def run_count(walk: Walk) -> Reference:
    """Count pairs, upon the counts of the last run unless steps changed the dataset of either run."""
    changed = (step.original for step in walk.steps if step.gives == "dataset" and step.original)
    # what they change depends on all samples
    is_changed = any(name in walk.stages or name in walk.base for name in changed)
    base = None
    if walk.base and not is_changed:
        base = walk.base["dataset"], walk.base["counts"]
    made = count(walk.config, walk.stages["dataset"], walk.address, base)
    entry = open_store(walk.config).find(made.identity)
    if entry is not None and (requested := entry.options.get("pairs")) is not None:
        number = entry.summary["counted_variables"]
        sentence = describe_requested(load_schema(walk.config), requested, number)
        walk.facts.note(pairs={"variables": number, "sentence": sentence})
    return made


def run_guards(walk: Walk) -> Reference:
    """Run the quality checks, and record their findings: see `hold_data_back`."""
    config, stages = walk.config, walk.stages
    live = walk.live
    live_run = None if live is None else find_run_of(open_store(config), config.name, live)
    made = check_quality(config, stages["dataset"], stages["counts"], live_run, walk.last)
    hold_data_back(walk, made, "pmf run")
    return made


def hold_data_back(walk: Walk, quality: Reference, command: str) -> None:
    """Record the findings of quality checks, and end the run if they stop it.

    Parameters
    ----------
    walk
        The run, with its dataset.
    quality
        Artefact of the checks, which becomes one of the run.
    command
        Command that accepts the findings with the option ``--accept-quality``.

    Raises
    ------
    SourceError
        If there are no usable data; this is never accepted.
    QualityError
        If a check stops the run.
    """
    walk.stages["quality"] = quality
    findings = read_findings(walk.config, quality)
    if walk.accepted:
        findings = accept(findings)
    # records name nobody: they are never changed, and a person may ask to be erased
    walk.facts.note(quality=[replace(each, named=()) for each in condense(findings)])
    entry = open_store(walk.config).find(walk.stages["dataset"].identity)
    if entry is not None:
        refuse_empty(DatasetAccount.from_json(entry.summary))
    stop_on_findings(findings, command, f"{quality.path}/{FINDINGS} of the store")


def set_chosen_rank(walk: Walk) -> PipelineConfig:
    """Return the configuration with the rank as it was selected, if it was."""
    if (rank := walk.stages.get("rank")) is None:
        return walk.config
    from pmflib_tasks.stages.select import set_rank

    return set_rank(walk.config, rank)


def run_select(walk: Walk) -> Reference:
    """Select the rank."""
    from pmflib_tasks.stages.select import select

    return select(walk.config, walk.stages["dataset"], walk.stages["counts"], walk.address)


def run_warm_start(walk: Walk) -> Reference:
    """Start from the live model."""
    assert walk.refit.start is not None
    return walk.refit.start


def run_fit(walk: Walk) -> Reference:
    """Make a start from the counts."""
    return fit(set_chosen_rank(walk), walk.stages["counts"], walk.stages.get("rank"))


def run_refine(walk: Walk) -> Reference:
    """Refine latent classes by EM."""
    dataset, counts, start = (walk.stages[name] for name in REFINE.needs)
    return refine(set_chosen_rank(walk), dataset, counts, start, walk.address)


def run_stack(walk: Walk) -> Reference:
    """Fit a stack; a warm start continues the live one."""
    from pmflib_tasks.stages.stack import stack

    start = walk.refit.start
    if start is not None:
        walk.stages["start"] = start
    return stack(walk.config, walk.stages["dataset"], start, walk.address)


def run_evaluate(walk: Walk) -> Reference:
    """Score the model on held-out samples, and against the counts that it was fitted with."""
    counts, stages = walk.find_current("counts"), walk.stages
    return evaluate(walk.config, stages["dataset"], counts, stages["model"], walk.address)


def run_marginals(walk: Walk) -> Reference:
    """Publish the marginals of the counts that the model was fitted with."""
    from pmflib_tasks.stages.marginals import publish_marginals

    return publish_marginals(walk.config, walk.find_current("counts"))


REFINE = Step("model", run_refine, needs=("dataset", "counts", "start"))
"""Latent classes."""

STEPS = (
    Step("dataset", run_ingest),
    Step("counts", run_count, needs=("dataset",)),
    Step("quality", run_guards, needs=("dataset", "counts")),
    Step(
        "rank",
        run_select,
        needs=("dataset", "counts"),
        applies=lambda walk: walk.config.model.rank == "auto",
    ),
    Step("start", run_warm_start, applies=lambda walk: walk.refit.start is not None),
    Step("start", run_fit, needs=("counts",), uses=("rank",)),
    Step(
        "model", run_stack, needs=("dataset", "counts"), applies=lambda walk: walk.config.is_stack
    ),
    REFINE,
    Step("scores", run_evaluate, needs=("dataset", "counts", "model")),
    Step("marginals", run_marginals, needs=("counts",)),
)
"""The steps of every run."""


def list_steps() -> list[Step]:
    """List all steps: those of features, which are asked first, and those of every run."""
    return [*(step for steps in list_offers("steps") for step in steps), *STEPS]


def find_counts(stages: Mapping[str, Reference]) -> Reference:
    """Find the counts that the model of a run was fitted with and is judged by."""
    return find_current("counts", stages, list_steps())
