"""Log and artifact of flow runs in Prefect, with the content of the command-line output."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pmflib.base.display.progress_bars import draw_progress
from pmflib.store.run_records import RunRecord
from pmflib_flows.console import SafeConsole
from pmflib_flows.run_tables import draw_sections
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.prefect_runs import is_flow_run, make_artifact_key
from pmflib_tasks.sections import describe_account, list_sections

LOG_SECONDS = 30.0
"""Interval between log lines on a running stage, seconds, which keeps logs of scheduled runs short."""

LOG_WIDTH = 120
"""Width of tables in the log, characters."""


class _LogLines:
    """File for a console in which every line becomes a log message."""

    def __init__(self, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self._logger, self._rest = logger, ""

    def write(self, text: str) -> int:
        """Log complete lines."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._logger.info("%s", line.rstrip())
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are logged when they are complete."""


@contextmanager
def log_progress() -> Iterator[None]:
    """Log the progress of stages within the context, in a flow run only."""
    if not is_flow_run():
        yield
        return
    with draw_progress(_open_console(), LOG_SECONDS):
        yield


def log_line(text: str) -> None:
    """Log a line, in a flow run only."""
    if is_flow_run():
        _open_console().print(text)


def log_run(name: str, record: RunRecord) -> None:
    """Log the outcome of a run and show it in Prefect as an artifact, in a flow run only.

    Parameters
    ----------
    name
        Name of the pipeline.
    record
        Its record; the number is 0 if it could not be written.
    """
    if not is_flow_run():
        return
    facts, console = record.facts, _open_console()
    if record.is_complete:
        for part in draw_sections(list_sections(facts)):
            console.print(_without_lines(part))
    account = RunFacts(facts).account
    sentence = "" if account is None else describe_account(account)
    rows = {"run": record.number, "outcome": record.outcome, "reason": record.reason}
    rows |= {"rows": sentence} if sentence else {}
    rows |= {} if record.live is None else {"live model": record.live.digest[:24]}
    for what, value in rows.items():
        console.print(f"{what}: {value}")
    shown = [{"what": what, "value": str(value)} for what, value in rows.items()]
    title = f"run {record.number}: {record.outcome}"
    try:
        from prefect.artifacts import create_table_artifact

        create_table_artifact(key=make_artifact_key(name, "run"), table=shown, description=title)
    except Exception as error:
        # the run is over and its record is in the store, so a lost server does not matter
        console.print(f"the artifact of the run could not be stored: {error}")


def _without_lines(shown: Group | Text) -> Group | Text:
    """Return tables without lines, because logs are searched and parsed by programs."""
    for part in shown.renderables if isinstance(shown, Group) else ():
        if isinstance(part, Table):
            part.box = None
    return shown


def _open_console() -> SafeConsole:
    from prefect.logging import get_run_logger

    lines = cast(IO[str], _LogLines(get_run_logger()))
    return SafeConsole(file=lines, width=LOG_WIDTH, color_system=None, force_terminal=False)
