"""The log of a flow run in Prefect: it says what the command line says."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, cast

from flows.console import SafeConsole
from flows.fact_tables import ROWS, make_facts_tables, make_labels_table
from flows.stage_bars import show_progress
from flows.tables import format_value
from pmflib.store.run_records import RunRecord
from tasks.prefect_artifacts import make_key
from tasks.prefect_runs import is_flow_run

LOG_SECONDS = 30.0
"""Seconds between lines on a running stage: logs of scheduled runs are kept, and stay short."""

LOG_WIDTH = 120
"""Columns of tables in the log."""


class _LogLines:
    """A file for a console: every line becomes a message of a logger."""

    def __init__(self, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._logger, self._rest = logger, ""

    def write(self, text: str) -> int:
        """Log the lines that are whole."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._logger.info("%s", line.rstrip())
        return len(text)

    def flush(self) -> None:
        """Do nothing: a line is logged when it is whole."""


@contextmanager
def log_progress() -> Iterator[None]:
    """Log the progress of stages while the context lasts, in a flow run; outside one, nothing is logged."""
    if not is_flow_run():
        yield
        return
    with show_progress(_open_console(), LOG_SECONDS):
        yield


def log_line(text: str) -> None:
    """Log a line in a flow run; outside one, do nothing."""
    if is_flow_run():
        _open_console().print(text)


def log_run(name: str, record: RunRecord) -> None:
    """Log how a run has ended, and show it in Prefect as an artifact; outside a flow run, do nothing.

    Parameters
    ----------
    name
        Name of the pipeline.
    record
        Its record; number 0 if it could not be written.
    """
    if not is_flow_run():
        return
    facts, console = record.facts, _open_console()
    if {"rows", "model", "scores"} <= facts.keys():
        for table in make_facts_tables(facts):
            console.print(table)
    elif "tasks" in facts:
        console.print(make_labels_table(facts))
    sentence = describe_rows(facts.get("rows", {}))
    rows = {"run": record.number, "outcome": record.outcome, "reason": record.reason}
    rows |= {"rows": sentence} if sentence else {}
    rows |= {} if record.live is None else {"live model": record.live.digest[:24]}
    for what, value in rows.items():
        console.print(f"{what}: {value}")
    shown = [{"what": what, "value": str(value)} for what, value in rows.items()]
    title = f"run {record.number}: {record.outcome}"
    try:
        from prefect.artifacts import create_table_artifact

        create_table_artifact(key=make_key(name, "run"), table=shown, description=title)
    except Exception as error:
        # the run is over, and its record is in the store: a server that is gone changes nothing about that
        console.print(f"the artifact of the run could not be stored: {error}")


def describe_rows(rows: Mapping[str, Any]) -> str:
    """Sentence on an account of rows: read, used, in quarantine by reason.

    Examples
    --------
    >>> describe_rows({"rows_in": 9, "rows_encoded": 7, "rows_quarantined": 2, "reasons": {"ragged": 2}})
    '9 rows read, 7 rows used, 2 rows in quarantine (ragged 2)'
    """
    said = [f"{format_value(rows[key])} {text}" for key, text in _COUNTED.items() if key in rows]
    if rows.get("reasons"):
        said[-1] += f" ({format_value(rows['reasons'])})"
    return ", ".join(said)


_COUNTED = {key: text for key, text in ROWS.items() if key.startswith("rows_")}


def _open_console() -> SafeConsole:
    from prefect.logging import get_run_logger

    lines = cast(IO[str], _LogLines(get_run_logger()))
    return SafeConsole(file=lines, width=LOG_WIDTH, color_system=None, force_terminal=False)
