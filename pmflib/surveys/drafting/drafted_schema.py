"""A schema with the decisions of its draft: schema.json, and schema.md for reviewers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import SchemaError
from pmflib.base.json_files import read_json
from pmflib.schema.schema import Schema
from pmflib.schema.variable import Variable
from pmflib.surveys.drafting.inference import DECLARED_WEIGHT, REPLICATE_NOTE, WEIGHT_NOTE, Proposal

LEVELS_SHOWN = 8
"""Maximum number of levels listed per variable in schema.md; of more, the first and the last are listed."""
CELL_LENGTH = 300
"""Maximum length of a table cell in schema.md, characters."""

DIGITS = "0123456789"
_HEAD = """# {title}

{summary}

Written by `pmf infer` and by every `pmf schema set`; edits belong into `{file}`, by that command or by hand.
Not given in any column that has no codes of its own: {missing}.

| column | role | levels or bins | missing codes | missing | why, and what to check |
| --- | --- | --- | --- | --- | --- |
"""
_FOOT = """
How to change a column:

    pmf schema set {file} COLUMN --role nominal        # or ordinal, continuous, identifier
    pmf schema set {file} COLUMN --missing 99 --missing '?'   # its missing codes; --missing none: not even NA
    pmf schema set {file} --missing '?'                # those of all columns that have no own codes
    pmf schema set {file} COLUMN --levels low,mid,high # the levels in their order; '"no, never",yes' has a comma
    pmf schema set {file} COLUMN --bins 5              # of a continuous column
    pmf schema set {file} COLUMN --other 30            # the 30 most frequent levels, the rest as one; or none
    pmf schema set {file} COLUMN --drop
"""


@dataclass(frozen=True)
class ColumnDraft:
    """Decision on a column, with the reason.

    Parameters
    ----------
    role
        nominal, ordinal or continuous; identifier, left out or dropped if it is not a variable.
    why
        Reason for the role.
    note
        Points for a reviewer to check; may be empty.
    share_missing
        Share of missing values, in [0, 1]; None if unknown.
    codes
        Evidence for each proposed missing code, by its text.
    about
        Description of the column in its file; may be empty.
    """

    role: str
    why: str = ""
    note: str = ""
    share_missing: float | None = None
    codes: Mapping[str, str] = field(default_factory=dict)
    about: str = ""

    @classmethod
    def from_proposal(cls, proposal: Proposal) -> ColumnDraft:
        """Keep the parts of a proposal that do not belong to the variable."""
        codes = {each.text: f"{each.count} times: {each.evidence}" for each in proposal.codes}
        return cls(
            proposal.role, proposal.why, proposal.note, round(proposal.share_missing, 6), codes
        )


@dataclass(frozen=True)
class DraftedSchema:
    """A schema with the draft that it came from.

    Parameters
    ----------
    schema
        Variables and levels.
    columns
        Decisions on all columns, in the order of the data.
    notes
        Points for a reviewer to check.
    source
        Options of the source, as plain JSON types; a relative path is relative to the folder of the file.
    bins, max_levels
        Options of the draft.
    """

    schema: Schema
    columns: Mapping[str, ColumnDraft]
    notes: tuple[str, ...] = ()
    source: Mapping[str, Any] | None = None
    bins: int = 8
    max_levels: int = 32

    @property
    def likely_weight(self) -> str | None:
        """Return a probable weight column: the one that the file declares, else the first without a number."""
        found = [name for name, each in self.columns.items() if each.note.startswith(WEIGHT_NOTE)]
        stems = Counter(name.rstrip(DIGITS) for name in found)
        alone = (name for name in found if stems[name.rstrip(DIGITS)] == 1)
        declared = (name for name in found if DECLARED_WEIGHT in self.columns[name].note)
        return next(chain(declared, alone), None)

    @property
    def likely_replicates(self) -> str | None:
        """Return the pattern of columns that are probably replicate weights; of several series, the longest."""
        found = [
            name.rstrip(DIGITS)
            for name, each in self.columns.items()
            if each.note.startswith(REPLICATE_NOTE)
        ]
        if not found:
            return None
        stem = Counter(found).most_common(1)[0][0]
        alike = sum(name.startswith(stem) for name in self.columns)
        return f"{stem}*" if alike == found.count(stem) else f"{stem}[0-9]*"

    def save(self, path: Path) -> Path:
        """Save the schema with its draft as JSON, and schema.md beside it; return the path of schema.md."""
        draft = {
            "source": None if self.source is None else dict(self.source),
            "bins": self.bins,
            "max_levels": self.max_levels,
            "columns": {name: _to_json(column) for name, column in self.columns.items()},
        }
        self.schema.save(path, review=self.notes, draft=draft)
        readable = path.with_suffix(".md")
        readable.write_text(self.describe(path.name), "utf-8")
        return readable

    @classmethod
    def load(cls, path: Path) -> DraftedSchema:
        """Load a schema with its draft; a schema written by hand has none.

        Raises
        ------
        SchemaError
            If the file is not a schema, or its draft is invalid.
        """
        schema = Schema.load(path)
        data = read_json(path)
        draft = data.get("draft", {})
        try:
            columns = {name: ColumnDraft(**each) for name, each in draft.get("columns", {}).items()}
            out = cls(
                schema,
                columns,
                tuple(map(str, data.get("review", ()))),
                draft.get("source"),
                int(draft.get("bins", 8)),
                int(draft.get("max_levels", 32)),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise SchemaError(
                f"{path}: its field draft does not read ({error}); take it out, or draft the schema again"
            ) from None
        if missing := {
            name: ColumnDraft(schema[name].role) for name in schema.names if name not in columns
        }:
            out = replace(out, columns={**columns, **missing})
        return out

    def check_name(self, name: str) -> str:
        """Check that a column with this name exists, and return the name.

        Raises
        ------
        SchemaError
            If it does not; the message lists similar names.
        """
        check(OneOf(self.columns), SchemaError, **{"column of the schema": name})
        return name

    def replace_column(
        self, name: str, variable: Variable | None, column: ColumnDraft
    ) -> DraftedSchema:
        """Replace or remove the variable of a column; notes on this column only are deleted.

        Raises
        ------
        SchemaError
            If no variable would remain.
        """
        columns = {**self.columns, name: column}
        made = {each.name: each for each in self.schema}
        if variable is None:
            made.pop(name, None)
        else:
            made[name] = variable
        variables = tuple(made[each] for each in columns if each in made)
        notes = tuple(note for note in self.notes if not note.startswith(f"{name}: "))
        if column.note:
            notes += (f"{name}: {column.note}",)
        schema = replace(self.schema, variables=variables)
        return replace(self, schema=schema, columns=columns, notes=notes)

    def describe(self, file: str) -> str:
        """Return the text of schema.md: one line per column, and instructions for changes."""
        n_out = sum(name not in self.schema for name in self.columns)
        summary = (
            f"{self.schema.n_variables} variables with {self.schema.n_levels} levels in all, of "
            f"{len(self.columns)} columns; {n_out} are left out."
        )
        texts = (json.dumps(text, ensure_ascii=False) for text in self.schema.missing)
        missing = ", ".join(texts) or "nothing"
        head = _HEAD.format(title=file, summary=summary, missing=missing, file=file)
        return head + "".join(f"{line}\n" for line in self._list_lines()) + _FOOT.format(file=file)

    def describe_column(self, name: str) -> str:
        """Return the line of schema.md for a column."""
        return next(self._list_lines([name]))

    def _list_lines(self, names: Sequence[str] | None = None) -> Iterator[str]:
        for name in self.columns if names is None else names:
            column = self.columns[name]
            variable = self.schema[name] if name in self.schema else None
            share = "" if column.share_missing is None else f"{column.share_missing:.1%}"
            role = variable.role if variable else column.role
            why = "; ".join(text for text in (column.about, column.note or column.why) if text)
            codes = levels = ""
            if variable is not None:
                own = [text for text in variable.missing if text not in self.schema.missing]
                found = [text for text in column.codes if text in variable.missing]
                codes = "; ".join(
                    f"{json.dumps(text, ensure_ascii=False)} ({column.codes[text]})"
                    if text in column.codes
                    else json.dumps(text, ensure_ascii=False)
                    for text in dict.fromkeys([*own, *found])
                )
                levels = _describe_levels(variable)
            cells = (name, role, levels, codes, share, why)
            yield "| " + " | ".join(map(_cell, cells)) + " |"


def _to_json(column: ColumnDraft) -> dict[str, object]:
    given = {
        "role": column.role,
        "why": column.why,
        "note": column.note,
        "share_missing": column.share_missing,
        "codes": dict(column.codes),
        "about": column.about,
    }
    return {key: value for key, value in given.items() if value not in ("", None, {})}


def _describe_levels(variable: Variable) -> str:
    n, levels = variable.cardinality, list(variable.levels)
    if n > LEVELS_SHOWN:
        levels = [*levels[: LEVELS_SHOWN - 2], "...", levels[-1]]
    what = "bins" if variable.edges is not None else "levels"
    more = "" if variable.other is None else f"; unknown ones count as {variable.other!r}"
    sign = " < " if variable.role == "ordinal" else ", "
    return f"{n} {what}: {sign.join(levels)}{more}"


def _cell(text: str) -> str:
    """Format a table cell: one line, without bars, markup or invisible characters."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    shown = shown if len(shown) <= CELL_LENGTH else f"{shown[:CELL_LENGTH]} ..."
    for sign in "\\|`*<[":
        shown = shown.replace(sign, f"\\{sign}")
    return shown
