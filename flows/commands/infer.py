"""Command that drafts a pipeline from data: infer."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.console import AsJson, out, print_json
from pmflib.errors import ConfigError

if TYPE_CHECKING:
    from pmflib.config import SourceConfig

NOTES_SHOWN = 20
"""Notes for the reviewer that are printed, at most; the configuration holds all."""

FAR = "../../.."
"""Prefix of a relative path that is too long to read; the full path is written instead."""


def infer(
    path: Annotated[str, typer.Argument(help="File, folder, glob or URL.")],
    sample: Annotated[str | None, typer.Option(help="Column that identifies the sample.")] = None,
    variable: Annotated[
        str | None, typer.Option(help="Long logs: column that names the variable.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Long logs: column that holds the answer.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="Long logs: column that orders answers.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Names of the columns of files without a header: a,b,c.")
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="The first row is data: columns are named c1, c2, ..."),
    ] = False,
    delimiter: Annotated[str, typer.Option(help="Delimiter of CSV files; \\t is a tab.")] = ",",
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="Text that means 'not given', besides '', NA, NaN, null; may be repeated."
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(min=1, help="Long logs: answers that a variable must have.")
    ] = 1,
    max_levels: Annotated[
        int, typer.Option(min=2, help="More distinct numbers are cut into bins.")
    ] = 32,
    bins: Annotated[int, typer.Option(min=2, help="Bins of a continuous column.")] = 8,
    rank: Annotated[
        str,
        typer.Option(help="Number of latent states; auto: chosen on held-out counts and samples."),
    ] = "8",
    output: Annotated[Path, typer.Option(help="Folder for schema.json and pipeline.toml.")] = Path(
        "."
    ),
    as_json: AsJson = False,
) -> None:
    """Draft schema.json and pipeline.toml from data, for you to review.

    Without --variable, a row is a sample and a column a variable. With --sample, --variable and --value, a row is one
    answer of a sample to a variable.
    """
    from pmflib.config import make_source
    from pmflib.config.draft import draft_config
    from pmflib.ingest import draft_schema, find_sources, number_columns
    from pmflib.schema.variable import DEFAULT_MISSING

    chosen = _read_rank(rank)
    targets = (output / "schema.json", output / "pipeline.toml")
    if existing := [str(target) for target in targets if target.exists()]:
        raise ConfigError(f"{existing} exist already; give --output another folder, or delete them")
    absolute = path if "://" in path else str(Path(path).resolve())
    fields: dict[str, Any] = {
        "path": absolute,
        "layout": "wide" if variable is None and value is None and time is None else "long",
        "sample": sample,
        "variable": variable,
        "value": value,
        "time": time,
        "delimiter": delimiter.replace("\\t", "\t"),
        "columns": None if columns is None else tuple(columns.split(",")),
    }
    if missing:
        fields["missing"] = tuple(dict.fromkeys([*DEFAULT_MISSING, *missing]))
    source = make_source(fields)
    found = find_sources(absolute)
    if no_header:
        if columns is not None:
            raise ConfigError("--no-header names the columns itself; give it or --columns")
        source = source.model_copy(update={"columns": number_columns(found[0], source)})
    schema, notes = draft_schema(
        found, source, max_levels=max_levels, bins=bins, min_count=min_count
    )
    output.mkdir(parents=True, exist_ok=True)
    schema.save(targets[0], review=notes)
    targets[1].write_text(draft_config(relate(source, output), rank=chosen, notes=notes), "utf-8")
    if as_json:
        print_json({"variables": schema.n_variables, "levels": schema.n_levels, "review": notes})
        return
    out.print(f"{schema.n_variables} variables with {schema.n_levels} levels in all")
    for note in notes[:NOTES_SHOWN]:
        out.print(f"review: {note}")
    if notes[NOTES_SHOWN:]:
        out.print(f"review: all {len(notes)} notes are in {targets[1]}")
    command = f"pmf run {shlex.quote(str(targets[1]))}"
    out.print(
        f"Wrote {targets[0]} and {targets[1]}; review them, then: {command}",
    )


def _read_rank(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"--rank is {text!r}; give a whole number of at least 1, or auto")
    return int(text)


def relate(source: SourceConfig, base: Path) -> SourceConfig:
    """Source as seen from the folder of the configuration; data far away from it keep their full path."""
    path = str(source.path)
    if "://" not in path:
        near = os.path.relpath(path, base.resolve())
        path = path if near.startswith(FAR) else near
    return source.model_copy(update={"path": path})
