"""Checks of a pipeline itself: its configuration, its schema, and how its last run ended."""

from __future__ import annotations

from dataclasses import dataclass

from pmflib.config import PipelineConfig
from pmflib.health.health_line import HealthLine, fail, note, warn
from pmflib.schema import Schema

MUCH_QUARANTINE = 0.05
"""Share of the rows from which those in quarantine are worth a warning."""


@dataclass(frozen=True)
class HistoryFacts:
    """What the store says of the runs of a pipeline.

    Parameters
    ----------
    number, outcome, reason, ended
        What the last record says, complete or not; 0 and empty texts where there is none.
    is_current
        Whether it had the configuration of today.
    live_rank
        Rank of the model that is live; None where there is none.
    rows_in, rows_quarantined
        Rows of that run; 0 where it did not come so far.
    error
        Why the history cannot be read; empty where it can.
    """

    number: int = 0
    outcome: str = ""
    reason: str = ""
    ended: str = ""
    is_current: bool = True
    live_rank: int | None = None
    rows_in: int = 0
    rows_quarantined: int = 0
    error: str = ""


def check_configuration(config: PipelineConfig | BaseException, path: str) -> HealthLine:
    """Check that the configuration reads.

    Parameters
    ----------
    config
        The pipeline; or why it does not read.
    path
        Its file.
    """
    if isinstance(config, BaseException):
        return fail(
            "configuration", "; ".join(str(config).splitlines()), "correct it", "configuration"
        )
    return note("configuration", f"{path}: pipeline {config.name!r}, rank {config.model.rank}")


def check_schema(schema: Schema | BaseException) -> HealthLine:
    """Check that the schema reads, and has the target.

    Parameters
    ----------
    schema
        The schema; or why it does not read.
    """
    if isinstance(schema, BaseException):
        return fail(
            "schema", str(schema), "draft one with `pmf infer`, or correct schema.file", "source"
        )
    return note("schema", f"{schema.n_variables:,} variables, {schema.n_levels:,} levels")


def check_history(history: HistoryFacts) -> list[HealthLine]:
    """Say how the last run ended, and what it put in quarantine."""
    if history.error:
        return [fail("last run", history.error, "`pmf verify` names what is damaged", "store")]
    if not history.number:
        return [note("last run", "none yet")]
    said = f"run {history.number}, {history.ended}: {history.outcome}: {history.reason}"
    if history.outcome in ("failed", "interrupted", "held back"):
        remedy = (
            "`pmf history` has the findings; --accept-quality takes the data as they are"
            if history.outcome == "held back"
            else "remove the cause, then run again: it goes on from there"
        )
        line = warn("last run", said, remedy)
    elif not history.is_current:
        line = note("last run", f"{said}; the configuration has changed since")
    else:
        line = note("last run", said)
    return [line, *_check_quarantine(history)]


def _check_quarantine(history: HistoryFacts) -> list[HealthLine]:
    if not history.rows_in:
        return []
    share = history.rows_quarantined / history.rows_in
    said = f"{history.rows_quarantined:,} of {history.rows_in:,} rows ({share:.2%})"
    if share > MUCH_QUARANTINE:
        return [warn("quarantine", said, "`pmf quarantine` writes them to a file, with reasons")]
    return [note("quarantine", said)]
