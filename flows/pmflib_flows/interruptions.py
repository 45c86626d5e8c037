"""Handling of interruptions during class creation, and after a command has ended."""

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def is_interruption(error: BaseException | None) -> bool:
    """Return whether an error is an interruption or was caused by one; Python 3.11 wraps them during class creation."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def pass_signals() -> None:
    """Ignore one signal of each kind, because the command has ended; a second one interrupts waiting for threads."""
    for number in SIGNALS:
        # signals ignored by the system or the shell stay ignored
        if callable(signal.getsignal(number)):
            signal.signal(number, _pass_one)


def ignore_signals() -> None:
    """Ignore all signals."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _pass_one(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.default_int_handler)
