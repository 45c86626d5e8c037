"""Processor time that a choice of the rank may take, as a configuration writes it."""

from __future__ import annotations

import re

SECONDS = {"s": 1, "min": 60, "h": 3600}
"""Seconds of each unit."""
QUICK = "1min"
"""What `--quick` sets."""
LONGEST = 7 * 24 * 3600
"""Longest time that is taken for meant, seconds: a week."""


def check_budget(text: str) -> str:
    """Return the text if it reads.

    Raises
    ------
    ValueError
        If it does not.
    """
    read_budget(text)
    return text


def read_budget(text: str) -> float:
    """Seconds that a text such as "10min" stands for.

    Raises
    ------
    ValueError
        If it is no whole number above 0 with a unit, or longer than ``LONGEST``.
    """
    found = re.fullmatch(r"([0-9]{1,9})(s|min|h)", text)
    seconds = 0 if found is None else int(found[1]) * SECONDS[found[2]]
    if not 0 < seconds <= LONGEST:
        raise ValueError(
            f"{text!r} is no time above 0 up to {LONGEST // 3600}h; write seconds, minutes or hours, as '30s', '10min' "
            "or '2h'"
        )
    return float(seconds)
