"""Stage: fit of a stack of models, from scratch or from yesterday's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmflib.base.display.progress import report_progress
from pmflib.base.errors import ConvergenceWarning
from pmflib.cluster.memory import MemoryPlan
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

if TYPE_CHECKING:
    from pmflib.em.stored_samples import StoredSamples

VERSION = 2
CLASSES = "classes"
"""Folder of the latent classes beside a stack in its artefact, and key of how far they disagree in its summary."""


@stage(name="stack", makes="model")
def stack(
    config: PipelineConfig, dataset: Reference, start: Reference | None = None, address: str = ""
) -> Reference:
    """Fit a stack to the training folds, with weights from the validation folds; of few rows, from training rows.

    Parameters
    ----------
    config
        The pipeline, without a rank.
    dataset
        Reference from `ingest`.
    start
        Stack that is continued; None fits one from scratch.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the model.

    Raises
    ------
    MemoryPlanError
        If the parameters and statistics do not fit in memory.
    """
    store, em, folds = open_store(config), config.em, config.fold_split
    dependence, effort = config.model.dependence, config.model.effort

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        # on most nights the manifest has the model
        from pmflib.answering.equivalent_samples import find_equivalent_samples
        from pmflib.answering.weighing import weigh_model
        from pmflib.em.family import PassReporter
        from pmflib.em.stored_samples import StoredSamples
        from pmflib.fits.fit_result import summarise_fit
        from pmflib.fits.from_samples import fit_em, plan_fit_em
        from pmflib.fits.stack.readings import compare_readings
        from pmflib.fits.stack.splits import FEW_ROWS, MOST_HELD_OUT

        schema, begin = load_schema(config), dict[str, Any]()
        live = None if start is None else JointPMF.load(store.locate(start) / "model")
        if live is not None:
            begin = {"model": live}
        with open_workers(config, address) as (client, memory), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            training = StoredSamples.open(store, dataset, schema, folds.train, client)
            held_out = StoredSamples.open(store, dataset, schema, folds.validation, client)

            def plan_worker(n_threads: int) -> MemoryPlan:
                return plan_fit_em(
                    training, None, dependence=dependence, effort=effort, n_threads=n_threads
                )

            memory.check(plan_worker)
            kept, held_kept = memory.find_kept(plan_worker)
            options = em.model_dump(include={"max_passes", "tol", "patience", "pseudo_count"})
            # few validation rows tell less of weights than training rows that are held out in turn
            has_few = training.n_rows < FEW_ROWS
            result = fit_em(
                training.with_spare(kept),
                validation=None if has_few else held_out.with_spare(held_kept),
                dependence=dependence,
                effort=effort,
                rng=config.seed,
                checkpoint=work,
                on_pass=PassReporter(partial(report_progress, "stack"), em.max_passes),
                **begin,
                **options,
            )
            names = ", ".join(f"{each.name} {each.weight:.2f}" for each in result.ladder)
            report_progress("stack", em.max_passes, em.max_passes, names)
            hidden = [*folds.validation, *folds.test]
            unseen = StoredSamples.open(store, dataset, schema, hidden, client)
            model = result.model
            # a model that is continued keeps its weight
            if live is None or not find_equivalent_samples(model.origin).n_questions:
                model = weigh_model(model, training, unseen)
            model.save(folder / "model")
            if config.model.classes is None:
                return summarise_fit(result)
            known = None if start is None else store.locate(start) / CLASSES
            read = fit_classes(config, training, held_out, known)
            read.save(folder / CLASSES)
            said = compare_readings(model, read, held_out.read_some(MOST_HELD_OUT))
            return summarise_fit(result) | {CLASSES: said.to_json()}

    report_progress("stack", 0, em.max_passes)
    return build_artefact(
        store,
        "model",
        inputs={"dataset": dataset} | ({} if start is None else {"start": start}),
        options={
            **em.model_dump(include={"max_passes", "tol", "patience", "pseudo_count"}),
            **{"method": "stack", "effort": effort, "dependence": dependence},
            **({} if config.model.classes is None else {CLASSES: config.model.classes}),
            "seed": config.seed,
            **{name: list(each) for name, each in asdict(folds).items()},
        },
        version=VERSION,
        write=write,
    ).reference


def fit_classes(
    config: PipelineConfig, training: StoredSamples, held_out: StoredSamples, known: Path | None
) -> JointPMF:
    """Fit the latent classes beside a stack, from those of the live stack if they have the number that is wanted."""
    from pmflib.fits.from_samples import fit_em

    number, begin = config.model.classes, dict[str, Any]()
    if known is not None and known.exists():
        start = JointPMF.load(known)
        begin = {"model": start} if number in ("auto", start.rank) else begin
    report_progress(CLASSES, 0, config.em.max_passes)
    return fit_em(
        training,
        validation=held_out if held_out.n_rows else None,
        rng=config.seed,
        **(begin or {"rank": number}),
        **config.em.model_dump(include={"max_passes", "tol", "patience", "pseudo_count"}),
    ).model
