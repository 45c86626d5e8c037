"""Values that all tasks of a map take: sent along with each, or a task of their own."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

from pmflib.running.clients import Client, list_addresses
from pmflib.running.task_names import name_range
from pmflib.running.task_plans import COPY_SHARE, RETRIES

T = TypeVar("T")

SENT_BYTES = 1 << 16
"""Largest shared value that is sent along with each task, bytes; a larger one is a task of its own."""
ALL_SENT_BYTES = 1 << 20
"""Most that a shared value which is sent along may take in all tasks, bytes: they pass through the scheduler."""


def measure_shared(value: Any) -> int | None:
    """Bytes that a shared value takes where it is sent along with tasks, about; None where it may be large.

    Numbers, None, and functions that workers import by their names, add nothing to what a task takes anyway.
    """
    if value is None or isinstance(value, bool | int | float):
        return 0
    if isinstance(value, str):
        return len(value)
    if isinstance(value, FunctionType):
        # others are sent with all that they refer to
        return 0 if value.__module__ != "__main__" and value.__qualname__.isidentifier() else None
    return getattr(value, "nbytes", None)


def is_sent_along(n_bytes: int | None, n_tasks: int) -> bool:
    """Whether a shared value of so many bytes is sent along with each of so many tasks, and is no task of its own."""
    return n_bytes is not None and n_bytes <= min(SENT_BYTES, ALL_SENT_BYTES // n_tasks)


def share_value(client: Client, value: Any, n_tasks: int, name: str) -> list[Any]:
    """Give a value to tasks: itself, or the future that each of them takes it from.

    Parameters are the argument of a task, not scattered data: they can be made again when a worker is lost. Where there
    are many tasks, some workers take a copy each, and pass it on.
    """
    if is_sent_along(measure_shared(value), n_tasks):
        return [value] * n_tasks
    options = {"pure": False, "retries": RETRIES}
    source = client.submit(_give_back, value, key=(f"{name}-shared", "source"), **options)
    if n_tasks <= 2 * COPY_SHARE:
        return [source] * n_tasks
    n_copies = -(-n_tasks // COPY_SHARE)
    addresses = list_addresses(client)
    copies = [
        client.submit(
            _give_back,
            source,
            key=(f"{name}-shared", name_range("copy", place, place + 1)),
            workers=[addresses[place * len(addresses) // n_copies]],
            allow_other_workers=True,
            **options,
        )
        for place in range(n_copies)
    ]
    return [copies[place // COPY_SHARE] for place in range(n_tasks)]


def _give_back(value: T) -> T:
    return value
