"""Stage: EM passes over the training samples."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.base.errors import ConvergenceWarning
from pmflib.base.hooks import find_offers
from pmflib.cluster.memory import MemoryPlan
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib.store.stored_variance import open_variance
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage

VERSION = 21  # states are in order of size; 20: the law of the equivalent samples is kept


@stage(name="refine", makes="model")
def refine(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    start: Reference,
    address: str = "",
) -> Reference:
    """Refine a model by EM on the training folds, or average several; open settings are selected on held-out folds.

    Parameters
    ----------
    config
        The pipeline.
    dataset, counts
        References from `ingest` and `count`.
    start
        Reference from `fit`; or a model for a warm start, whose pseudo-count and forests are kept.
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
    records = find_offers("model_records")

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        # on most nights the manifest has the model
        from pmflib.answering.weighing import inherit_weight, weigh_model
        from pmflib.em.family import PassReporter, describe_passes
        from pmflib.em.stored_samples import StoredSamples
        from pmflib.fits.fit_result import summarise_fit
        from pmflib.fits.fit_specifications import limit_patience
        from pmflib.fits.from_samples import distil, fit_em, plan_fit_em
        from pmflib.fits.starts import PreparedStart, StoredCounts

        start_model = JointPMF.load(store.locate(start) / "model")
        schema, method, pseudo_count = start_model.schema, config.class_method, em.pseudo_count
        is_warm = start.kind == "model"
        pairs = StoredCounts(store.locate(counts) / "pairs", folds.train)
        begin: dict[str, Any] = {"rank": start_model.rank}
        prepared, dependence = PreparedStart(method, pairs, start_model), config.model.dependence
        if is_warm:
            method, pseudo_count = "given", start_model.origin.pseudo_count or 0.0
            begin, prepared = {"model": start_model}, PreparedStart(method, pairs)
            dependence = start_model.origin.get("dependence", "none")
        progress = PassReporter(partial(report_progress, "refine"), em.max_passes)
        with open_workers(config, address) as (client, memory), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the summary reports it
            training = StoredSamples.open(store, dataset, schema, folds.train, client)
            held_out = StoredSamples.open(store, dataset, schema, folds.validation, client)
            sizes: dict[str, Any] = {"members": em.members, "start": method}
            sizes["dependence"] = dependence

            def plan_worker(n_threads: int) -> MemoryPlan:
                return plan_fit_em(training, start_model.rank, n_threads=n_threads, **sizes)

            memory.check(plan_worker)
            kept, held_kept = memory.find_kept(plan_worker)
            options = em.model_dump(exclude={"members", "distil", "errors"})
            options |= {"pseudo_count": pseudo_count, "on_pass": progress}
            if is_warm and dependence == "none":
                options["patience"] = limit_patience(
                    em.patience, training.n_observed, schema.n_levels, start_model.rank
                )
            options["validation"] = held_out.with_spare(held_kept)
            report_progress("refine", 0, em.max_passes)
            begin |= {**sizes, "start": prepared, "rng": config.seed, "checkpoint": work}
            result = fit_em(training.with_spare(kept), **begin, **options)
            if em.distil:
                options |= {"seed": config.seed, "checkpoint": work / "distilled"}
                result = distil(result.model, em.distil, **options)
            text = describe_passes(result.log_likelihoods, result.held_out)
            report_progress("refine", len(result.loss_history), len(result.loss_history), text)
            hidden = [*folds.validation, *folds.test]
            unseen = StoredSamples.open(store, dataset, schema, hidden, client)
            known = is_warm and inherit_weight(result.model, start_model, training.n_samples)
            (known or weigh_model(result.model, training, unseen)).save(folder / "model")
            fitted = result.model, training, open_variance(store, dataset), em.errors
            return summarise_fit(result) | {key: record(*fitted) for key, record in records.items()}

    return build_artefact(
        store,
        "model",
        inputs={"dataset": dataset, "counts": counts, "start": start},
        options={
            **em.model_dump(),
            **{"method": config.start_method, "dependence": config.model.dependence},
            "seed": config.seed,
            **{name: list(each) for name, each in asdict(folds).items()},
        },
        version=VERSION,
        write=write,
    ).reference
