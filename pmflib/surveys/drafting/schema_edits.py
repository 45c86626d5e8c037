"""Edit a drafted schema column by column, reading the data again only if necessary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pmflib.base.errors import SchemaError
from pmflib.base.texts import abridge_names, fold_text
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import DEFAULT_MISSING, MISSING, Variable, read_number
from pmflib.surveys.drafting.drafted_schema import ColumnDraft, DraftedSchema
from pmflib.surveys.drafting.inference import (
    WISHED,
    RoleWish,
    Wishes,
    give_absent,
    propose_variable,
)
from pmflib.surveys.drafting.level_order import join_levels

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
        Missing codes, in addition to `DEFAULT_MISSING`; with "none" among them, in addition to empty cells only.
    levels
        Levels in order, which makes an ordinal variable unless the role is nominal.
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


GIVEN = "levels as they were given"
"""Reason for the levels of a column that a user has named."""
NONE = "none"
"""Word of a user for no missing code at all."""


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
        Reads the values of the column; called unless the levels are given or the column is left out.

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
    missing = None if edit.missing is None else _list_missing(edit.missing)
    if variable is not None and variable.part is not None and edit.missing is None:
        raise SchemaError(
            f"column {name!r} is the answer {variable.part.answer!r} in cells of {variable.column!r}, of no and yes; "
            "change its --missing, or --drop it"
        )
    if edit.levels is not None:
        return _set_levels(drafted, name, variable, column, edit, missing)
    if variable is not None and missing is None and edit.role == "ordinal":
        if variable.role == "ordinal":
            return drafted
        if column.why == GIVEN:
            edit = replace(edit, levels=variable.levels)
            return _set_levels(drafted, name, variable, column, edit, missing)
    return _draft_again(drafted, name, variable, column, edit, missing, read([name])[name])


def _list_missing(texts: Sequence[str]) -> tuple[str, ...]:
    """List the missing codes that a user names: "none" takes out the common ones, too."""
    common = ("",) if NONE in texts else DEFAULT_MISSING
    return tuple(dict.fromkeys([*common, *(text for text in texts if text != NONE)]))


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
    before, after = drafted.schema.missing, _list_missing(missing)
    again = [each.name for each in drafted.schema if each.missing == before]
    values = read(again) if again else {}
    edit = ColumnEdit(missing=tuple(missing))
    for name in again:
        variable, column = drafted.schema[name], drafted.columns[name]
        drafted = _draft_again(drafted, name, variable, column, edit, after, values[name])
    schema = replace(drafted.schema, missing=after)
    return replace(drafted, schema=schema)


def _take_out(variable: Variable, missing: tuple[str, ...]) -> Variable:
    """Change the missing codes of a variable whose levels were given."""
    kept = [index for index, level in enumerate(variable.levels) if level not in missing]
    if not kept:
        raise SchemaError(f"column {variable.name!r} would have no level left; drop it instead")
    levels = tuple(variable.levels[index] for index in kept)
    values = None if variable.values is None else tuple(variable.values[index] for index in kept)
    other = variable.other if variable.other in levels else None
    absent = variable.absent if variable.absent in levels else None
    return replace(
        variable, levels=levels, values=values, missing=missing, other=other, absent=absent
    )


def _measure_missing(variable: Variable, counted: ValueCounts) -> float:
    """Share of the values of a column that are missing."""
    n_missing = sum(
        n for text, n in counted.counts.items() if variable.encode_cell(text) == MISSING
    )
    return round(n_missing / max(counted.n_rows, 1), 6)


def _spell(variable: Variable | None, texts: Sequence[str]) -> tuple[str, ...]:
    """Spell levels as the draft does where case and blanks alone differ."""
    known = () if variable is None or variable.edges is not None else variable.levels
    spelt = {fold_text(level): level for level in known}
    given = (text.strip() for text in texts)
    return tuple(text if text in known else spelt.get(fold_text(text), text) for text in given)


def _set_levels(
    drafted: DraftedSchema,
    name: str,
    variable: Variable | None,
    column: ColumnDraft,
    edit: ColumnEdit,
    missing: tuple[str, ...] | None,
) -> DraftedSchema:
    levels = _spell(variable, edit.levels or ())
    if missing is None:
        missing = drafted.schema.missing if variable is None else variable.missing
    if both := [level for level in levels if level in missing]:
        raise SchemaError(
            f"{both[0]!r} of column {name!r} cannot be a level and a missing code; leave it out of --levels, or pass "
            f"--missing none with them, which makes {both[0]!r} no missing code"
        )
    numbers = [read_number(level) for level in levels]
    values: tuple[float, ...] | None = None
    if edit.role != "nominal":
        found = tuple(number for number in numbers if number is not None)
        is_rising = len(found) == len(levels) and list(found) == sorted(set(found))
        values = found if is_rising else tuple(float(index + 1) for index in range(len(levels)))
    other = variable.other if variable is not None and variable.other in levels else None
    absent = variable.absent if variable is not None and variable.absent in levels else None
    if other or absent:
        values = None
    made = Variable(name, levels, values, None, missing, other, absent=absent)
    notes = []
    before = () if variable is None or variable.edges is not None else variable.levels
    if (gone := [level for level in before if level not in (*levels, *missing)]) and other is None:
        notes.append(
            f"{abridge_names(gone, 6)} are no levels any more: rows with them are no samples, unless they are missing "
            "codes"
        )
    if before and (new := [level for level in levels if level not in before]):
        notes.append(
            f"{abridge_names(new, 6)} were no levels of the draft: are they spelt as the data are?"
        )
    made_column = replace(column, role=made.role, why=GIVEN, note="; ".join(notes))
    return drafted.replace_column(name, made, made_column)


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
    is_only_missing = edit.role is None and edit.other is None and edit.bins is None
    if is_only_missing and variable is not None and (column.why == GIVEN or variable.part):
        kept = _take_out(variable, missing)
        freed = set(variable.missing).difference(missing)
        freed = freed & {text for text, n in counted.counts.items() if n}
        if freed and not variable.part:
            kept = replace(kept, levels=(*kept.levels, *sorted(freed)), values=None)
            note = f"{abridge_names(sorted(freed))} are levels behind the others: give all in their order, --levels"
            column = replace(column, role="nominal", note=note)
        column = replace(column, share_missing=_measure_missing(kept, counted))
        return drafted.replace_column(name, kept, column)
    role = edit.role
    if role is None and edit.bins is not None:
        role = "continuous"
    is_merged = variable is not None and variable.other is not None
    if role is None and (edit.other is not None or is_merged or WISHED in column.why):
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
        remedy = ""
        if role == "ordinal":
            remedy = f"; give the levels in their order: --levels {join_levels(proposal.variable.levels)}"
        raise SchemaError(
            f"column {name!r} cannot be {role}: it would be {proposal.variable.role}, {proposal.why}{remedy}"
        )
    codes = {text: why for text, why in column.codes.items() if text in missing}
    made = replace(ColumnDraft.from_proposal(proposal), codes=codes, about=column.about)
    return drafted.replace_column(name, proposal.variable, made)
