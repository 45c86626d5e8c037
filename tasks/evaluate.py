"""Stage: scores of a model on held-out samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.counting.marginals import normalise_singles
from pmflib.counting.pair_counts import PairCounts, load_singles
from pmflib.model import JointPMF
from pmflib.model.stored_evaluation import SCORES, evaluate_stored
from pmflib.prediction.stored_prediction import Folds, judge_stored
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.stage import build_artefact, open_store, open_workers, stage
from tasks.stage_progress import report

# 2: with a target, what it is predicted by and how well
# 3: calibration over all variables, and squared gains over single variables
VERSION = 3


@stage(name="evaluate")
def evaluate(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    model: Reference,
    address: str = "",
    judge_target: bool = True,
) -> Reference:
    """Hide some answers of the test samples, predict them, and compare with the single-variable baseline.

    Where the model is for a target, it is predicted from all other observed cells, and compared with other predictors.

    Parameters
    ----------
    config
        The pipeline.
    dataset, counts, model
        References from `ingest`, `count` and `refine`.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    judge_target
        Whether the prediction of `em.target` is judged as well, if there is one.

    Returns
    -------
    Reference to the scores; the entry's summary holds their means, and the report on the target as ``target``.
    """
    store, target = open_store(config), config.em.target if judge_target else None
    folds = config.fold_split
    report("evaluate", 0, 1)
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
    report("evaluate", 1, 1, f"{entry.summary.get('hidden_cells', 0):,.0f} hidden cells")
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
    singles = load_singles(store.locate(counts) / "pairs", folds=folds.train)
    with open_workers(config, address) as (client, _):
        scores = evaluate_stored(
            client,
            list_dataset_blocks(store, dataset, folds.test),
            model,
            normalise_singles(singles, model.schema.offsets),
            config.evaluate.hide,
            config.seed,
        )
        report_on_target = None
        if target is not None:
            parts = folds.train, folds.validation, folds.test
            blocks = Folds(*(list_dataset_blocks(store, dataset, part) for part in parts))
            pairs = PairCounts.load_total(store.locate(counts) / "pairs", folds=folds.train)
            report_on_target = judge_stored(client, blocks, pairs, model, target, config.seed)
    content = json.dumps(scores.to_json(model.schema), indent=1)
    (folder / SCORES).write_text(content, "utf-8")
    summary: dict[str, Any] = {**scores.summarise(model.schema)}
    if report_on_target is not None:
        (folder / "target.json").write_text(json.dumps(report_on_target, indent=1), "utf-8")
        summary["target"] = report_on_target
    return summary
