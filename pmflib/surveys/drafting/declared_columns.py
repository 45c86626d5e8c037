"""What a draft takes from what a file declares of its columns: labels as levels, their order, and missing codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pmflib.schema.file_columns import FileColumn, declare_levels
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import Variable, as_text, read_number
from pmflib.surveys.drafting.level_order import is_no_answer, normalise_word
from pmflib.surveys.drafting.missing_codes import CodeProposal


def label_counts(counted: ValueCounts, column: FileColumn, max_levels: int) -> ValueCounts:
    """Name the counted codes of a column by their labels, and declare their order.

    Codes that are mostly numbers without a label, such as ages of which the last is "90 or older", are returned
    unchanged.

    Parameters
    ----------
    counted
        Counts of codes.
    column
        What the file says of the column.
    max_levels
        Number of distinct codes up to which all may be levels.
    """
    names = {as_text(code): text for code, text in column.texts.items()}
    missing = {as_text(code) for code in column.missing}
    bare = [text for text in counted.counts if text and text not in names and text not in missing]
    n_labelled = len(column.labelled)
    is_long = n_labelled + len(bare) > max_levels and len(bare) > n_labelled
    if not n_labelled or is_long or counted.overflowed:
        return counted
    named = ValueCounts(undecodable=counted.undecodable)
    for text, count in counted.counts.items():
        named.counts[names.get(text, text)] += count
    declare_levels(named, column)
    if find_ends(column, bare) is not None:
        named.is_ordered = True
    return named


def find_ends(column: FileColumn, bare: Sequence[str]) -> tuple[float, float] | None:
    """Find the ends of a scale of whole numbers of which some have labels, such as the first and the last.

    Parameters
    ----------
    column
        What the file says of the column.
    bare
        Codes that occur without a label.

    Returns
    -------
    The labelled ends, between which all codes without a label lie; None if it is no such scale. Refusals are no ends.
    """
    between = [read_number(text) for text in bare]
    ends = sorted(
        code
        for code in column.labelled
        if not isinstance(code, str) and not is_no_answer(normalise_word(column.texts[code]))
    )
    if len(between) < LEAST_BARE or len(ends) < 2:
        return None
    numbers = [number for number in between if number is not None]
    is_whole = all(float(number).is_integer() for number in (*numbers, *ends))
    is_inside = len(numbers) == len(between) and ends[0] < min(numbers) <= max(numbers) < ends[-1]
    return (ends[0], ends[-1]) if is_whole and is_inside else None


LEAST_BARE = 2
"""Least number of codes without a label between the ends of a scale."""


def list_declared(counted: ValueCounts, column: FileColumn) -> list[CodeProposal]:
    """List the codes that a file declares missing, as they are counted, with their labels."""
    codes = {code: None for code in (*column.texts, *column.missing) if column.is_missing(code)}
    found = []
    for code in codes:
        label = column.texts.get(code, "")
        text = label if counted.categories and label else as_text(code)
        about = f"{as_text(code)} = {label!r}" if label else as_text(code)
        evidence = f"the file declares {about} missing"
        found.append(CodeProposal(text, counted.counts.get(text, 0), evidence))
    bare = [text for text in counted.counts if text and column.find_code(text) not in column.texts]
    bare = [text for text in bare if not column.is_missing(read_number(text) or text)]
    if counted.categories and (ends := find_ends(column, bare)) is not None:
        for code, text in column.texts.items():
            is_inside = isinstance(code, str) or ends[0] <= code <= ends[1]
            if not is_inside and code not in codes and is_no_answer(normalise_word(text)):
                evidence = f"a refusal beside a scale of {ends[0]:g} to {ends[1]:g}"
                found.append(CodeProposal(text, counted.counts.get(text, 0), evidence))
    return found


def follow_file(variable: Variable, column: FileColumn, *, by_label: bool) -> Variable:
    """Give the levels of a drafted variable the values or the labels of their codes, as rows will be read."""
    if variable.edges is not None or not column.texts:
        return variable
    if not by_label:
        names = {as_text(code): text for code, text in column.texts.items()}
        return replace(variable, levels=tuple(names.get(level, level) for level in variable.levels))
    values = [column.find_code(level) for level in variable.levels]
    numbers = tuple(float(value) for value in values if isinstance(value, int | float))
    is_rising = len(numbers) == len(values) and list(numbers) == sorted(set(numbers))
    if variable.values is None or not is_rising:
        return variable
    return replace(variable, values=numbers)
