"""How a stage runs: as a task of Prefect, or as a function; either way it is retried where a failure may pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property, update_wrapper, wraps
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

from pmflib.cluster.task_plans import name_tasks
from pmflib.core.errors import LostSchedulerError, PmfError, UnreachableError
from pmflib.core.events import Notice, send_event
from pmflib.core.texts import mask_secrets
from pmflib.display.progress import divert_functions
from pmflib_tasks.prefect_runs import is_flow_run
from pmflib_tasks.stage_events import follow_stage

if TYPE_CHECKING:
    from prefect import Task

P = ParamSpec("P")
R = TypeVar("R")

RETRY_SECONDS = (2, 10)
"""Waits before a failed stage runs again, seconds: as many times as there are waits."""


def is_worth_a_retry(error: BaseException) -> bool:
    """Whether a failed stage may succeed when it runs again: not where a user must first change data or options."""
    if isinstance(error, PmfError):
        return isinstance(error, UnreachableError | LostSchedulerError)
    # errors of lost schedulers and workers have no common base class, only a common package
    return isinstance(error, OSError) or type(error).__module__.startswith("distributed")


class Stage(Generic[P, R]):
    """One stage of a pipeline: a task of Prefect in a flow run of Prefect, a function elsewhere.

    Parameters
    ----------
    name
        Name of the stage.
    function
        What it does; its first argument is the configuration.

    Attributes
    ----------
    fn
        The stage as a function, run once.
    """

    def __init__(self, name: str, function: Callable[P, R]) -> None:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with follow_stage(name), divert_functions(), name_tasks(name):
                return function(*args, **kwargs)

        @wraps(function)
        def retry(*args: P.args, **kwargs: P.kwargs) -> R:
            for wait in RETRY_SECONDS:
                try:
                    return run(*args, **kwargs)
                except Exception as error:
                    if not is_worth_a_retry(error):
                        raise
                    send_event(Notice(mask_secrets(f"{name} runs again in {wait} s: {error}")))
                time.sleep(wait)
            return run(*args, **kwargs)

        self.name = name
        self.fn: Callable[P, R] = run
        self._retry: Callable[P, R] = retry
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the stage, and retry it where a failure may pass."""
        return (self.task if is_flow_run() else self._retry)(*args, **kwargs)

    @cached_property
    def task(self) -> Task[P, R]:
        """The task of Prefect."""
        from prefect import task
        from prefect.cache_policies import NO_CACHE

        # the manifest decides what is done: a second cache could only disagree with it
        return task(name=self.name, cache_policy=NO_CACHE, persist_result=False)(self._retry)
