"""Columns whose cells hold several answers, such as "a;c;h": recognised, and split into variables of no and yes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pmflib.base.constraints import OneOf, check
from pmflib.base.errors import SchemaError
from pmflib.base.texts import list_some, natural_key
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import Part, Variable, split_answers
from pmflib.surveys.drafting.inference import Proposal

NO_YES = ("no", "yes")
"""Levels of a part."""
MOST_PARTS = 256
"""Largest number of different answers of a column that is split."""


def split_columns(
    column_counts: Mapping[str, ValueCounts], signs: Mapping[str, str], missing: Sequence[str]
) -> dict[str, dict[str, Proposal]]:
    """Draft a variable of no and yes for each answer in cells with several.

    A cell without answers is missing in all variables of its column.

    Parameters
    ----------
    column_counts
        Values of the columns.
    signs
        Sign between the answers of a cell, by column.
    missing
        Texts that mean "not given", as a cell or as one of its answers.

    Returns
    -------
    By column, a proposal for each answer, by the name of its variable: the column and the answer, as
    ``pandas.get_dummies`` names them.

    Raises
    ------
    SchemaError
        If a column is absent or has no cell with its sign, has more than ``MOST_PARTS`` answers, or a variable would
        have the name of another column.
    """
    found = {}
    for column, sign in signs.items():
        check(OneOf(column_counts), SchemaError, **{"column of split": column})
        found[column] = _split_column(column, sign, column_counts[column], missing)
        if taken := [name for name in found[column] if name in column_counts]:
            raise SchemaError(
                f"split would make {taken[0]!r} of the column {column!r}, which is another column; rename one of them"
            )
    return found


def _split_column(
    column: str, sign: str, counted: ValueCounts, missing: Sequence[str]
) -> dict[str, Proposal]:
    if not sign or not any(sign in text for text in counted.counts):
        raise SchemaError(
            f"split gives the sign {sign!r} for the column {column!r}, and no cell holds it; its cells are like "
            f"{list_some([repr(text) for text in counted.counts], 4)}: pass the sign between the answers"
        )
    absent = {text.strip() for text in missing}
    times: Counter[str] = Counter()
    n_given = 0
    for text, n in counted.counts.items():
        given = split_answers(text, sign, absent)
        times.update(dict.fromkeys(given, n))
        n_given += n if given else 0
    if not 1 <= len(times) <= MOST_PARTS:
        raise SchemaError(
            f"column {column!r} has {len(times)} answers between {sign!r}, outside [1, {MOST_PARTS}]; merge rare ones "
            "in the data, or leave the column whole"
        )
    answers = tuple(sorted(times, key=natural_key))
    share = 1 - n_given / counted.n_rows
    proposals = {}
    for answer in answers:
        part = Part(column, sign, answers, answer)
        variable = Variable(f"{column}_{answer}", NO_YES, missing=tuple(missing), part=part)
        why = f"{answer!r} in {times[answer]:,} of {n_given:,} cells of {column!r} with answers"
        proposals[variable.name] = Proposal(variable, "nominal", "", why, share)
    return proposals


def find_indicated(
    column_counts: Mapping[str, ValueCounts], missing: Sequence[str]
) -> dict[str, list[str]]:
    """Find columns of answers between blanks, "seed tools", whose answers have an indicator each: "needs/seed".

    KoboToolbox and ODK export several choices so.

    Returns
    -------
    The indicators of each such column.
    """
    children: dict[str, dict[str, str]] = {}
    for name in column_counts:
        for sign in "/.:_":
            column, found, answer = name.rpartition(sign)
            if found and column in column_counts:
                children.setdefault(column, {})[answer] = name
    absent = {"", *(text.strip() for text in missing)}
    indicated = {}
    for column, indicators in children.items():
        cells = [text.split() for text in column_counts[column].counts if text not in absent]
        answers = {answer for cell in cells for answer in cell}
        if answers and answers <= indicators.keys() and any(len(cell) > 1 for cell in cells):
            indicated[column] = [*indicators.values()]
    return indicated
