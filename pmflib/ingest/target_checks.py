"""Checks of the variable that a model is to predict, before anything else is done."""

from __future__ import annotations

from collections.abc import Sequence

from pmflib.errors import SchemaError
from pmflib.near_names import list_near
from pmflib.schema.inference import Proposal


def check_column(name: str, columns: Sequence[str], sample: str | None) -> None:
    """Check that a target is a column of the data, or a variable of a long log.

    Raises
    ------
    SchemaError
        If it is none, with those that are named alike, or identifies the samples.
    """
    if name == sample:
        raise SchemaError(f"target {name!r} is the sample column; name the column to predict")
    if name not in columns:
        close = list_near(name, columns)
        hint = f"did you mean {close}?" if close else f"there are {list(columns[:12])}"
        raise SchemaError(f"target {name!r} is no column of the data; {hint}")


def check_target(target: str, proposal: Proposal) -> None:
    """Check that a target is drafted as a variable of two levels or more.

    Raises
    ------
    SchemaError
        If it is none: it identifies rows, is free text, or has one level.
    """
    if proposal.variable is None:
        raise SchemaError(
            f"target {target!r} cannot be predicted: it is {proposal.note.partition(';')[0]}; name another column"
        )
    if proposal.variable.cardinality < 2:
        raise SchemaError(
            f"target {target!r} has one level only, {proposal.variable.levels[0]!r}; name another column, or give the "
            "data of its other levels"
        )
