"""Findings of guards: measurements compared with limits, and what follows for the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

from pmflib.base.errors import QualityError, SourceError
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guard_limits import GuardLimits

Action: TypeAlias = Literal["off", "pass", "warn", "stop", "accepted"]
"""What follows from a finding. "off": nothing was compared, for the reason in the sentence. "accepted": the finding
would have stopped the run, but a person accepted it."""
MOST_RECORDED = 10
"""Maximum number of findings per guard beyond a limit in the record of a run; `findings.json` has all."""
MOST_NAMED = 3
"""Maximum number of findings per guard in an error message."""
GUARDS = QualityConfig.list_guards()
"""The table of guards by name; the fields of `QualityConfig` have what each measures, and its limits."""


@dataclass(frozen=True)
class Measurement:
    """A value that a guard measured, before it is compared with limits.

    Parameters
    ----------
    guard
        Name of the guard, an option of the section ``[quality]``.
    subject
        The subject: a file, a variable, all rows.
    value
        The measured value, in the units of the limits; None if nothing could be measured.
    sentence
        A description for people; without a value, the reason.
    limits
        Limits that replace those of the guard.
    named
        Workers of a label log whom the measurement is about.
    """

    guard: str
    subject: str
    value: float | None
    sentence: str
    limits: GuardLimits | None = None
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """Result of one guard for one subject.

    Parameters
    ----------
    guard
        Name of the guard, an option of the section ``[quality]``.
    subject
        The subject: a file, a variable, all rows.
    measured
        Measured value, in the units of the limit; None if nothing could be measured.
    limit
        The limit that was crossed, else the first limit; None if there is none.
    action
        What follows.
    passed
        Whether no limit was crossed.
    sentence
        A description for people.
    named
        Workers of a label log whom the finding is about. Only ``findings.json`` has them: records of runs are never
        changed, and a worker may ask to be erased.
    """

    guard: str
    subject: str
    measured: float | None
    limit: float | None
    action: Action
    passed: bool
    sentence: str
    named: tuple[str, ...] = ()


def assess(measurements: Iterable[Measurement], config: QualityConfig) -> list[Finding]:
    """Compare measurements with the limits of their guards, in order; a guard without a value is off."""
    return [_assess(each, config) for each in measurements]


def _assess(measured: Measurement, config: QualityConfig) -> Finding:
    guard, value = measured.guard, measured.value
    limit: float | None = None
    action: Action = "off"
    passed = True
    limits = measured.limits or getattr(config, guard)
    # the graver limit first
    both: tuple[tuple[Action, float | Literal["off"]], ...] = (
        ("stop", limits.stop),
        ("warn", limits.warn),
    )
    for name, each in both:
        if value is None or each == "off":
            continue
        limit, action = each, "pass"
        if value < limit if GUARDS[guard].at_least else value > limit:
            action, passed = name, False
            break
    return Finding(
        guard, measured.subject, value, limit, action, passed, measured.sentence, measured.named
    )


def accept(findings: Sequence[Finding]) -> list[Finding]:
    """Mark findings that would stop a run as accepted."""
    return [
        replace(each, action="accepted") if each.action == "stop" else each for each in findings
    ]


def condense(findings: Sequence[Finding], most: int = MOST_RECORDED) -> list[Finding]:
    """Select the findings that a record keeps: of each guard the first beyond a limit, and the first that passed.

    Parameters
    ----------
    findings
        All findings; those of one guard with the gravest first.
    most
        Maximum number of findings per guard beyond a limit. The rest, and all but one that passed, are counted.
    """
    groups: dict[tuple[str, bool], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.guard, each.passed), []).append(each)
    kept = []
    for (_, passed), group in groups.items():
        shown = group[: 1 if passed else most]
        if more := len(group) - len(shown):
            note = f" (and {more:,} more {'passed' if passed else 'like it'})"
            shown[-1] = replace(shown[-1], sentence=shown[-1].sentence + note)
        kept += shown
    return kept


def summarise(findings: Sequence[Finding]) -> dict[str, object]:
    """Count the findings that passed, warn and stop, and list the condensed findings, in plain JSON types."""
    return {
        "passed": sum(each.passed for each in findings),
        "warned": sum(each.action == "warn" for each in findings),
        "stopped": sum(each.action == "stop" for each in findings),
        "findings": [asdict(each) for each in condense(findings)],
    }


def refuse_empty(rows: DatasetAccount) -> None:
    """Refuse a dataset without any answer.

    Parameters
    ----------
    rows
        Account of the dataset.

    Raises
    ------
    SourceError
        If no row was encoded, or no row holds an answer.
    """
    if rows.rows_encoded and rows.observed:
        return
    why = ", ".join(f"{reason} {n:,}" for reason, n in rows.reasons.items()) or "none"
    what = "no row was encoded" if not rows.rows_encoded else "no row holds an answer"
    raise SourceError(
        f"{what}, of {rows.rows_in:,} rows read (in quarantine: {why}); the live model, if there is one, stays. Check "
        "the files and the quarantine: does a file have only a header, or another scale, encoding or layout?"
    )


def stop_on_findings(
    findings: Sequence[Finding], command: str = "pmf run", named_in: str = ""
) -> None:
    """Raise an error that lists the findings that stop a run, and names their guards in its first line.

    Parameters
    ----------
    findings
        All findings.
    command
        Command that accepts the findings with the option ``--accept-quality``.
    named_in
        File that names the workers whom the findings are about.

    Raises
    ------
    QualityError
        If the action of a finding is to stop.
    """
    stopped = [each for each in findings if each.action == "stop"]
    if not stopped:
        return
    is_named = named_in and any(each.named for each in stopped)
    where = f"\nWorkers are named in {named_in}" if is_named else ""
    lines = [
        f"  {each.guard}: {each.sentence} (measured {each.measured:.3g}, limit {each.limit:.3g}); "
        f"{GUARDS[each.guard].remedy}"
        for each in condense(stopped, MOST_NAMED)
    ]
    guards = ", ".join(dict.fromkeys(each.guard for each in stopped))
    raise QualityError(
        f"held back by {len(stopped)} findings on the new data, of {guards}; nothing was fitted, and the live model "
        "stays:\n"
        + "\n".join(lines)
        + where
        + f"\nTo accept these data once: `{command} --accept-quality`. To accept such data in future: change the "
        "limits in [quality]"
    )
