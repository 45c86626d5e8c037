"""Stage: the crowd model that pairs of workers make likely."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pmflib.crowd.pipeline.fitting import write_crowd_model
from pmflib.crowd.pipeline.stored_labels import StoredLabels
from pmflib.display.progress import report_progress
from pmflib.ingest.dataset.log_names import check_label_schema
from pmflib.store.artefacts import Reference
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.stage import build_artefact, load_schema, open_store, open_workers, stage

VERSION = 5


@stage(name="crowd model")
def crowd_model(
    config: PipelineConfig,
    dataset: Reference,
    pairs: Reference,
    address: str = "",
    known: Reference | None = None,
) -> Reference:
    """Find confusion matrices and the class prior from the pairs of workers, on one machine.

    Parameters
    ----------
    config
        The pipeline; its method and its seed count.
    dataset, pairs
        What `ingest` and `worker_pairs` returned. Passes over the tasks decide what the pairs leave open.
    address
        Dask scheduler of the run; empty uses those of the run, or starts some for this stage.
    known
        What `pmflib_tasks.known.find_known_labels` returned, where the labels of some tasks are known: they decide as
        well.

    Returns
    -------
    Reference to the crowd model.

    Raises
    ------
    MemoryPlanError
        If the pairs would not fit in memory as the method needs them.
    """
    store, schema = open_store(config), check_label_schema(load_schema(config))
    method = config.crowd.method

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        with open_workers(config, address) as (client, memory):
            labels = StoredLabels(
                client,
                store,
                dataset,
                schema,
                memory=memory,
                known=known,
            )
            return write_crowd_model(
                labels,
                store.locate(pairs),
                method,
                seed=config.seed,
                folder=folder,
                work=work,
                on_scored=lambda n: report_progress("crowd model", 0, 1, f"{n} judged"),
            )

    report_progress("crowd model", 0, 1)
    entry = build_artefact(
        store,
        "crowd-model",
        inputs={"dataset": dataset, "pairs": pairs} | ({} if known is None else {"known": known}),
        options={"schema": schema.digest, "method": method, "seed": config.seed},
        version=VERSION,
        write=write,
    )
    report_progress("crowd model", 1, 1, method)
    return entry.reference
