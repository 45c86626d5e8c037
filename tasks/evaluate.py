"""Stage: scores of a model on held-out samples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.config import PipelineConfig
from pmflib.counting.marginals import normalise_singles
from pmflib.counting.pair_counts import load_singles
from pmflib.model import JointPMF
from pmflib.model.stored_evaluation import evaluate_stored
from pmflib.store.artefacts import Reference, Store
from pmflib.store.dataset import list_dataset_blocks
from tasks.stage import build_artefact, open_store, open_workers, stage
from tasks.stage_progress import report

VERSION = 1


@stage(name="evaluate")
def evaluate(
    config: PipelineConfig,
    dataset: Reference,
    counts: Reference,
    model: Reference,
    address: str = "",
) -> Reference:
    """Hide some answers of the test samples, predict them, and compare with the single-variable baseline.

    Parameters
    ----------
    config
        The pipeline.
    dataset, counts, model
        References from `ingest`, `count` and `refine`.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.

    Returns
    -------
    Reference to the scores; the entry's summary holds their means.
    """
    store = open_store(config)
    folds = config.fold_split
    report("evaluate", 0, 1)
    entry = build_artefact(
        store,
        "scores",
        inputs={"dataset": dataset, "counts": counts, "model": model},
        options={"test": list(folds.test), "hide": config.evaluate.hide, "seed": config.seed},
        version=VERSION,
        write=lambda folder, work: _write(config, store, (dataset, counts, model), address, folder),
    )
    report("evaluate", 1, 1, f"{entry.summary.get('hidden_cells', 0):,.0f} hidden cells")
    return entry.reference


def _write(
    config: PipelineConfig,
    store: Store,
    inputs: tuple[Reference, Reference, Reference],
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
    by_variable = scores.to_json(model.schema)
    (folder / "scores.json").write_text(json.dumps(by_variable, indent=1), "utf-8")
    return scores.summarise(model.schema)
