"""A check of a setup before a run, and its result: what `pmf doctor` asks of the core and of each feature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pmflib.base.errors import ClusterError, PmfError
from pmflib.base.texts import mask_secrets

State: TypeAlias = Literal["ok", "warn", "FAIL"]
"""State of a check. With "warn" a run works, but may be slower or less safe; with "FAIL" it cannot work."""

Fault: TypeAlias = Literal["", "configuration", "source", "store", "memory", "infrastructure"]
"""Class of the error that a run would end with; the command line has an exit code for each."""


@dataclass(frozen=True)
class HealthLine:
    """Result of one check.

    Parameters
    ----------
    state
        Whether the check passed.
    what
        Name of the check.
    found
        What was found, as a sentence for the user.
    remedy
        How to correct it; empty for "ok".
    fault
        Class of the error that a run would end with; empty unless the state is "FAIL".
    """

    state: State
    what: str
    found: str
    remedy: str = ""
    fault: Fault = ""


@dataclass(frozen=True)
class Check:
    """A check and how to report that it raised an error or did not finish.

    Parameters
    ----------
    what, fault, remedy
        As in `HealthLine`.
    function
        The check itself.
    """

    what: str
    fault: Fault
    remedy: str
    function: Callable[[], HealthLine]

    def fail(self, error: BaseException) -> HealthLine:
        """Make the line for an error of the check."""
        if isinstance(error, ClusterError):
            remedy = "see the logs of the workers, and restart those that hang"
            return HealthLine("FAIL", self.what, str(error), remedy, "infrastructure")
        if isinstance(error, OSError) and error.strerror:
            said = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
        else:
            said = str(error) if isinstance(error, PmfError) else f"{type(error).__name__}: {error}"
        return HealthLine("FAIL", self.what, mask_secrets(said), self.remedy, self.fault)
