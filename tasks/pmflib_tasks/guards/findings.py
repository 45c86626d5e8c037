"""What a guard found: measured, limit, a sentence for a person; and whether the run goes on or is held back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from pmflib.core.errors import QualityError, SourceError
from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib_tasks.config import GuardLimits, QualityConfig

Action: TypeAlias = Literal["off", "pass", "warn", "stop", "accepted"]
"""What follows from a finding. Off: nothing was compared; the sentence says why. Accepted: it would have stopped the
run, but a person let it go on."""
MOST_RECORDED = 10
"""Findings of one guard that crossed a limit and are recorded with the run; `findings.json` has them all."""
MOST_NAMED = 3
"""Findings of one guard that an error names."""
REMEDIES = {
    "least_rows": "look at the sources and the quarantine",
    "quarantine": "look at the quarantine, and at the reasons below",
    "reason": "look at these rows in the quarantine: was another format, scale or encoding delivered?",
    "file_quarantine": "look at the file, and at its rows in the quarantine",
    "missing_files": "deliver the files again; if they are gone for good, set quality.removals_expected",
    "rows_lost": "deliver again what is missing; if rows go on purpose, set quality.removals_expected",
    "file_size": "look whether the file was delivered whole, and once",
    "same_bytes": "remove one of the two files",
    "duplicates": "look whether the file was delivered before, under another name",
    "new_columns": "add them to the schema, or take them out of the files; they are not read",
    "new_rows": "look whether the delivery has come",
    "variable_drift": "look at this column: were its codes exchanged, shifted or reversed?",
    "scale_drift": "look at this file: was its scale reversed or coded otherwise?",
    "answer_drift": "look at the names in the column of variables",
    "pair_drift": "look at these two columns in the new files",
    "worker_rows": "look at this worker's labels: a script, or one identifier for many?",
    "unknown_workers": "look at the names of the workers: were they written otherwise before?",
    "new_classes": "look whether they are misspelt; [crowd] classes names those that there are",
    "class_shares": "look at this file: were its labels exchanged, or coded otherwise?",
    "label_agreement": "look at this file: were its columns shifted, or its labels exchanged?",
    "copies": "look at these workers: are they one person, or one script?",
    "time_backwards": "look whether an old delivery was sent again",
    "joint_agreement": "look whether a column was shifted against its rows, or rows are of other people",
    "known_samples": "look at the identifiers: are they written as before, and of the same system?",
    "fresh_rows": "look whether the delivery is one from before, under another name or in another order",
    "agreement": "look whether identifiers, or a column, were shifted against their rows",
    "identifier_form": "look at the identifiers: were they padded, or are they of another system?",
    "same_answers": "remove one of the two files",
    "future_rows": "look at the times: their unit, their zone and the clock that wrote them; or set "
    "quality.future_hours",
    "stray_times": "look at the times: their unit and the year they count from",
    "clock": "set the clock of this machine",
    "dependence_drift": "look whether columns were exchanged in the new files",
}
"""Remedies by guard."""
LOWER_LIMITS = ("least_rows", "new_rows")
"""Guards whose limits are lower limits."""


@dataclass(frozen=True)
class Finding:
    """What one guard found of one subject.

    Parameters
    ----------
    guard
        Option of the section ``[quality]`` that holds its limits.
    subject
        What was assessed: a file, a variable, all rows.
    measured
        In the units of the limit; None where nothing could be assessed.
    limit
        The limit that was crossed, or the first one that was not; None where there is none.
    action
        What follows.
    passed
        Whether no limit was crossed.
    sentence
        What was found, for a person.
    named
        Workers of a label log whom it is about: in ``findings.json``, and in no record, for records are never changed,
        and whoever is named may want to be forgotten.
    """

    guard: str
    subject: str
    measured: float | None
    limit: float | None
    action: Action
    passed: bool
    sentence: str
    named: tuple[str, ...] = ()


def assess(
    config: QualityConfig,
    guard: str,
    subject: str,
    measured: float | None,
    sentence: str,
    *,
    limits: GuardLimits | None = None,
    named: tuple[str, ...] = (),
) -> Finding:
    """Compare a measured value with the limits of a guard.

    Parameters
    ----------
    config
        Limits of all guards.
    guard, subject, measured, sentence, named
        As in `Finding`; a value of None was not measured, and the guard is off.
    limits
        Limits in place of those of the guard.
    """
    if measured is None:
        return abstain(guard, subject, sentence)
    limits = getattr(config, guard) if limits is None else limits
    both: tuple[tuple[Action, float | Literal["off"]], ...] = (
        ("stop", limits.stop),
        ("warn", limits.warn),
    )
    given = [(action, limit) for action, limit in both if limit != "off"]
    for action, limit in given:
        if measured < limit if guard in LOWER_LIMITS else measured > limit:
            return Finding(guard, subject, measured, limit, action, False, sentence, named)
    first = given[-1][1] if given else None
    passed: Action = "pass" if given else "off"
    return Finding(guard, subject, measured, first, passed, True, sentence, named)


def abstain(guard: str, subject: str, sentence: str) -> Finding:
    """Finding of a guard that could assess nothing, and the reason."""
    return Finding(guard, subject, None, None, "off", True, sentence)


def write_share(share: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.3g} %"


def accept(findings: Sequence[Finding]) -> list[Finding]:
    """Findings of a run that goes on whatever guards say: what would stop it is marked as accepted."""
    return [
        replace(each, action="accepted") if each.action == "stop" else each for each in findings
    ]


def condense(findings: Sequence[Finding], most: int = MOST_RECORDED) -> list[Finding]:
    """Findings that a record keeps: of each guard the first that crossed a limit, and the first that passed.

    Parameters
    ----------
    findings
        All findings; of one guard, the gravest first.
    most
        Findings of a guard to keep that crossed a limit. The others, and all that passed but one, are counted.
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


def find_recorded(facts: Mapping[str, Any]) -> list[Finding]:
    """Findings among the facts of a run, in section "quality"; none where its guards were not reached."""
    return [Finding(**each) for each in facts.get("quality", ())]


def summarise(findings: Sequence[Finding]) -> dict[str, object]:
    """Plain JSON types: numbers of findings that passed, warn and stop, and those that crossed a limit."""
    return {
        "passed": sum(each.passed for each in findings),
        "warned": sum(each.action == "warn" for each in findings),
        "stopped": sum(each.action == "stop" for each in findings),
        "findings": [asdict(each) for each in condense(findings)],
    }


def refuse_empty(rows: DatasetAccount) -> None:
    """Refuse a dataset of which nothing can be learnt.

    Parameters
    ----------
    rows
        Account of the dataset.

    Raises
    ------
    SourceError
        If no row was encoded, or none holds an answer.
    """
    if rows.rows_encoded and rows.observed:
        return
    why = ", ".join(f"{reason} {n:,}" for reason, n in rows.reasons.items())
    what = "no row was encoded" if not rows.rows_encoded else "no row holds an answer"
    raise SourceError(
        f"{what}, of {rows.rows_in:,} rows read"
        + (f" (in quarantine: {why})" if why else "")
        + "; "
        "the live model, if there is one, stays. Look at the files and at the quarantine: was a header delivered "
        "alone, or another scale, encoding or layout?"
    )


def hold_back(findings: Sequence[Finding], command: str = "pmf run", named_in: str = "") -> None:
    """Raise an error that lists what guards stop, and names the guards in its first line.

    Parameters
    ----------
    findings
        All findings.
    command
        Command that would go on with the option ``--accept-quality``.
    named_in
        File that names whom the findings are about.

    Raises
    ------
    QualityError
        If the action of a finding is to stop.
    """
    stopped = [each for each in findings if each.action == "stop"]
    if not stopped:
        return
    if named_in and any(each.named for each in stopped):
        named_in = f"\nWorkers are named in {named_in}"
    else:
        named_in = ""
    lines = [
        f"  {each.guard}: {each.sentence} (measured {each.measured:.3g}, limit {each.limit:.3g}); "
        f"{REMEDIES[each.guard]}"
        for each in condense(stopped, MOST_NAMED)
    ]
    guards = ", ".join(dict.fromkeys(each.guard for each in stopped))
    raise QualityError(
        f"held back by {len(stopped)} findings about the new data, of {guards}; nothing was fitted, and what was live "
        "stays live:\n"
        + "\n".join(lines)
        + named_in
        + f"\nTo take these data as they are, once: `{command} --accept-quality`. To allow such data from now on: "
        "change the limits in [quality]"
    )
