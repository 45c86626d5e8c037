"""Questions in words: ``B given A=5 and C=yes``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.errors import PmfError
from pmflib.model import JointPMF
from pmflib.model.conditions import find_impossible
from pmflib.schema import Schema


@dataclass(frozen=True)
class Question:
    """Variables whose joint PMF is wanted, and levels of others that are given."""

    targets: tuple[str, ...]
    given: Mapping[str | int, str]


def parse_question(text: str) -> Question:
    """Read a question.

    Parameters
    ----------
    text
        ``TARGET[, TARGET ...] [given NAME=LEVEL [and NAME=LEVEL ...]]``; a name or level that holds a comma, an equals
        sign or a word "given" or "and" is put in double quotes.

    Raises
    ------
    PmfError
        If the text is no question, gives a variable two levels, or gives one that it asks for.

    Examples
    --------
    >>> parse_question('B, "C and D" given A=5 and E=very much')
    Question(targets=('B', 'C and D'), given={'A': '5', 'E': 'very much'})
    """
    # quoted parts are set aside, so that splitting cannot see into them
    kept: list[str] = []

    def set_aside(match: re.Match[str]) -> str:
        kept.append(match[1])
        return f"\0{len(kept) - 1}\0"

    def restore(part: str) -> str:
        return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], part.strip())

    wanted, *evidence = re.split(
        r"\s+given(?:\s+|$)", re.sub(r'"([^"]*)"', set_aside, text), maxsplit=1
    )
    targets = tuple(restore(part) for part in wanted.split(","))
    given: dict[str | int, str] = {}
    for part in re.split(r"\s+and\s+|,", evidence[0]) if evidence else []:
        name, equals, level = part.partition("=")
        if not equals or not name.strip():
            raise PmfError(
                f"question {text!r}: {restore(part)!r} is not NAME=LEVEL; write for example 'B given A=5'"
            )
        known = given.setdefault(restore(name), restore(level))
        if known != restore(level):
            raise PmfError(
                f"question {text!r}: {restore(name)!r} is given as {known!r} and as {restore(level)!r}, and has one "
                "level in a row; give one of them"
            )
    if not all(targets):
        raise PmfError(f"question {text!r} names no variable; write for example 'B given A=5'")
    if both := [name for name in targets if name in given]:
        raise PmfError(
            f"question {text!r}: {both[0]!r} is asked for and given as {given[both[0]]!r}; leave it out of one of them"
        )
    if len(set(targets)) < len(targets):
        raise PmfError(f"question {text!r}: a variable is asked for twice; name each once")
    return Question(targets, given)


def describe_conditions(schema: Schema, codes: Mapping[int, int], places: Sequence[int]) -> str:
    """Conditions in words: ``A=5 and C=yes``."""
    variables = ((schema[place], codes[place]) for place in places)
    return " and ".join(f"{variable.name}={variable.levels[code]}" for variable, code in variables)


def answer(model: JointPMF, question: Question) -> dict[str, Any]:
    """Answer a question.

    Parameters
    ----------
    model
        The model.
    question
        As from `parse_question`.

    Returns
    -------
    Plain JSON types: "levels", a list of combinations with their probability, the most probable first; "best", the
    first of them; "expected", the expected value where there is one target and it is ordinal; "as_other", levels that
    were given and that their variable has not, by its name, where they count as its level `other`.

    Raises
    ------
    SchemaError
        If a variable or level is unknown, or occurs twice.
    PmfError
        If nobody can meet the conditions: they have probability 0.
    """
    given = model.encode_levels(question.given)
    if places := find_impossible(model, given):
        raise PmfError(
            f"nobody can have {describe_conditions(model.schema, given, places)}: the model gives that probability 0, "
            "and no answer; leave a condition out, or fit with a larger pseudo-count"
        )
    pmf = model.marginal(question.targets, question.given)
    variables = [model.schema[target] for target in question.targets]
    order = np.argsort(-pmf, axis=None, kind="stable")
    levels = []
    for flat in order.tolist():
        codes = np.unravel_index(flat, pmf.shape)
        labels = {v.name: v.levels[int(code)] for v, code in zip(variables, codes, strict=True)}
        levels.append({"level": labels, "probability": float(pmf.flat[flat])})
    out: dict[str, Any] = {"levels": levels, "best": levels[0]["level"]}
    if len(variables) == 1 and variables[0].values is not None:
        out["expected"] = float(pmf @ variables[0].numeric_values())
    if as_other := _find_others(model.schema, question.given, given):
        out["as_other"] = as_other
    return out


def _find_others(
    schema: Schema, given: Mapping[str | int, str], codes: Mapping[int, int]
) -> dict[str, str]:
    """Levels that stand for `other`, by name of the variable."""
    found = {}
    for name, level in given.items():
        variable = schema[name]
        is_other = variable.levels[codes[schema.position(name)]] == variable.other
        if is_other and level.strip() != variable.other:
            found[variable.name] = level
    return found
