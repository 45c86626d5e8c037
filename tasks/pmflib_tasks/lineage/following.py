"""Events of OpenLineage sent while a run takes place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pmflib.base.events import listen
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.lineage.lineage import RunEvents, open_events
from pmflib_tasks.lineage.section import LineageConfig
from pmflib_tasks.prefect_runs import find_flow_run_id
from pmflib_tasks.stage import StageRun, open_store


@contextmanager
def follow_run(config: PipelineConfig, name: str) -> Iterator[Callable[..., None]]:
    """Send the events for the start of a run and for its stages within the context.

    Parameters
    ----------
    config
        The pipeline.
    name
        Job name: that of the pipeline, or of another command.

    Yields
    ------
    Function that ends the run: `RunEvents.end_run`. The run has the id of the Prefect flow run.

    Raises
    ------
    ConfigError
        If the OpenLineage client cannot be set up.
    """
    store, lineage = open_store(config), config.section(LineageConfig)
    with open_events(lineage, store) as send:
        paths, run_id = config.source_paths, find_flow_run_id()
        events = RunEvents(send, store, lineage.namespace, name, paths, run_id)
        events.start_run()

        def follow(stage: StageRun) -> None:
            if stage.is_over:
                events.end_stage(stage.stage, stage.run_id, stage.made, stage.error)
            else:
                events.start_stage(stage.stage, stage.run_id)

        with listen(follow, StageRun):
            yield events.end_run
