"""Interruptions that come before a command works, and after it has ended."""

import signal
from types import FrameType


def is_interruption(error: BaseException | None) -> bool:
    """Whether an error is an interruption, or was made from one: Python 3.11 does so where a class is being made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def pass_one(number: int, _: FrameType | None) -> None:
    """Let an interruption pass where the command has ended already; a second one breaks a wait for its threads."""
    signal.signal(number, signal.default_int_handler)
