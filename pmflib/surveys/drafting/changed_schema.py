"""Changes of one variable of a schema in memory: what is behind `pmflib.Schema.set`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pmflib.base.errors import SchemaError, SchemaWarning
from pmflib.schema import Schema
from pmflib.schema.tables import as_arrow
from pmflib.schema.value_counts import ValueCounts
from pmflib.surveys.drafting.drafted_schema import ColumnDraft, DraftedSchema
from pmflib.surveys.drafting.remedies import CHANGE
from pmflib.surveys.drafting.schema_edits import ColumnEdit, edit_column

_FLAG = re.compile(r"--(role|missing|levels|other|bins|drop)\b(?: (?=['\d]))?")


def change_schema(schema: Schema, name: str, table: object, **changes: Any) -> Schema:
    """Change one variable of a schema, as `pmflib.Schema.set`, which calls it, documents it.

    Raises
    ------
    SchemaError
        If the column is unknown, values are needed and there is no table, or the values do not allow the change.

    Warns
    -----
    SchemaWarning
        If levels of the draft are no levels any more, or new ones were no levels.
    """
    columns = None if table is None else as_arrow(table)
    names = dict.fromkeys([*schema.names, *([] if columns is None else columns.column_names)])
    drafts = {each: ColumnDraft(schema[each].role if each in schema else "") for each in names}

    def read(wanted: Sequence[str]) -> Mapping[str, ValueCounts]:
        if columns is None or not {*wanted} <= {*columns.column_names}:
            raise SchemaError(
                f"the change of {name!r} needs its values: pass a table that has them, table=, or all levels, levels="
            )
        found = {each: ValueCounts() for each in wanted}
        for each, counted in found.items():
            counted.add(columns[each])
        return found

    given: dict[str, Any] = {
        key: tuple(each) if key in ("levels", "missing") and each is not None else each
        for key, each in changes.items()
    }
    try:
        edit = ColumnEdit(**given)
        made = edit_column(DraftedSchema(schema, drafts), name, edit, read)
    except SchemaError as error:
        # flags of the command are arguments here
        text = str(error).replace(f"{CHANGE} ", "").replace("--missing none", "missing=['none']")
        raise SchemaError(_FLAG.sub(r"\1=", text)) from None
    if edit.levels is not None and (note := made.columns[name].note):
        warnings.warn(f"column {name!r}: {note}", SchemaWarning, stacklevel=3)
    return made.schema
