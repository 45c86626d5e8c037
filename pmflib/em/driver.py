"""The loop of expectation and maximisation, whatever the model is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar


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


def run_em(
    evaluate: Callable[[Any], T],
    update: Callable[[S, T], S],
    state: S,
    *,
    has_converged: Callable[[S], bool],
    max_passes: int,
    on_pass: Callable[[S], None] | None = None,
) -> S:
    """Make passes until they have converged, or there were enough of them.

    Parameters
    ----------
    evaluate
        E-step: sufficient statistics of all samples under the parameters of a state, in memory or as a map over
        partitions.
    update
        M-step: the state after a pass, from the state before and the statistics taken under its parameters.
    state
        Start, or a checkpoint to continue from.
    has_converged
        Whether a state needs no further pass; asked before every pass, so that a checkpoint that has converged is left
        as it is.
    max_passes
        Limit of passes, counting those of a checkpoint.
    on_pass
        Called with the state after each pass: checkpoints, progress.

    Returns
    -------
    The state at the end.

    References
    ----------
    Dempster, Laird, Rubin (1977), Journal of the Royal Statistical Society B 39.
    """
    while state.n_passes < max_passes and not has_converged(state):
        statistics = evaluate(state.parameters)
        state = update(state, statistics)
        if on_pass is not None:
            on_pass(state)
    return state
