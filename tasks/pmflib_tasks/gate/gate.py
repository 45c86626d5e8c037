"""The gate between models: comparisons on held-out data of the current dataset and of the live model's dataset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pmflib.base.comparison import PairedGain
from pmflib.base.errors import StoreError
from pmflib.store.artefacts import Reference
from pmflib.store.model_history import explain_withdrawal
from pmflib.store.run_records import find_run_of, list_records
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.gate.gate_decision import GateDecision, decide
from pmflib_tasks.stage import open_store


def decide_gate(
    config: PipelineConfig,
    name: str,
    dataset: Reference,
    new: Reference,
    live: Reference,
    weigh: Callable[[Reference], PairedGain | str],
    obstacle: str = "",
) -> GateDecision:
    """Decide by the held-out data of the current dataset and of the dataset of the live model.

    Parameters
    ----------
    config
        The pipeline.
    name
        Name of the history of the pipeline, or of its labels.
    dataset, new, live
        The current dataset, and the models.
    weigh
        Computes the gain of the new model over the live one on the held-out data of a dataset, or the reason why there
        is none.
    obstacle
        Clause that explains why the models cannot be compared; empty if they can.
    """
    store = open_store(config)
    objection = explain_withdrawal(list_records(store, name), new)
    decide_for = partial(decide, config.gate, objection=objection)
    if obstacle:
        return decide_for(obstacle, None)
    today = weigh(dataset)
    made = find_run_of(store, name, live)
    reference = None if made is None else made.stages.get("dataset")
    if reference is None:
        return decide_for(today, "no record says what data the live model was made from")
    if reference.digest == dataset.digest:
        return decide_for(today, None)
    try:
        return decide_for(today, weigh(reference))
    except StoreError:
        return decide_for(
            today, "the data that the live model was made from are gone from the store, or damaged"
        )
