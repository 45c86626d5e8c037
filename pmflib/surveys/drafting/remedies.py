"""Texts on how a user changes a draft, on the command line and in Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remedies:
    """Texts on how to change a draft, by the interface that is used.

    Parameters
    ----------
    keep_identifier, keep_weight, keep_replicate, keep_text
        How to keep a column that was taken for an identifier, a sample weight, a replicate weight or free text.
    choose_levels
        How to keep another number of levels.
    make_ordinal
        How to declare codes as numbers.
    name_missing
        How to declare a missing code, ``{text}``.
    keep_codes
        How to declare that a column has no missing codes of its own.
    put_in_order
        How to declare the order of levels, ``{levels}``, and as a line of a shell, ``{line}``.
    split
        How to make a variable of each answer in the cells of ``{column}``, between which ``{sign}`` stands.
    """

    keep_identifier: str
    keep_weight: str
    keep_replicate: str
    keep_text: str
    choose_levels: str
    make_ordinal: str
    name_missing: str
    keep_codes: str
    put_in_order: str
    split: str


CHANGE = "pmf schema set schema.json COLUMN"
"""Command that changes the draft of a column."""
COMMANDS = Remedies(
    f"name it as source.sample, or keep it: {CHANGE} --role nominal",
    f"name it as source.weight (pmf infer --weight COLUMN), or keep it: {CHANGE} --role continuous",
    f"name them as source.replicates beside source.weight, or keep it: {CHANGE} --role continuous",
    f"keep it: {CHANGE} --other 30",
    f"{CHANGE} --other K keeps K, --other none keeps all",
    "if they are numbers: --role ordinal",
    f"{CHANGE} --missing {{text}}",
    f"to refuse: {CHANGE} --missing none",
    f"{CHANGE} --levels {{line}}",
    "for a variable of no and yes for each: pmf infer --split '{column}={sign}'",
)
"""Remedies for drafts of the command line."""
_MAKE = "pmflib.Variable(name, levels)"
PYTHON = Remedies(
    f"to keep it, put a {_MAKE} of it into the Schema",
    f"give it as weight=, or, to keep it, put a {_MAKE} of it into the Schema",
    f"give them as replicates= of a SurveyDesign, or, to keep it, put a {_MAKE} of it into the Schema",
    f"to keep it, merge texts in the table, or put a {_MAKE} of it into the Schema",
    f"to keep others, put a {_MAKE} of them into the Schema",
    "if they are numbers, give the Variable values",
    "name it in missing=",
    "to refuse, put it into the levels of a Variable",
    "give values to pmflib.Variable(name, {levels!r})",
    "for a variable of no and yes for each: pmflib.Schema.infer(table, split={{{column!r}: {sign!r}}})",
)
"""Remedies for drafts in Python."""
