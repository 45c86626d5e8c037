"""Interruptions that come where a class is being made, and after a command has ended."""

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def is_interruption(error: BaseException | None) -> bool:
    """Whether an error is an interruption, or was made from one: Python 3.11 does so where a class is being made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def pass_signals() -> None:
    """Let one signal of each kind pass, for the command has ended: a second one breaks a wait for its threads."""
    for number in SIGNALS:
        # what the system does with a signal, or a shell has it ignored, stays
        if callable(signal.getsignal(number)):
            signal.signal(number, _pass_one)


def ignore_signals() -> None:
    """Let all signals pass."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _pass_one(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.default_int_handler)
