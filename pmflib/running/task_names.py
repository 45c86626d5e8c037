"""Names of tasks, as the dashboard of a scheduler groups them: by stage and step, and by what each works on."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

TaskKey: TypeAlias = tuple[str, str]
"""Key of a task of Dask: the group, whose words before the first number are a bar of the dashboard, and the task."""

_stage: ContextVar[str] = ContextVar("stage", default="")
_submitted: Counter[str] = Counter()


@contextmanager
def name_tasks(stage: str) -> Iterator[None]:
    """Let the tasks that are submitted while the context lasts be named after a stage."""
    before = _stage.set(stage.replace(" ", "-"))
    try:
        yield
    finally:
        _stage.reset(before)


def name_step(function: Callable[..., Any], name: str = "") -> str:
    """Name of the tasks that are submitted together, which no other submission has.

    Parameters
    ----------
    function
        What the tasks do; names them where nothing else is given.
    name
        Words for what is done: ``pass`` or ``fold-03``.

    Returns
    -------
    Stage, words, how many steps this process has submitted by the name, and eight random digits:
    ``refine-pass-0007-1c9f02ab``.
    """
    words = name or getattr(function, "__name__", type(function).__name__).strip("_<>")
    step = "-".join(filter(None, (_stage.get(), words.replace("_", "-"))))
    _submitted[step] += 1
    return f"{step}-{_submitted[step]:04}-{uuid.uuid4().hex[:8]}"


def name_range(what: str, start: int, stop: int) -> str:
    """Name of a task by the first and the last of what it works on: ``groups-0120-0239``."""
    return f"{what}-{start:04}" if stop == start + 1 else f"{what}-{start:04}-{stop - 1:04}"
