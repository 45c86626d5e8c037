"""Numbers that functions report from workers while they run: progress."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pmflib.running.clients import Client


@contextmanager
def listen_to_counts(client: Client, on_count: Callable[[int], None]) -> Iterator[str]:
    """Receive the numbers that functions report while they run on workers, on any machine.

    Parameters
    ----------
    client
        Dask client; without one, no number arrives.
    on_count
        Called with every number, in a thread of the client.

    Yields
    ------
    Topic that `report_count` needs.
    """
    topic = f"pmf-counts-{uuid.uuid4().hex}"
    if client is None:
        yield topic
        return
    client.subscribe_topic(topic, lambda event: on_count(event[1]))
    try:
        yield topic
    finally:
        client.unsubscribe_topic(topic)


def report_count(topic: str, count: int) -> None:
    """Send a number to the listener of a topic from a function that a Dask worker runs; elsewhere do nothing."""
    if "distributed" not in sys.modules:
        # importing it would take longer than a small run
        return
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    worker.log_event(topic, count)
