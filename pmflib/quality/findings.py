"""What a guard found: measured, limit, and a sentence for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pmflib.config import Limits

Action: TypeAlias = Literal["off", "pass", "warn", "stop", "accepted"]
"""What follows from a finding. Off: nothing was judged, and the sentence says why. Accepted: it would have stopped the
run, but a person let it go on."""


@dataclass(frozen=True)
class Finding:
    """What one guard found of one subject.

    Parameters
    ----------
    guard
        Option of the section ``[quality]`` that holds its limits.
    subject
        What was judged: a file, a variable, all rows.
    measured
        In the units of the limit; None where nothing could be judged.
    limit
        The limit that was crossed, or the first one that was not; None where there is none.
    action
        What follows.
    passed
        Whether no limit was crossed.
    sentence
        What was found, for a person.
    """

    guard: str
    subject: str
    measured: float | None
    limit: float | None
    action: Action
    passed: bool
    sentence: str


def judge(
    guard: str,
    subject: str,
    measured: float,
    limits: Limits,
    sentence: str,
    *,
    least: bool = False,
) -> Finding:
    """Compare what was measured with the limits of a guard.

    Parameters
    ----------
    guard, subject, measured, sentence
        As in `Finding`.
    limits
        Limits of the guard.
    least
        Whether limits are lower ones.
    """
    given: list[tuple[Action, float]] = []
    for action, limit in (("stop", limits.stop), ("warn", limits.warn)):
        if limit != "off":
            given.append(("stop" if action == "stop" else "warn", limit))
    for action, limit in given:
        if measured < limit if least else measured > limit:
            return Finding(guard, subject, measured, limit, action, False, sentence)
    first = given[-1][1] if given else None
    return Finding(guard, subject, measured, first, "pass" if given else "off", True, sentence)


def abstain(guard: str, subject: str, sentence: str) -> Finding:
    """Finding of a guard that could not judge, and the reason."""
    return Finding(guard, subject, None, None, "off", True, sentence)


def write_share(share: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.3g} %"
