"""Edit a drafted schema column by column, reading the data again only if necessary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pmflib.base.errors import SchemaError
from pmflib.base.texts import abridge_names
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import DEFAULT_MISSING, Variable, read_number
from pmflib.surveys.drafting.drafted_schema import ColumnDraft, DraftedSchema
from pmflib.surveys.drafting.inference import RoleWish, Wishes, give_absent, propose_variable

ReadValues = Callable[[Sequence[str]], Mapping[str, ValueCounts]]
"""Function that reads the values of columns from the data."""


@dataclass(frozen=True)
class ColumnEdit:
    """Requested changes of a column; None means no change.

    Parameters
    ----------
    role
        Role of the column; identifiers are left out.
    missing
        Missing codes, in addition to `DEFAULT_MISSING`.
    levels
        Levels in order.
    other
        Number of levels to keep, while the others are merged into one; 0 keeps all.
    bins
        Number of bins of a continuous column, at least 2.
    is_dropped
        Whether to leave the column out.
    """

    role: RoleWish | None = None
    missing: tuple[str, ...] | None = None
    levels: tuple[str, ...] | None = None
    other: int | None = None
    bins: int | None = None
    is_dropped: bool = False

    def __post_init__(self) -> None:
        given = (self.role, self.missing, self.levels, self.other, self.bins)
        if not self.is_dropped and all(wish is None for wish in given):
            raise SchemaError(
                "nothing to change; pass --role, --missing, --levels, --other, --bins or --drop"
            )
        data_wishes = [self.role, self.other, self.bins]
        if self.levels is not None and any(wish is not None for wish in (self.other, self.bins)):
            raise SchemaError("--levels names all levels; pass it without --other and --bins")
        if self.is_dropped and any(
            wish is not None for wish in (*data_wishes, self.levels, self.missing)
        ):
            raise SchemaError("--drop leaves the column out; pass it alone")
        if self.bins is not None and (self.bins < 2 or self.role not in (None, "continuous")):
            raise SchemaError(
                f"--bins is {self.bins} with role {self.role}; pass at least 2, of a continuous column"
            )
        if self.other is not None and (self.other < 0 or self.role == "continuous"):
            raise SchemaError(
                f"--other is {self.other} with role {self.role}; pass the levels to keep, or none"
            )


def edit_column(
    drafted: DraftedSchema, name: str, edit: ColumnEdit, read: ReadValues
) -> DraftedSchema:
    """Change the draft of one column.

    Parameters
    ----------
    drafted
        The drafted schema.
    name
        Name of the column.
    edit
        Requested changes.
    read
        Reads the values of the column; called if role, bins or levels must be determined again.

    Raises
    ------
    SchemaError
        If the column is unknown, no variable would be left, or the column does not allow the change.
    SourceError
        If the data cannot be read.
    """
    column = drafted.columns[drafted.check_name(name)]
    variable = drafted.schema[name] if name in drafted.schema else None
    if edit.is_dropped or edit.role == "identifier":
        why = "dropped on purpose" if edit.is_dropped else "an identifier, as was wished"
        role = "dropped" if edit.is_dropped else "identifier"
        return drafted.replace_column(name, None, replace(column, role=role, why=why, note=""))
    missing = (
        None if edit.missing is None else tuple(dict.fromkeys([*DEFAULT_MISSING, *edit.missing]))
    )
    if variable is not None and variable.part is not None and edit.missing is None:
        raise SchemaError(
            f"column {name!r} is the answer {variable.part.answer!r} in cells of {variable.column!r}, of no and yes; "
            "change its --missing, or --drop it"
        )
    if edit.levels is not None:
        return _set_levels(drafted, name, variable, column, edit, missing)
    is_only_missing = edit.role is None and edit.other is None and edit.bins is None
    if is_only_missing and missing is not None and variable is not None:
        shorter = _take_out(variable, missing, column)
        if shorter is not None:
            return drafted.replace_column(name, shorter, column)
    return _draft_again(drafted, name, variable, column, edit, missing, read([name])[name])


def edit_missing(drafted: DraftedSchema, missing: Sequence[str], read: ReadValues) -> DraftedSchema:
    """Change the missing codes of all columns that have no codes of their own.

    Parameters
    ----------
    drafted, read
        As in `edit_column`.
    missing
        Missing codes, in addition to `DEFAULT_MISSING`.

    Raises
    ------
    SchemaError, SourceError
        As in `edit_column`.
    """
    before = drafted.schema.missing
    after = tuple(dict.fromkeys([*DEFAULT_MISSING, *missing]))
    again: list[str] = []
    for variable in drafted.schema:
        if variable.missing == before:
            column = drafted.columns[variable.name]
            shorter = _take_out(variable, after, column)
            if shorter is None:
                again.append(variable.name)
            else:
                drafted = drafted.replace_column(variable.name, shorter, column)
    values = read(again) if again else {}
    for name in again:
        drafted = _draft_again(
            drafted, name, drafted.schema[name], drafted.columns[name],
            ColumnEdit(missing=after), after, values[name],
        )  # fmt: skip
    schema = replace(drafted.schema, missing=after)
    return replace(drafted, schema=schema)


def _take_out(variable: Variable, missing: tuple[str, ...], column: ColumnDraft) -> Variable | None:
    """Change the missing codes of a variable; None if the data are needed to find its levels."""
    gone = set(variable.missing) - set(missing)
    if gone & set(column.codes):
        # former codes become levels
        return None
    new = [text for text in missing if text not in variable.missing]
    if variable.edges is not None or variable.other is not None:
        if variable.edges is not None and not any(read_number(text) is not None for text in new):
            return replace(variable, missing=missing)
        return None if new else replace(variable, missing=missing)
    numbers = {number for text in new if (number := read_number(text)) is not None}
    kept = [
        index
        for index, level in enumerate(variable.levels)
        if level not in new and not (variable.is_numeric and read_number(level) in numbers)
    ]
    if not kept:
        raise SchemaError(f"column {variable.name!r} would have no level left; drop it instead")
    levels = tuple(variable.levels[index] for index in kept)
    values = None if variable.values is None else tuple(variable.values[index] for index in kept)
    return replace(variable, levels=levels, values=values, missing=missing)


def _set_levels(
    drafted: DraftedSchema,
    name: str,
    variable: Variable | None,
    column: ColumnDraft,
    edit: ColumnEdit,
    missing: tuple[str, ...] | None,
) -> DraftedSchema:
    levels = tuple(text.strip() for text in edit.levels or ())
    if missing is None:
        missing = drafted.schema.missing if variable is None else variable.missing
    numbers = [read_number(level) for level in levels]
    values: tuple[float, ...] | None = None
    if edit.role != "nominal" and (edit.role == "ordinal" or variable is None or variable.values):
        found = tuple(number for number in numbers if number is not None)
        is_rising = len(found) == len(levels) and list(found) == sorted(set(found))
        values = found if is_rising else tuple(float(index + 1) for index in range(len(levels)))
    other = variable.other if variable is not None and variable.other in levels else None
    absent = variable.absent if variable is not None and variable.absent in levels else None
    if other or absent:
        values = None
    made = Variable(name, levels, values, None, missing, other, absent=absent)
    note = ""
    before = () if variable is None or variable.edges is not None else variable.levels
    if (gone := [level for level in before if level not in levels]) and other is None:
        note = (
            f"{abridge_names(gone, 6)} are no levels any more: rows with them are no samples, unless they are missing "
            "codes"
        )
    return drafted.replace_column(
        name, made, replace(column, role=made.role, why="levels as they were given", note=note)
    )


def _draft_again(
    drafted: DraftedSchema,
    name: str,
    variable: Variable | None,
    column: ColumnDraft,
    edit: ColumnEdit,
    missing: tuple[str, ...] | None,
    counted: ValueCounts,
) -> DraftedSchema:
    if missing is None:
        own = variable.missing if variable is not None else (*drafted.schema.missing, *column.codes)
        missing = tuple(dict.fromkeys(own))
    role = edit.role
    if role is None and edit.bins is not None:
        role = "continuous"
    if role is None and edit.other is not None:
        role = "nominal"
    if role is None and variable is not None and edit.missing is None:
        role = variable.role
    if role is None and variable is not None and variable.role == "nominal":
        role = "nominal"
    if role == "continuous":
        texts = [t for t in counted.counts if t not in missing and read_number(t) is None]
        if texts:
            raise SchemaError(
                f"column {name!r} cannot be continuous: it holds {abridge_names(texts, 4)}, which are no numbers; add "
                "them to its missing codes, --missing, if they mean that nothing is known"
            )
    other = edit.other
    if other is None and variable is not None and variable.other is not None and role == "nominal":
        other = variable.cardinality - 1
    proposal = propose_variable(
        name,
        counted,
        missing=missing,
        max_levels=drafted.max_levels,
        bins=drafted.bins if edit.bins is None else edit.bins,
        wishes=Wishes(role, other, is_kept=True),
    )
    proposal = give_absent(proposal, None if variable is None else variable.absent)
    if proposal.variable is None:
        raise SchemaError(f"column {name!r} is {proposal.note}")
    if role not in (None, proposal.variable.role):
        raise SchemaError(
            f"column {name!r} cannot be {role}: it would be {proposal.variable.role}, {proposal.why}"
        )
    codes = {text: why for text, why in column.codes.items() if text in missing}
    made = replace(ColumnDraft.from_proposal(proposal), codes=codes, about=column.about)
    return drafted.replace_column(name, proposal.variable, made)
