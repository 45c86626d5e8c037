"""The loop of passes over label logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from pmflib.em.checkpoint import Checkpoint


class PassState(Protocol):
    """State of EM: enough to continue from, to the same bits."""

    @property
    def parameters(self) -> Any:
        """What the next E-step takes the expectation under."""

    @property
    def n_passes(self) -> int:
        """Number of passes made."""


S = TypeVar("S", bound=PassState)
T = TypeVar("T")


def repeat_passes(
    evaluate: Callable[[Any], T],
    update: Callable[[S, T], S],
    start: S | Callable[[], S],
    *,
    has_converged: Callable[[S], bool],
    max_passes: int,
    checkpoint: Checkpoint[S] | None = None,
    on_pass: Callable[[S], None] | None = None,
) -> S:
    """Make passes until they have converged, or there were enough of them.

    Parameters
    ----------
    evaluate
        E-step: sufficient statistics of all samples under the parameters of a state, in memory or as a map over
        partitions.
    update
        M-step: the state after a pass, from the state before and the statistics computed under its parameters.
    start
        State before the first pass, or a function that makes it: called where there is no checkpoint to continue from.
    has_converged
        Whether a state needs no further pass; asked before every pass, so that a checkpoint that has converged is left
        as it is.
    max_passes
        Limit of passes, counting those of a checkpoint.
    checkpoint
        Where the state is kept after each pass, and continued from.
    on_pass
        Called with the state after each pass, once that is kept: progress.

    Returns
    -------
    The state at the end.

    Raises
    ------
    PmfError
        If the checkpoint is of another fit.

    References
    ----------
    Dempster, Laird, Rubin (1977), Journal of the Royal Statistical Society B 39.
    """
    state = None if checkpoint is None else checkpoint.load()
    if state is None:
        state = start() if callable(start) else start
    while state.n_passes < max_passes and not has_converged(state):
        statistics = evaluate(state.parameters)
        state = update(state, statistics)
        if checkpoint is not None:
            checkpoint.save(state)
        if on_pass is not None:
            on_pass(state)
    return state
