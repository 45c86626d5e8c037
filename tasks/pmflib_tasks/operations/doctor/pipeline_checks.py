"""A pipeline itself: checks of its configuration, its schema and its last run, and the memory that it plans for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pmflib.ingest.dataset.accounts import DatasetAccount
from pmflib.schema import Schema
from pmflib.store.artefacts import Store
from pmflib.store.objects.addresses import is_bucket
from pmflib.store.run_records import list_records
from pmflib_tasks.config import PipelineConfig
from pmflib_tasks.operations.doctor import HealthLine, fail, note, warn

MUCH_QUARANTINE = 0.05
"""Share of the rows from which those in quarantine are worth a warning."""


@dataclass(frozen=True)
class RunHistory:
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


def find_run_history(config: PipelineConfig) -> RunHistory:
    """What the store says of the runs of a pipeline; a store that is not there is not made."""
    path = config.resolve(config.store.path)
    if not is_bucket(path) and not Path(path, "manifest").is_dir():
        return RunHistory()
    store = Store(path)
    records = [each for each in list_records(store, config.name) if each.action == "run"]
    if not records:
        return RunHistory()
    last, rank = records[-1], None
    if last.live is not None and (entry := store.find(last.live.identity)) is not None:
        rank = entry.summary.get("rank")
    rows = DatasetAccount.find(last.facts) or DatasetAccount()
    return RunHistory(
        number=last.number,
        outcome=last.outcome,
        reason=last.reason,
        ended=last.ended,
        is_current=last.config == config.digest,
        live_rank=rank,
        rows_in=rows.rows_in,
        rows_quarantined=rows.rows_quarantined,
    )


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


def check_history(history: RunHistory) -> list[HealthLine]:
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


def _check_quarantine(history: RunHistory) -> list[HealthLine]:
    if not history.rows_in:
        return []
    share = history.rows_quarantined / history.rows_in
    said = f"{history.rows_quarantined:,} of {history.rows_in:,} rows ({share:.2%})"
    if share > MUCH_QUARANTINE:
        return [warn("quarantine", said, "`pmf quarantine` writes them to a file, with reasons")]
    return [note("quarantine", said)]
