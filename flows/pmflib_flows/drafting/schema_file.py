"""Commands for a drafted schema: schema show, schema set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmflib.base.errors import ConfigError, SchemaError
from pmflib_flows.console import AsJson, out, print_json

if TYPE_CHECKING:
    from pmflib.schema.value_counts import ValueCounts
    from pmflib.surveys.drafting.drafted_schema import DraftedSchema

schema = typer.Typer(help="Show or change a drafted schema.", add_completion=False)

SchemaPath = Annotated[Path, typer.Argument(help="Schema, schema.json.")]
ROLES = ("nominal", "ordinal", "continuous", "identifier")


@schema.command()
def show(
    path: SchemaPath,
    column: Annotated[str | None, typer.Argument(help="Column. Default: all columns.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the decision on every column with its reason, or all levels of one column."""
    from pmflib.surveys.drafting.drafted_schema import DraftedSchema

    drafted = DraftedSchema.load(path)
    names = list(drafted.columns) if column is None else [drafted.check_name(column)]
    if column is not None or as_json:
        found = {name: _describe(drafted, name) for name in names}
        print_json(found if column is None else found[column])
        return
    for line in drafted.describe(path.name).splitlines():
        out.print(line)


@schema.command(name="set")
def set_(
    path: SchemaPath,
    column: Annotated[
        str | None, typer.Argument(help="Column. Without one, --missing applies to all columns.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(help="nominal, ordinal, continuous or identifier.")
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            help="Missing code besides '', NA, NaN, null; may be repeated. 'none': of all these only '' is one."
        ),
    ] = None,
    levels: Annotated[
        list[str] | None,
        typer.Option(
            help="Levels in order: low,mid,high; a level with a comma in quotation marks, '\"no, never\",yes', or each "
            "level by an option of its own."
        ),
    ] = None,
    other: Annotated[
        str | None,
        typer.Option(help="Number of levels to keep; the rest become one level. 'none' keeps all."),
    ] = None,
    bins: Annotated[int | None, typer.Option(help="Number of bins of a continuous column.")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Remove the column.")] = False,
    file: Annotated[
        str | None, typer.Option(help="Data, if not at the location that the draft was made from.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change a column of a schema and rewrite schema.md; data are read if new bins or levels need them."""
    from pmflib.surveys.drafting.drafted_schema import DraftedSchema
    from pmflib.surveys.drafting.level_order import split_levels
    from pmflib.surveys.drafting.schema_edits import (
        ColumnEdit,
        edit_column,
        edit_missing,
    )

    drafted = DraftedSchema.load(path)
    if role is not None and role not in ROLES:
        raise ConfigError(f"--role is {role!r}; pass one of {ROLES}")
    codes = None if missing is None else tuple(missing)
    was_read: list[str] = []

    def read(names: Sequence[str]) -> Mapping[str, ValueCounts]:
        from pmflib.ingest.column_values import count_values
        from pmflib.ingest.options import make_source
        from pmflib.ingest.sources import find_sources

        source = make_source(_find_source(drafted, path, file))
        was_read.append(str(source.path))
        is_number = role == "continuous" or bins is not None
        binned = {each.name for each in drafted.schema if each.edges is not None and not role}
        coded = [] if is_number else [name for name in names if name not in binned]
        return count_values(find_sources(source.path), source, names, coded)

    if column is None:
        if codes is None or any((role, levels, other, bins, drop)):
            raise ConfigError("name the column to change; without one there is --missing alone")
        edited = edit_missing(drafted, codes, read)
    else:
        edit = ColumnEdit(
            role=role,  # type: ignore[arg-type]
            missing=codes,
            levels=None if levels is None else split_levels(levels),
            other=_read_other(other),
            bins=bins,
            is_dropped=drop,
        )
        edited = edit_column(drafted, column, edit, read)
    readable = edited.save(path)
    changed = [
        name for name in edited.columns if _describe(drafted, name) != _describe(edited, name)
    ]
    if as_json:
        print_json({name: _describe(edited, name) for name in changed})
        return
    for source in was_read:
        out.print(f"Read {source} again for the values.")
    for name in changed:
        out.print(edited.describe_column(name))
    out.print(f"Wrote {path} and {readable}; {len(changed)} columns changed")


def _read_other(text: str | None) -> int | None:
    if text is None or text == "none":
        return None if text is None else 0
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"--other is {text!r}; pass the number of levels to keep, or none")
    return int(text)


def _find_source(drafted: DraftedSchema, path: Path, file: str | None) -> dict[str, object]:
    """Return the source options of the draft, with another path if given."""
    options = dict(drafted.source or {"layout": "wide"})
    if file is not None:
        return options | {"path": file}
    if "path" not in options:
        raise SchemaError(
            f"{path} does not say which data it was drafted from, and this change needs them; give --file"
        )
    noted = options["path"]
    if isinstance(noted, str) and "://" not in noted:
        options["path"] = str(path.parent / noted)
    return options


def _describe(drafted: DraftedSchema, name: str) -> dict[str, object]:
    """Return the draft of a column and its variable as plain JSON types."""
    variable = drafted.schema[name].to_json() if name in drafted.schema else None
    return {"column": name, **asdict(drafted.columns[name]), "variable": variable}
