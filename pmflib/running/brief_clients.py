"""Clients that wait for little: for questions to a cluster that may not be there, or not well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pmflib.running.clients import Client
from pmflib.running.dask_clients import start_client


@contextmanager
def connect_briefly(address: str, seconds: float, security: Any = None) -> Iterator[Client]:
    """Connect to a Dask scheduler without patience, and without a word of Dask's own in the log.

    Parameters and errors are those of `start_client`.
    """
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with start_client(address, seconds, security) as client:
            yield client
    finally:
        logger.setLevel(before)


async def fetch_result(worker: Any, other: str, key: str, seconds: float) -> Any:
    """Fetch a result from another worker as tasks do, but beside them; None from one that gives to many just now.

    Parameters
    ----------
    worker
        The worker of Dask that fetches.
    other
        Address of the worker that holds the result.
    key
        Key of the result.
    seconds
        Longest wait.

    Raises
    ------
    TimeoutError, OSError
        If the other does not answer.
    KeyError
        If it has no such result.
    """
    from distributed.worker import get_data_from_worker

    answer = await asyncio.wait_for(
        get_data_from_worker(worker.rpc, [key], other, who=worker.address), seconds
    )
    return None if answer["status"] == "busy" else answer["data"][key]
