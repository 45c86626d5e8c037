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
        replace(model, origin={**model.origin, "choice": found}).save(folder / "model")
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
