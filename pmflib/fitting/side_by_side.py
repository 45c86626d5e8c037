"""Runs of EM side by side: those that are independent of each other, in threads of the client.

A run waits for merges, for the held-out score and for its own update between two passes; meanwhile the tasks of another
one fill the workers. Every run has a loop and maps of its own, so that its bits do not depend on what runs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from threading import Lock
from types import TracebackType
from typing import TypeAlias

from pmflib.core.arrays import Parameters
from pmflib.em.latent_classes import ClassState, Runs

Candidate: TypeAlias = tuple[str, float]
"""Start method, and mean pseudo-count."""


class _NotNeededError(Exception):
    """Ends a run between two passes."""


class SideBySide:
    """Runs of EM from one start each, by candidate; as a context: at its end no run is under way.

    Parameters
    ----------
    runs
        What the runs share; its training samples say how many are under way at a time.
    make_starts
        Gives models to start from, by the start method and their number; called in the caller's thread alone.
    """

    def __init__(self, runs: Runs, make_starts: Callable[[str, int], list[Parameters]]) -> None:
        self._make_starts, self._on_pass = make_starts, runs.on_pass
        n_threads = runs.training.n_side_by_side
        self._pool = ThreadPoolExecutor(n_threads, "em-run") if n_threads > 1 else None
        self._runs = runs if self._pool is None else replace(runs, on_pass=self._note_pass)
        self._pending: dict[Candidate, Future[ClassState]] = {}
        self._unneeded: set[str] = set()
        self._error: BaseException | None = None
        self._reporting = Lock()

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the runs that are under way, each after its pass: its state is saved."""
        self.stop_others(())
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def start(self, *candidates: Candidate) -> None:
        """Start runs, where they may be side by side; they go on until `find` wants them, or they are stopped."""
        if self._pool is None:
            return
        for each in candidates:
            if each not in self._pending:
                starts, context = self._make_starts(each[0], 1), copy_context()
                self._pending[each] = self._pool.submit(context.run, self._run, each, starts)

    def find(self, candidate: Candidate) -> ClassState:
        """Wait for the state at the end of a run, which is started if it is not under way; or run it here."""
        method, pseudo_count = candidate
        if self._pool is None:
            return self._runs.run(_name(candidate), self._make_starts(method, 1), pseudo_count)
        self.start(candidate)
        try:
            return self._pending.pop(candidate).result()
        except _NotNeededError:
            # it was stopped for another one that failed
            assert self._error is not None
            raise self._error from None

    def stop_others(self, needed: Collection[Candidate]) -> None:
        """Stop the runs that are not needed, each after the pass that it is in."""
        for each in [each for each in self._pending if each not in needed]:
            self._unneeded.add(_name(each))
            self._pending.pop(each).cancel()

    def _run(self, candidate: Candidate, starts: list[Parameters]) -> ClassState:
        try:
            return self._runs.run(_name(candidate), starts, candidate[1])
        except _NotNeededError:
            raise
        except BaseException as error:
            self._error = self._error or error
            raise

    def _note_pass(self, name: str, state: ClassState) -> None:
        """Report a pass, one run at a time, unless it need not go on."""
        with self._reporting:
            if name in self._unneeded or self._error is not None:
                raise _NotNeededError
            if self._on_pass is not None:
                self._on_pass(name, state)


def _name(candidate: Candidate) -> str:
    """Name of a run: of its checkpoint, and of its progress."""
    return f"{candidate[0]}-{candidate[1]:g}"
