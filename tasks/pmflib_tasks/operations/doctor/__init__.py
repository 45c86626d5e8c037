"""Whether everything is there that a pipeline needs: what a check found is a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warn", "FAIL"]
"""How something stands. Warn: a run can go on, but something may break, or is slower than it could be. FAIL: a run
cannot work, or its results would not be those that it records."""

Fault: TypeAlias = Literal["", "configuration", "source", "store", "memory", "infrastructure"]
"""What a run would end with: the classes of errors that the command line has exit codes for."""

SHOWN = 3
"""Most names that a line lists before it says how many more there are."""


@dataclass(frozen=True)
class HealthLine:
    """What one check found.

    Parameters
    ----------
    state
        How it stands.
    what
        What was looked at.
    found
        What was found, for a person.
    remedy
        What to do about it; empty where all is well.
    fault
        Class of the error that a run would end with, for a FAIL; empty otherwise.
    """

    state: State
    what: str
    found: str
    remedy: str = ""
    fault: Fault = ""


def note(what: str, found: str) -> HealthLine:
    """Line of something that is well."""
    return HealthLine("ok", what, found)


def warn(what: str, found: str, remedy: str) -> HealthLine:
    """Line of something that may break, or is slower than it could be."""
    return HealthLine("warn", what, found, remedy)


def fail(what: str, found: str, remedy: str, fault: Fault) -> HealthLine:
    """Line of something with which a run cannot work."""
    return HealthLine("FAIL", what, found, remedy, fault)


def list_first(names: Sequence[str]) -> str:
    """Text of names, separated by commas: the first ``SHOWN``, then how many more."""
    shown = ", ".join(names[:SHOWN])
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown
