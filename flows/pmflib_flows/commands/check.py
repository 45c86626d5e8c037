"""Command that validates data against a schema without a run: check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pmflib.core.errors import ConfigError, SchemaError
from pmflib_flows.console import AsJson, load_pipeline, out, print_json
from pmflib_flows.exit_codes import EXIT_CODES


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

    Shown are rows that would be encoded and rows that would go to quarantine, with reasons and examples, missing values
    and unknown levels of each variable, columns that are not in the schema, and files that seem to be written otherwise
    than they are read. Of data without a pipeline.toml, encoding, delimiter, header and decimals are found out.
    """
    from pmflib.ingest.data_checks import check_data
    from pmflib.ingest.options import SchemaOptions, SourceOptions, make_source
    from pmflib.ingest.sniffing import sniff_source
    from pmflib.ingest.sources import find_sources
    from pmflib.schema import Schema
    from pmflib_flows.check_tables import describe_check, make_check_tables

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
        print_json({**describe_check(result), "found_out": notes})
    else:
        for note in notes:
            out.print(f"found out: {note}")
        for table in make_check_tables(result):
            out.print(table)
        out.print("Every row fits the schema" if result.fits else "Some rows do not fit the schema")
    if not result.fits:
        raise typer.Exit(EXIT_CODES[SchemaError])
