"""Waiting until a Prefect server has stored everything that this process sent it about its runs."""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import TaskRun
    from prefect.events import Event
    from prefect.events.filters import EventFilter

TASK_RUN_PAGE = 200
EVENT_PAGE = 50
"""Entries of the largest pages that the API gives."""
POLL_SECONDS = 0.05
"""Time between two requests to the server, seconds."""


def wait_until_stored(since: datetime, timeout: float) -> bool:
    """Send what this process has queued, and wait until the server can give it back.

    Parameters
    ----------
    since
        Time of the first event to check, with a time zone.
    timeout
        Longest wait, in seconds.

    Returns
    -------
    Whether everything arrived in time.

    Notes
    -----
    Prefect sends the states of task runs as events: through a queue in this process, a socket, and
    two queues in the server, one for the table of events and one for that of task runs. All keep
    the order. So the table of events is complete when it holds an event of our own, sent last, and
    it then lists what the table of task runs must contain.
    """
    from prefect import get_client

    deadline = time.monotonic() + timeout
    last = _send_queued(timeout)
    with get_client(sync_client=True) as client:
        while not _is_stored(client, last):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        waiting = _last_changes(client, since)
        while waiting := _behind(client, waiting):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
    return True


def _send_queued(timeout: float) -> UUID:
    """Empty this process's queues of log lines and events; return the id of the last event."""
    from prefect.events import emit_event
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    deadline = time.monotonic() + timeout
    last = uuid4()
    emit_event("pmf.process.ended", {"prefect.resource.id": f"pmf.process.{last}"}, id=last)
    for worker in (EventsWorker, APILogWorker):
        # It would warn that it is not empty, which is why it is drained.
        logging.getLogger(worker.__name__).setLevel(logging.ERROR)
        worker.drain_all(timeout=max(0.0, deadline - time.monotonic()))
    return last


def _is_stored(client: "SyncPrefectClient", event: UUID) -> bool:
    from prefect.events.filters import EventFilter, EventIDFilter

    return bool(client.read_events(EventFilter(id=EventIDFilter(id=[event])), limit=1).events)


def _read_events(client: "SyncPrefectClient", wanted: "EventFilter") -> "Iterator[Event]":
    page = client.read_events(wanted, limit=EVENT_PAGE)
    yield from page.events
    while page.next_page is not None:
        page = client.read_events_page(str(page.next_page))
        yield from page.events


def _last_changes(client: "SyncPrefectClient", since: datetime) -> dict[UUID, datetime]:
    """Return when each task run last changed its state, by the table of events."""
    from prefect.events.filters import EventFilter, EventNameFilter, EventOccurredFilter

    wanted = EventFilter(
        occurred=EventOccurredFilter.model_validate({"since": since}),
        event=EventNameFilter(prefix=["prefect.task-run."]),
    )
    changes: dict[UUID, datetime] = {}
    for event in _read_events(client, wanted):
        task_run = UUID(event.resource.id.removeprefix("prefect.task-run."))
        changes[task_run] = max(event.occurred, changes.get(task_run, event.occurred))
    return changes


def _behind(client: "SyncPrefectClient", changes: dict[UUID, datetime]) -> dict[UUID, datetime]:
    """Return the changes of state that the table of task runs does not show yet."""
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterId

    behind = dict(changes)
    ids = list(changes)
    for first in range(0, len(ids), TASK_RUN_PAGE):
        some = TaskRunFilterId(any_=ids[first : first + TASK_RUN_PAGE])
        for run in client.read_task_runs(task_run_filter=TaskRunFilter(id=some)):
            if _last_change(run) >= changes[run.id]:
                del behind[run.id]
    return behind


def _last_change(run: "TaskRun") -> datetime:
    return run.state.timestamp if run.state is not None else datetime.min.replace(tzinfo=UTC)
