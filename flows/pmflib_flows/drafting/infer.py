"""Command that drafts a pipeline from data: infer."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pmflib_flows.console import AsJson, out, print_json
from pmflib_flows.option_objects import takes_options
from pmflib_tasks.drafting.draft_options import DraftOptions

NOTES_SHOWN = 20
"""Maximum number of notes printed for review; the configuration contains all of them."""


@takes_options
def infer(
    path: Annotated[str, typer.Argument(help="File, folder, glob or URL.")],
    *,
    options: DraftOptions,
    output: Annotated[
        Path, typer.Option(help="Output folder for schema.json and pipeline.toml.")
    ] = Path("."),
    as_json: AsJson = False,
) -> None:
    """Draft schema.json and pipeline.toml from data for review; schema.md explains each decision.

    Without --variable, each row is a sample and each column a variable. With --sample, --variable and --value, each row
    is one answer of a sample to a variable; if all answers are numbers, continuous traits will be compared with latent
    classes. If a table looks like such a log, these options are suggested.

    Encoding, delimiter, header and decimals of CSV files are detected unless given, and unusual values are noted for
    review.
    """
    from pmflib_tasks.drafting.drafting import draft_pipeline

    drafted = draft_pipeline(path, output, options)
    schema, notes = drafted.schema, drafted.notes
    if as_json:
        print_json(
            {
                "variables": schema.n_variables,
                "levels": schema.n_levels,
                "review": notes,
                "long_flags": drafted.long_flags,
            }
        )
        return
    out.print(f"{schema.n_variables} variables with {schema.n_levels} levels in all")
    for note in notes[:NOTES_SHOWN]:
        out.print(f"review: {note}")
    written, readable, config = drafted.files
    if notes[NOTES_SHOWN:]:
        out.print(f"review: all {len(notes)} notes are in {config}")
    command = f"pmf run {shlex.quote(str(config))}"
    out.print(f"Wrote {written}, {readable} and {config}; review them, then: {command}")
    if drafted.long_flags:
        folder = shlex.quote(str(output / "long"))
        again = f"pmf infer {shlex.quote(path)} {drafted.long_flags} --output {folder}"
        out.print(f"If a row is one answer, draft it as a long log: {again}")
