"""Stage: scores of a model on held-out samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.base.display.progress import report_progress
from pmflib.counts.marginals import normalise_singles
from pmflib.counts.pair_counts import PairCounts, load_singles
from pmflib.counts.zarr_tables import StoredTables
from pmflib.fits.pair_agreement import MAX_COMPARED_LEVELS, compare_pairs
from pmflib.fits.starts import StoredCounts
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.features import list_offers
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage
from pmflib_tasks.stages.evaluation import SCORES, Folds, evaluate_stored

# 2: with a target, what it is predicted by and how well
# 3: calibration over all variables, and squared gains over single variables
# 5: how far the model agrees with the counts of all pairs (4), and errors of expected values by scale
VERSION = 6


@stage(name="evaluate", makes="scores")
def evaluate(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    model: Reference,
    address: str = "",
    with_target: bool = True,
) -> Reference:
    """Hide some answers of the test samples, predict them, and compare with the single-variable baseline.

    It is compared with the counts of pairs of all folds, too. A target is predicted from all other observed cells, and
    the model compared with other predictors of it.

    Parameters
    ----------
    config
        The pipeline.
    dataset, counts, model
        References from `ingest`, `count` and `refine`.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    with_target
        Whether the prediction of `em.target` is evaluated as well, if there is one.

    Returns
    -------
    Reference to the scores. The entry's summary holds their means, the agreement with the counts of pairs as ``pairs``
    (not of wide schemas), and the report on the target as ``target``.
    """
    store, target = open_store(config), config.em.target if with_target else None
    folds = config.fold_split
    report_progress("evaluate", 0, 1)
    entry = build_artefact(
        store,
        "scores",
        inputs={"dataset": dataset, "counts": counts, "model": model},
        options={
            "train": list(folds.train),
            "validation": list(folds.validation),
            "test": list(folds.test),
            "hide": config.evaluate.hide,
            "seed": config.seed,
            "target": target,
        },
        version=VERSION,
        write=lambda folder, work: _write(
            config, store, (dataset, counts, model), target, address, folder
        ),
    )
    report_progress("evaluate", 1, 1, f"{entry.summary.get('hidden_cells', 0):,.0f} hidden cells")
    return entry.reference


def _write(
    config: PipelineConfig,
    store: Store,
    inputs: tuple[Reference, Reference, Reference],
    target: str | None,
    address: str,
    folder: Path,
) -> Mapping[str, Any]:
    dataset, counts, reference = inputs
    folds = config.fold_split
    model = JointPMF.load(store.locate(reference) / "model")
    path = store.locate(counts) / "pairs"
    singles = normalise_singles(load_singles(path, folds=folds.train), model.schema.offsets)
    with open_workers(config, address) as (client, _):
        scores = evaluate_stored(
            client,
            list_dataset_blocks(store, dataset, folds.test),
            model,
            singles,
            config.evaluate.hide,
            config.seed,
        )
        report_on_target: Mapping[str, Any] | None = None
        if target is not None:
            parts = folds.train, folds.validation, folds.test
            blocks = Folds(*(list_dataset_blocks(store, dataset, part) for part in parts))
            pairs = StoredCounts(path, folds.train)
            for evaluate_target in list_offers("evaluate_target"):
                found = evaluate_target(client, blocks, pairs, model, target, config.seed)
                report_on_target = found.to_json()
    (folder / SCORES).write_text(json.dumps(scores.to_json(model.schema), indent=1), "utf-8")
    summary: dict[str, object] = {**scores.summarise(model.schema)}
    is_complete = StoredTables(path).is_complete
    if is_complete and model.schema.n_levels <= MAX_COMPARED_LEVELS:
        summary["pairs"] = compare_pairs(model, PairCounts.load_total(path).to_samples()).to_json()
    if report_on_target is not None:
        summary["target"] = report_on_target
        (folder / "target.json").write_text(json.dumps(report_on_target, indent=1), "utf-8")
    return summary
