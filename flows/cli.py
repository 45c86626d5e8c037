"""The command ``pmf``.

Exit codes: 0 done; 1 a defect of ours, shown with ``--debug``; 2 wrong usage or configuration; 3 the data do not fit:
source or schema; 4 the store: an artefact is missing or damaged; 5 it would not fit in memory; 6 held back by a guard
of quality; 7 the cluster: no scheduler, or no workers; 130 interrupted; 141 whoever read the output closed it; 143
terminated.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn, TextIO

import typer

from flows.commands.audit import log, verify
from flows.commands.check import check
from flows.commands.copy import copy
from flows.commands.crowd import crowd
from flows.commands.doctor import doctor
from flows.commands.erase import erase
from flows.commands.history import diff, gc, history
from flows.commands.infer import infer
from flows.commands.live_model import score
from flows.commands.models import models, promote, rollback
from flows.commands.plan import plan
from flows.commands.query import query
from flows.commands.rejects import quarantine
from flows.commands.report import report
from flows.commands.run import demo, run, status
from flows.commands.schema_file import schema
from flows.console import OutputClosedError, err
from flows.exit_codes import EXIT_CODES
from flows.interruptions import is_interruption
from pmflib.errors import ConfigError, PmfError, QualityError, QuestionError
from pmflib.ingest.source_urls import mask_secrets

app = typer.Typer(
    help="The joint distribution of many categorical variables, from very large logs.",
    epilog="Start with `pmf demo`, or with `pmf infer DATA` and then `pmf run pipeline.toml`. Exit codes: 0 done, "
    "1 defect of pmf (--debug shows where), 2 usage or configuration, 3 data or schema, 4 store, 5 memory, "
    "6 held back by quality, 7 cluster, 130 interrupted, 141 output closed, 143 terminated.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (
    run,
    demo,
    infer,
    check,
    doctor,
    plan,
    status,
    score,
    query,
    report,
    models,
    promote,
    rollback,
    history,
    diff,
    log,
    verify,
    gc,
    copy,
    erase,
    quarantine,
    crowd,
):
    app.command()(verb)
app.add_typer(schema, name="schema")


@app.callback()
def show_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; anywhere in the command."),
    ] = False,
) -> None:
    """Name the options that `main` takes from the command before anything else is read."""


INTERRUPTED = 130
"""What typer returns after an interruption: the exit code of one."""

# typer does not export the base of all errors of usage
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command; errors that a user can correct are one paragraph; others show a traceback with ``--debug``."""
    words = sys.argv[1:] or ["--help"]
    debug = "--debug" in words
    if words == ["--version"]:
        from importlib.metadata import version

        print(f"pmf {version('pmflib')}")
        return
    if debug:
        words.remove("--debug")
    else:
        # an error is printed once, below; Prefect stores its own log with the run
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    terminations: list[int] = []

    def terminate(number: int, _: object) -> None:
        terminations.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    # as it stands it would be raw
    warnings.showwarning = _warn
    try:
        # what typer itself prints of wrong usage would be raw
        ending = app(words, standalone_mode=False)
        sys.stdout.flush()
    except USAGE_ERROR as error:
        message = error.format_message()  # type: ignore[attr-defined]
        _refuse([f"error: {message} --help shows what there is"], 2)
    except OutputClosedError:
        # nor may Python fail when it flushes what is left
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except Exception as error:
        if is_interruption(error):
            ending = INTERRUPTED
        elif debug:
            raise
        else:
            _refuse(*_explain(error))
    if ending == INTERRUPTED:
        # reads and writes that were under way are given up: that is what an interruption is
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        word, code = ("terminated", 143) if terminations else ("interrupted", INTERRUPTED)
        _refuse([f"{word}: the store is valid; the same command goes on from here"], code)
    sys.exit(ending if isinstance(ending, int) else 0)


def _explain(error: Exception) -> tuple[list[str], int]:
    """Lines and exit code for what stopped a command."""
    if isinstance(error, ConfigError):
        # a line for each option that is wrong
        return f"error: {error}".split("\n"), EXIT_CODES[ConfigError]
    if isinstance(error, PmfError):
        code = next((EXIT_CODES[each] for each in type(error).__mro__ if each in EXIT_CODES), 2)
        message = f"error: {error}"
        # findings, and the question and the carets under it, are lines of their own
        has_lines = isinstance(error, QuestionError | QualityError)
        return message.split("\n") if has_lines else [message], code
    if isinstance(error, MemoryError):
        return ["error: the memory is exhausted; give more, or set cluster.memory_limit"], 5
    if isinstance(error, OSError) and error.errno is not None:
        said = f"error: the system refused what is needed ({error}); see to it, then run again"
        return [said], 4
    defect = f"defect: {type(error).__name__}: {error}"
    return [defect, "run again with --debug for a traceback"], 1


def _refuse(lines: Sequence[str], code: int) -> NoReturn:
    for line in lines:
        err.print(mask_secrets(line), style="red")
    sys.exit(code)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    err.print(f"warning: {mask_secrets(str(message))}", style="yellow")
