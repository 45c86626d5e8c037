"""Stage: the choice between continuous traits and latent classes by predictions of hidden answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.gate.comparison import ModelChoice, choose_model, compare_stored
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage
from pmflib_tasks.stages.order import REFINE
from pmflib_tasks.steps import Step, Walk

VERSION = 1


@stage(name="choose", makes="model")
def choose(
    config: PipelineConfig,
    dataset: Reference,
    classes: Reference,
    traits: Reference | None,
    refusal: str = "",
    address: str = "",
) -> Reference:
    """Hide answers of the validation samples in rounds, predict them with both models, and choose the better model.

    Parameters
    ----------
    config
        The pipeline.
    dataset, classes, traits
        References from `ingest`, `refine` and `fit_traits`; traits are None if they could not be fitted.
    refusal
        Reason why they could not be fitted, as a sentence.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the better model, whose origin records the choice; the summary of the entry is that of its fit, with
    the choice and its reason.
    """
    store, folds = open_store(config), config.fold_split
    fitted = {"classes": classes} | ({} if traits is None else {"traits": traits})

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        models = {
            kind: JointPMF.load(store.locate(each) / "model") for kind, each in fitted.items()
        }
        choice = ModelChoice("classes", f"latent classes: {refusal}")
        if traits is not None:
            blocks = list_dataset_blocks(store, dataset, folds.validation)
            pair = models["traits"], models["classes"]
            with open_workers(config, address) as (client, _):
                gain = compare_stored(client, blocks, *pair, config.evaluate.hide, config.seed)
            choice = choose_model(gain)
        model, found = models[choice.chosen], choice.to_json()
        replace(model, origin=model.origin.add(choice=found)).save(folder / "model")
        entry = store.find(fitted[choice.chosen].identity)
        assert entry is not None
        notes = [choice.reason, *entry.summary.get("notes", ())]
        return {**entry.summary, "notes": notes, "choice": found}

    report_progress("choose", 0, 1)
    entry = build_artefact(
        store,
        "model",
        inputs={"dataset": dataset, **fitted},
        options={
            "train": list(folds.train),
            "validation": list(folds.validation),
            "hide": config.evaluate.hide,
            "seed": config.seed,
            "refusal": refusal,
        },
        version=VERSION,
        write=write,
    )
    report_progress("choose", 1, 1, entry.summary["choice"]["reason"])
    return entry.reference


def has_traits(config: PipelineConfig, model: Reference) -> bool:
    """Whether a model of the store has traits."""
    entry = open_store(config).find(model.identity)
    return entry is not None and "n_traits" in entry.summary


def continues_traits(walk: Walk) -> bool:
    """Whether the live model, which the model of a run starts from, has traits."""
    start = walk.refit.start
    return start is not None and has_traits(walk.config, start)


def run_fit_traits(walk: Walk) -> Reference:
    """Fit traits; a warm start uses the settings of the live model."""
    # runs of latent classes need none
    from pmflib_tasks.traits.fit_traits import fit_traits

    start = walk.refit.start
    if start is not None:
        walk.stages["start"] = start
    return fit_traits(walk.config, walk.stages["dataset"], start, walk.address)


def run_choice(walk: Walk) -> Reference:
    """Fit latent classes and, unless there is a reason against them, traits, and choose the better model.

    Where the live model has traits, these are fitted alone. The stages start and rank belong to the run if the model
    has latent classes, which were made from them.
    """
    from pmflib_tasks.traits.fit_traits import explain_refusal, fit_traits

    config, dataset, stages = walk.config, walk.stages["dataset"], walk.stages
    refusal = explain_refusal(config, dataset, walk.refit.start, walk.address)
    if continues_traits(walk) and not refusal:
        return run_fit_traits(walk)
    classes = walk.branch()
    classes.take(REFINE)
    stages["classes"] = classes.stages["model"]
    if not refusal:
        stages["traits"] = fit_traits(config, dataset, None, walk.address)
    both = stages["classes"], stages.get("traits")
    model = choose(config, dataset, *both, refusal, walk.address)
    if not has_traits(config, model):
        stages |= {name: each for name, each in classes.stages.items() if name not in stages}
    return model


STEPS = (
    Step(
        "model",
        run_choice,
        needs=("dataset", "counts"),
        applies=lambda walk: (
            walk.config.compares_traits and (walk.refit.start is None or continues_traits(walk))
        ),
    ),
    Step(
        "model",
        run_fit_traits,
        needs=("dataset",),
        applies=lambda walk: walk.config.has_traits or continues_traits(walk),
    ),
)
"""Traits are fitted from scratch where they are asked for or compared, and go on where the live model has them."""
