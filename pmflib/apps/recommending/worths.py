"""What the levels of items are worth to a sample."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from pmflib.answering.question import Question, bind_question, parse_question
from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.errors import QuestionError, SchemaError
from pmflib.schema import Schema
from pmflib.schema.variable import Variable

ITEM = "item"
"""Name that stands for each item in the question of its value."""
AUTO = "auto"
"""Value that is chosen by the ratings."""


def find_absent(schema: Schema) -> IntArray:
    """Return the code of the level `absent` of each variable, -1 without one."""
    return np.array(
        [-1 if each.absent is None else each.levels.index(each.absent) for each in schema], np.int64
    )


def weigh_levels(
    schema: Schema, items: IntArray, value: str, level_counts: IntArray
) -> tuple[FloatArray, str]:
    """Weigh the levels of variables.

    Parameters
    ----------
    schema
        Variables.
    items
        Positions of the candidates, which must have the levels that are asked for; other variables may lack them.
    value
        "auto", or the probability of levels: see `pmflib.apps.recommend`.
    level_counts
        int64 of shape (n_levels,): number of answers by level, 0 of levels `absent`.

    Returns
    -------
    Worth of each level, float64 of shape (n_levels,), and what it means in words.

    Raises
    ------
    SchemaError
        If a candidate has no number for each level.
    QuestionError
        If the value is no such question, or a candidate lacks the levels.
    """
    found: FloatArray = np.zeros(schema.n_levels)
    if value != AUTO:
        wanted, candidates = _parse(value), {*items.tolist()}
        for position, variable in enumerate(schema):
            # variables without the levels, such as the age among movies, are no items
            with suppress(*(() if position in candidates else (QuestionError,))):
                name = replace(wanted.groups[0][0].name, text=variable.name)
                term = replace(wanted.groups[0][0], name=name)
                bound = bind_question(Question(value, "P", ((term,),)), schema)
                found[schema.offsets[position] + np.array([*bound.events[0][position]])] = 1.0
        return found, value
    for position in items.tolist():
        if _find_numbers(schema[position]) is None:
            raise SchemaError(
                f"item {schema[position].name!r} has no number for each level, so that high answers are unknown; name "
                "others as items, exclude it, or ask for levels: P(item=LEVEL)"
            )
    numbers = np.full(schema.n_levels, -np.inf)
    for position, variable in enumerate(schema):
        own = _find_numbers(variable)
        if own is not None:
            numbers[schema.rows_of(position)] = own
    given = (level_counts > 0) & (numbers > -np.inf)
    levels, places = np.unique(numbers[given], return_inverse=True)
    found[given] = 1.0
    if levels.size < 2:
        return found, "answered"
    counts = np.bincount(places, weights=level_counts[given])
    # the number that a share of answers nearest to one half reaches
    reached = np.cumsum(counts[::-1])[::-1][1:] / counts.sum()
    high = levels[1:][np.abs(reached - 0.5).argmin()]
    found[given & (numbers >= high)] = 2.0
    return found, f"answered, and {high:g} or more"


def _parse(value: str) -> Question:
    """Parse the question of a value."""
    wanted = f"{AUTO!r}, or the probability of levels as P(item>=4)"
    asked = parse_question(value)
    terms = [term for group in asked.groups for term in group]
    if len(terms) != 1 or asked.given or terms[0].name.text != ITEM:
        raise QuestionError(
            f"value is {value!r}; pass {wanted}: about {ITEM!r} alone, without conditions"
        )
    if asked.measure != "P" or not terms[0].operator:
        raise QuestionError(f"value is {value!r}; pass {wanted}")
    return asked


def _find_numbers(variable: Variable) -> FloatArray | None:
    """Return the numbers of the levels; a single level needs none."""
    if variable.values is None:
        return np.ones(1) if variable.cardinality == 1 else None
    return variable.numeric_values()
