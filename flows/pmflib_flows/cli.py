"""The command ``pmf``: its commands, signal handling, and error messages."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup
from typer.main import get_command

from pmflib.base.texts import mask_secrets
from pmflib_flows.console import OutputClosedError, cut_message, err
from pmflib_flows.exit_codes import INTERRUPTED, OUTPUT_CLOSED, TERMINATED, USAGE, explain
from pmflib_flows.features import FEATURES
from pmflib_flows.interruptions import is_interruption
from pmflib_tasks.feature import Command, Place

CORE = (
    Command("check", Place("pmflib_flows.commands.check:check"), "Start", 30),
    Command("run", Place("pmflib_flows.commands.run:run"), "Start", 40),
    Command("status", Place("pmflib_flows.commands.run:status"), "Start", 50),
    Command("models", Place("pmflib_flows.gate.models:models"), "Operate", 310),
    Command("promote", Place("pmflib_flows.gate.models:promote"), "Operate", 320),
    Command("rollback", Place("pmflib_flows.gate.models:rollback"), "Operate", 330),
    Command("history", Place("pmflib_flows.commands.history:history"), "Operate", 340),
    Command("diff", Place("pmflib_flows.gate.diff:diff"), "Operate", 350),
    Command("log", Place("pmflib_flows.commands.audit:log"), "Operate", 360),
    Command("verify", Place("pmflib_flows.commands.audit:verify"), "Operate", 370),
    Command("quarantine", Place("pmflib_flows.commands.rejects:quarantine"), "Operate", 380),
    Command("gc", Place("pmflib_flows.commands.history:gc"), "Operate", 400),
)
"""Commands of the core; those of the features stand between them."""


class Commands(Mapping[str, Any]):
    """Commands by name, as Typer knows them, in the order of the help; each is imported when it is looked up."""

    def __init__(self) -> None:
        found = [*CORE, *(command for feature in FEATURES for command in feature.commands)]
        self._listed = {each.name: each for each in sorted(found, key=lambda each: each.position)}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Import a command."""
        if name not in self._loaded:
            command, holder = self._listed[name], typer.Typer(add_completion=False)
            found = command.place.load()
            # with a callback, Typer makes a group even of one command
            holder.callback()(lambda: None)
            if isinstance(found, typer.Typer):
                holder.add_typer(found, name=name, rich_help_panel=command.panel)
            else:
                holder.command(name, rich_help_panel=command.panel)(found)
            self._loaded[name] = get_command(holder).commands[name]  # type: ignore[attr-defined]
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names; nothing is imported."""
        return iter(self._listed)

    def __len__(self) -> int:
        """Return the number of commands."""
        return len(self._listed)


class CommandGroup(TyperGroup):
    """Group of the commands of the core and of all features."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Commands()  # type: ignore[assignment]


app = typer.Typer(
    cls=CommandGroup,
    help="The joint distribution of many categorical variables, from very large logs. Start with `pmf demo`, or with "
    "`pmf infer DATA` and then `pmf run pipeline.toml`.",
    epilog="Exit codes: 0 done, "
    "1 bug in pmf (--debug shows where), 2 usage or configuration, 3 data or schema, 4 store, 5 memory, "
    "6 stopped by a quality check, 7 cluster, 130 interrupted, 141 output closed, 143 terminated.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
