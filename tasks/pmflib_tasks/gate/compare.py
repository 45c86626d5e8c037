"""Stage: a new model and the live one on the same hidden cells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.base.comparison import PairedGain
from pmflib.base.display.progress import report_progress
from pmflib.model import JointPMF
from pmflib.store.artefacts import Reference
from pmflib.store.dataset import list_dataset_blocks
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.gate.comparison import compare_stored, find_obstacle
from pmflib_tasks.gate.gate import decide_gate
from pmflib_tasks.gate.gate_decision import GateDecision
from pmflib_tasks.stage import build_artefact, open_store, open_workers, stage

# 2: models for a target are compared by it
VERSION = 2


@stage(name="compare", makes="comparison")
def compare(
    config: PipelineConfig, dataset: Reference, new: Reference, live: Reference, address: str = ""
) -> Reference:
    """Predict hidden answers of the test samples of a dataset with two models, and estimate the gain of the new one.

    Parameters
    ----------
    config
        The pipeline.
    dataset, new, live
        References from `ingest`, `refine`, and the `refine` of an earlier run.
    address
        Address of a Dask scheduler; if empty, the run's workers are used, or workers start for this stage.

    Returns
    -------
    Reference to the comparison; the entry's summary holds the gain, its standard error, cells and samples.
    """
    store = open_store(config)
    report_progress("compare", 0, 1)

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        better, worse = (JointPMF.load(store.locate(each) / "model") for each in (new, live))
        blocks = list_dataset_blocks(store, dataset, config.fold_split.test)
        target = config.em.target
        index = None if target is None else better.schema.position(target)
        hidden = config.evaluate.hide, config.seed, index
        with open_workers(config, address) as (client, _):
            found = compare_stored(client, blocks, better, worse, *hidden)
        gain = found.to_json()
        (folder / "gain.json").write_text(json.dumps(gain, indent=1), "utf-8")
        return gain

    entry = build_artefact(
        store,
        "comparison",
        inputs={"dataset": dataset, "model": new, "live": live},
        options={
            "test": list(config.fold_split.test),
            "hide": config.evaluate.hide,
            "seed": config.seed,
            "target": config.em.target,
        },
        version=VERSION,
        write=write,
    )
    report_progress("compare", 1, 1, f"{entry.summary['cells']:,} hidden cells")
    return entry.reference


def pass_gate(
    config: PipelineConfig,
    dataset: Reference,
    new: Reference,
    live: Reference,
    address: str,
) -> GateDecision:
    """Compare a new model with the live one on the current dataset and on that of the live model, and decide."""
    store = open_store(config)

    def weigh(dataset_of: Reference) -> PairedGain | str:
        entry = store.find(compare.fn(config, dataset_of, new, live, address).identity)
        assert entry is not None
        found = PairedGain.from_json(entry.summary)
        return found if found.cells else "no test sample has an observed cell"

    obstacle = find_obstacle(store, new, live)
    return decide_gate(config, config.name, dataset, new, live, weigh, obstacle)
