"""Clients of Dask that leave nothing behind where they do not connect."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def start_client(address: str, seconds: float, security: Any = None) -> Any:
    """Connect to a Dask scheduler.

    Parameters
    ----------
    address
        Address of the scheduler.
    seconds
        Longest wait for it.
    security
        Keys of its connections; None for those that Dask is configured with.

    Returns
    -------
    The client, which is no default. Whoever asked for it closes it.

    Raises
    ------
    OSError
        If it does not answer, or its keys do not fit.
    ValueError
        If the address is none.

    Notes
    -----
    Dask leaves a client that does not connect to Python's collector of garbage, which may come upon it while another
    client, or a cluster, starts its thread. To close it takes the lock that the other holds, and both wait for ever.
    """
    from distributed import Client

    client = Client.__new__(Client)
    try:
        client.__init__(address, set_as_default=False, timeout=seconds, security=security)
    except BaseException:
        with suppress(Exception):
            client.close()
            # one that Dask has closed itself keeps its thread
            client._loop_runner.stop()
        raise
    return client
