"""How long models are refitted warm, as a configuration writes it."""

from __future__ import annotations

import re
from datetime import timedelta

HOURS = {"h": 1, "d": 24, "w": 7 * 24}
"""Hours of each unit."""
NEVER = "never"
"""What is written for no end."""
LONGEST = timedelta(days=36_500)
"""Longest time that is taken for meant: a century."""


def check_refresh(text: str) -> str:
    """Return the text if it reads.

    Raises
    ------
    ValueError
        If it does not.
    """
    read_refresh(text)
    return text


def read_refresh(text: str) -> timedelta | None:
    """Time that a text such as "30d" stands for; None for "never".

    Raises
    ------
    ValueError
        If it is no whole number with a unit, or longer than ``LONGEST``.
    """
    if text == NEVER:
        return None
    found = re.fullmatch(r"([0-9]{1,9})([hdw])", text)
    time = None if found is None else timedelta(hours=int(found[1]) * HOURS[found[2]])
    if time is None or time > LONGEST:
        raise ValueError(
            f"{text!r} is no time up to {LONGEST.days}d; write hours, days or weeks, as '36h', '30d' or '4w', or "
            f"{NEVER!r}"
        )
    return time
