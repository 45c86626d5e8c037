"""Command that validates data against a schema without a run: check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pmflib.base.display.summary import percent
from pmflib.base.errors import ConfigError, SchemaError
from pmflib_flows.console import AsJson, load_pipeline, out, print_json
from pmflib_flows.exit_codes import EXIT_CODES
from pmflib_flows.tables import make_table

if TYPE_CHECKING:
    from rich.console import Group

    from pmflib.ingest.data_checks import DataCheck

VARIABLES_SHOWN = 40
"""Maximum number of variables shown: those with most unknown values, then those with most missing values."""
LEVELS_SHOWN = 5
"""Maximum number of unknown levels shown per variable."""
RAW_SHOWN = 80
"""Maximum number of characters shown of a row in quarantine."""


def check(
    target: Annotated[
        str,
        typer.Argument(help="pipeline.toml; or data: file, folder, glob or URL, with --schema."),
    ],
    schema: Annotated[
        Path | None,
        typer.Option(help="The schema.", show_default="what pipeline.toml names"),
    ] = None,
    sample: Annotated[
        str | None, typer.Option(help="Data: column that identifies the sample.")
    ] = None,
    variable: Annotated[
        str | None, typer.Option(help="Data in a long log: column that names the variable.")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="Data in a long log: column that holds the answer.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Validate data against the schema without a run; exit code 3 if a row does not fit.

    Shows the rows that would be encoded or go to quarantine, with reasons and examples; missing values
    and unknown levels of each variable; columns that are not in the schema; and files whose format differs from the
    options. For data without a pipeline.toml, encoding, delimiter, header and decimals are detected.
    """
    from pmflib.ingest.csv.sniffing import sniff_source
    from pmflib.ingest.data_checks import check_data
    from pmflib.ingest.options import SchemaOptions, SourceOptions, make_source
    from pmflib.ingest.sources import find_sources
    from pmflib.schema import Schema

    notes: list[str] = []
    policy = SchemaOptions()
    source: SourceOptions
    if target.lower().endswith(".toml"):
        if given := [name for name in (sample, variable, value) if name is not None]:
            raise ConfigError(f"{given} are columns that {target!r} names itself; leave them out")
        config = load_pipeline(Path(target))
        source, policy = config.source, config.schema_
        found = find_sources(
            config.source_paths,
            source.suffixes,
            skip_empty=source.on_empty_file == "skip",
        )
        file = Path(config.resolve(policy.file)) if schema is None else schema
    else:
        if schema is None:
            raise ConfigError(
                "--schema is not given: say which schema the data are checked against; `pmf infer` drafts one"
            )
        fields: dict[str, Any] = {"path": target, "layout": "wide", "sample": sample}
        if variable is not None or value is not None:
            fields |= {"layout": "long", "variable": variable, "value": value}
        file, found = schema, find_sources(target)
        source, notes = sniff_source(found, make_source(fields), fields)
    result = check_data(found, Schema.load(file), source, policy)
    if as_json:
        print_json({**_describe(result), "found_out": notes})
    else:
        for note in notes:
            out.print(f"detected: {note}")
        for table in _make_tables(result):
            out.print(table)
        if result.repeated:
            out.print(result.repeated)
        out.print("Every row fits the schema" if result.fits else "Some rows do not fit the schema")
    if not result.fits:
        raise typer.Exit(EXIT_CODES[SchemaError])


def _describe(check: DataCheck) -> dict[str, object]:
    """Build JSON content of everything that was found."""
    content = asdict(check)
    for found, each in zip(content["variables"], check.variables, strict=True):
        found["share_missing"] = each.share_missing
    return {"fits": check.fits, **content}


def _make_tables(check: DataCheck) -> list[Group]:
    """Build tables of rows, of notes on files, of rows in quarantine, and of variables."""
    rows = [
        (
            file.name,
            file.rows_in,
            file.rows_encoded,
            file.rows_left_out,
            file.rows_quarantined,
            file.reasons or "-",
        )
        for file in check.files
    ]
    tables = [
        make_table("Rows", ("file", "rows", "encoded", "left out", "quarantined", "why"), rows)
    ]
    notes = [(file.name, f"cannot be used: {file.error}") for file in check.files if file.error]
    notes += [(file.name, sentence) for file in check.files for sentence in file.reading]
    notes += [
        (file.name, f"columns that are not in the schema, and not read: {file.ignored_columns[:8]}")
        for file in check.files
        if file.ignored_columns
    ]
    if notes:
        tables.append(make_table("Files", ("file", "what was found"), notes))
    rejected = [
        (file.name, number, reason, column or "-", raw[:RAW_SHOWN])
        for file in check.files
        for reason, kept in file.examples.items()
        for number, column, raw in kept
    ]
    if rejected:
        title = "Rows in quarantine, the first of each reason"
        tables.append(make_table(title, ("file", "row", "reason", "column", "text"), rejected))
    variables = sorted(
        check.variables,
        key=lambda each: (-sum(n for _, n, _ in each.unknown), -each.share_missing),
    )
    described = [
        (
            each.name,
            each.values,
            percent(each.share_missing),
            each.undecodable,
            sum(n for _, n, _ in each.unknown),
            _list_unknown(each.unknown),
        )
        for each in variables[:VARIABLES_SHOWN]
    ]
    title = "Variables"
    if more := len(variables) - len(described):
        title += f" ({more} more: --json has all)"
    columns = ("variable", "values", "missing", "undecodable", "unknown", "unknown levels")
    return [*tables, make_table(title, columns, described)]


def _list_unknown(unknown: list[tuple[str, int, str | None]]) -> str:
    shown = [
        f"{text!r} {n:,}" + (f" ({near!r}?)" if near is not None else "")
        for text, n, near in unknown[:LEVELS_SHOWN]
    ]
    return ", ".join(shown + (["..."] if unknown[LEVELS_SHOWN:] else [])) or "-"
