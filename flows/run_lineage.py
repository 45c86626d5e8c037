"""Events of lineage around a run: its start, its stages, its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pmflib.config import PipelineConfig
from pmflib.open_lineage.run_events import RunEvents
from pmflib.open_lineage.transports import open_transport
from pmflib.store.erasures import keep_erasures_out
from tasks.prefect_runs import find_flow_run_id
from tasks.stage import open_store
from tasks.stage_events import listen_to_stages


@contextmanager
def emit_events(config: PipelineConfig, name: str) -> Iterator[RunEvents]:
    """Send the event of a run that starts, and those of its stages while the context lasts.

    Parameters
    ----------
    config
        The pipeline.
    name
        Name of the job: of the pipeline, or of what else is run.

    Yields
    ------
    The events, for the one that ends the run. Their run has the id of the flow run in Prefect.

    Raises
    ------
    ConfigError
        If the transport cannot be set up.
    """
    store = open_store(config)
    with open_transport(config.lineage, store) as transport:
        events = RunEvents(
            transport.send,
            store,
            config.lineage.namespace,
            name,
            config.source_paths,
            find_flow_run_id(),
        )
        events.start_run()
        with listen_to_stages(events):
            yield events


@contextmanager
def follow_run(config: PipelineConfig) -> Iterator[None]:
    """Send the events of a run that decides about no model, and leaves no record."""
    with keep_erasures_out(open_store(config)), emit_events(config, config.name) as events:
        try:
            yield
        except BaseException as error:
            events.end_run("failed" if isinstance(error, Exception) else "interrupted", error=error)
            raise
        events.end_run("done")
