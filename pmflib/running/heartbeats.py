"""Calls at regular times while work goes on: signs of life where nothing else would be said for long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beat(function: Callable[[], None] | None, seconds: float) -> Iterator[None]:
    """Call a function from a thread of its own, every so many seconds, while the context lasts.

    Parameters
    ----------
    function
        What to call; never after the context has ended. None calls nothing.
    seconds
        Time between calls, above 0.
    """
    if function is None:
        yield
        return
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds):
            function()

    thread = threading.Thread(target=go_on, daemon=True, name="heartbeat")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
