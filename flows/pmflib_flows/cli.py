"""The command ``pmf``: its commands, signal handling, and error messages."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn, TextIO

import typer

from pmflib.base.texts import mask_secrets
from pmflib_flows.commands.audit import log, verify
from pmflib_flows.commands.check import check
from pmflib_flows.commands.counts import counts
from pmflib_flows.commands.crowd import crowd
from pmflib_flows.commands.doctor import doctor
from pmflib_flows.commands.erase import erase
from pmflib_flows.commands.history import diff, gc, history
from pmflib_flows.commands.impute import impute
from pmflib_flows.commands.infer import infer
from pmflib_flows.commands.live_model import score
from pmflib_flows.commands.models import models, promote, rollback
from pmflib_flows.commands.plan import plan
from pmflib_flows.commands.query import query
from pmflib_flows.commands.recommend import recommend
from pmflib_flows.commands.rejects import quarantine
from pmflib_flows.commands.report import report
from pmflib_flows.commands.run import demo, run, status
from pmflib_flows.commands.schema_file import schema
from pmflib_flows.commands.three_steps import three_steps
from pmflib_flows.console import OutputClosedError, cut_message, err
from pmflib_flows.exit_codes import INTERRUPTED, OUTPUT_CLOSED, TERMINATED, USAGE, explain
from pmflib_flows.interruptions import is_interruption

app = typer.Typer(
    help="The joint distribution of many categorical variables, from very large logs. Start with `pmf demo`, or with "
    "`pmf infer DATA` and then `pmf run pipeline.toml`.",
    epilog="Exit codes: 0 done, "
    "1 bug in pmf (--debug shows where), 2 usage or configuration, 3 data or schema, 4 store, 5 memory, "
    "6 stopped by a quality check, 7 cluster, 130 interrupted, 141 output closed, 143 terminated.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
GROUPS: dict[str, tuple[Callable[..., object], ...]] = {
    "Start": (demo, infer, check, run, status),
    "Ask": (query, score, impute, recommend, three_steps, report),
    "Labels": (crowd,),
    "Operate": (
        models,
        promote,
        rollback,
        history,
        diff,
        log,
        verify,
        quarantine,
        erase,
        gc,
        plan,
        doctor,
    ),
}
"""Commands in the order of the help, which is the order in which a new user meets them."""
for group, verbs in GROUPS.items():
    for verb in verbs:
        app.command(rich_help_panel=group)(verb)
app.add_typer(schema, name="schema", rich_help_panel="Start")
app.add_typer(counts, name="counts", rich_help_panel="Operate")


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
    """Declare the options that `main` removes from the command line before anything else is parsed."""


# typer does not export the base of all errors of usage
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command; errors that a user can correct are one paragraph, others show a traceback with ``--debug``."""
    words = sys.argv[1:] or ["--help"]
    debug = "--debug" in words
    if words == ["--version"]:
        from importlib.metadata import version

        print(f"pmf {version('pmflib')}")
        return
    if debug:
        words.remove("--debug")
    else:
        # an error is printed once, below; Prefect also logs it with the run
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    terminations: list[int] = []

    def terminate(number: int, _: object) -> None:
        terminations.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    # unescaped otherwise
    warnings.showwarning = _warn
    try:
        # usage errors printed by typer itself would be unescaped
        ending = app(words, standalone_mode=False)
        sys.stdout.flush()
    except USAGE_ERROR as error:
        message = error.format_message()  # type: ignore[attr-defined]
        _refuse([f"error: {message} --help shows what there is"], USAGE)
    except OutputClosedError:
        # nor may Python fail when it flushes the remaining output
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(OUTPUT_CLOSED)
    except BaseException as error:
        # errors after a termination are its consequences, even if a library raises its own error
        if terminations or is_interruption(error):
            ending = INTERRUPTED
        elif debug or not isinstance(error, Exception):
            raise
        else:
            _refuse(*explain(error))
    # after an interruption, typer returns its exit code
    if ending == INTERRUPTED:
        # pending reads and writes are abandoned, as an interruption requires
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        word, code = ("terminated", TERMINATED) if terminations else ("interrupted", INTERRUPTED)
        _refuse([f"{word}: the store is valid; run the same command again to continue"], code)
    sys.exit(ending if isinstance(ending, int) else 0)


def _refuse(lines: Sequence[str], code: int) -> NoReturn:
    for line in cut_message([mask_secrets(line) for line in lines]):
        err.print(line, style="red")
    sys.exit(code)


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    for shown in cut_message([f"warning: {mask_secrets(str(message))}"]):
        err.print(shown, style="yellow")
