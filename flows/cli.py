"""The command ``pmf``.

Exit codes: 0 done; 1 a defect of ours, shown with ``--debug``; 2 wrong usage or configuration; 3 the data do not fit:
source or schema; 4 the store: an artefact is missing or damaged; 5 it would not fit in memory; 6 held back by a guard
of quality; 130 interrupted.
"""

from __future__ import annotations

import os
import sys

import typer

from flows.commands.audit import log, verify
from flows.commands.crowd import crowd
from flows.commands.infer import infer
from flows.commands.live_model import query, score
from flows.commands.rejects import quarantine
from flows.commands.run import demo, run, status
from flows.console import err
from pmflib.errors import (
    ConfigError,
    MemoryPlanError,
    PmfError,
    QualityError,
    RankError,
    SchemaError,
    SourceError,
    StoreError,
)

app = typer.Typer(
    help="The joint distribution of many categorical variables, from very large logs.",
    epilog="Start with `pmf demo`, or with `pmf infer DATA` and then `pmf run pipeline.toml`. Exit codes: 0 done, "
    "1 defect of pmf (--debug shows where), 2 usage or configuration, 3 data or schema, 4 store, 5 memory, "
    "6 held back by quality, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (run, demo, infer, status, score, query, log, verify, quarantine, crowd):
    app.command()(verb)

EXIT_CODES: dict[type[PmfError], int] = {
    ConfigError: 2,
    RankError: 2,
    SourceError: 3,
    SchemaError: 3,
    StoreError: 4,
    MemoryPlanError: 5,
    QualityError: 6,
}
"""Exit code of the command by the class of the error."""


def main() -> None:
    """Run the command; errors that a user can correct are one paragraph; others show a traceback with ``--debug``."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    else:
        # an error is printed once, below; Prefect stores its own log with the run
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    try:
        app()
    except SystemExit as ending:
        # the exit code of typer after Ctrl-C, which prints nothing
        if ending.code == 130:
            err.print(
                "interrupted: the store is valid; the same command goes on from here",
                soft_wrap=True,
            )
        raise
    except Exception as error:
        if debug:
            raise
        known = isinstance(error, PmfError)
        err.print(
            f"error: {error}" if known else f"defect: {type(error).__name__}: {error}",
            style="red",
            markup=False,
        )
        if not known:
            err.print("run again with --debug for a traceback")
        sys.exit(EXIT_CODES.get(type(error), 2) if isinstance(error, PmfError) else 1)


if __name__ == "__main__":
    main()
