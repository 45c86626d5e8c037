"""Calls that may never come back, given a time: none of them holds up the others, or the end of the process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_THREADS = 512
"""Most calls that are under way at a time: they wait for others, and need no processor."""


def call_together(jobs: Mapping[K, Callable[[], Any]], seconds: float) -> dict[K, Any]:
    """Call functions at the same time, ``MAX_THREADS`` at most, and wait for all of them until a deadline.

    Parameters
    ----------
    jobs
        Functions without arguments, by name.
    seconds
        Time for all of them together, above 0.

    Returns
    -------
    By name, in the order of the jobs, what each gave, or the exception that it raised; a TimeoutError for what had not
    come back in time. Such a call goes on in a thread that ends with the process.
    """
    waiting: queue.SimpleQueue[tuple[K, Callable[[], Any]]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[K, Any]] = queue.SimpleQueue()
    for name, job in jobs.items():
        # threads have no settings of the context that they are started in
        waiting.put((name, partial(copy_context().run, job)))

    def work() -> None:
        while True:
            try:
                name, job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((name, job()))
            except BaseException as error:
                done.put((name, error))

    for _ in range(min(MAX_THREADS, len(jobs))):
        # a daemon: what never comes back must not keep the process alive
        threading.Thread(target=work, daemon=True, name="health").start()
    deadline = time.monotonic() + seconds
    late = TimeoutError(f"no answer in {seconds:g} s")
    found: dict[K, Any] = dict.fromkeys(jobs, late)
    for _ in jobs:
        try:
            name, result = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[name] = result
    return found
