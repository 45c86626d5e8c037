"""Names and levels of a question, found in a schema."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray
from pmflib.core.errors import QuestionError, UnknownNameError
from pmflib.core.texts import abridge_names, list_near
from pmflib.model.conditions import Conditions, explain_no_level, find_code
from pmflib.model.questions.notation import Phrase, Question, Term, point_at
from pmflib.schema import Schema, Variable
from pmflib.schema.variable import read_number

_COMPARE: Mapping[str, Callable[..., BoolArray]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True)
class BoundQuestion:
    """A question about the variables of a schema.

    Parameters
    ----------
    question
        As it was asked.
    schema
        The schema.
    groups
        Places of the variables asked for as a whole, by group.
    events
        Levels that variables are asked to have, by group.
    given
        Conditions on either side of a semicolon; one set, which may be empty, without a semicolon.
    by
        Places of the variables that are given without a level: there is an answer for each of their levels, or their
        mean is taken, as the measure says.
    as_other
        Levels that were named and that their variable has not, by its name, where they count as its level `other`.
    moved_cuts
        Comparisons with a number that is no edge of the bins of its variable, as they were asked, and as they are
        answered: at the edge of the bin that the number lies in.
    """

    question: Question
    schema: Schema
    groups: tuple[tuple[int, ...], ...]
    events: tuple[Conditions, ...]
    given: tuple[Conditions, ...]
    by: tuple[int, ...]
    as_other: Mapping[str, str]
    moved_cuts: Mapping[str, str]

    @property
    def targets(self) -> tuple[int, ...]:
        """Places of all variables that are asked for, in order of the question."""
        every = [
            p for pair in zip(self.groups, self.events, strict=True) for part in pair for p in part
        ]
        return tuple(dict.fromkeys(every))

    @property
    def involved(self) -> tuple[int, ...]:
        """Places of all variables that the question names."""
        given = [position for side in self.given for position in side]
        return tuple(dict.fromkeys([*self.targets, *self.by, *given]))

    @property
    def sides(self) -> tuple[Conditions, ...]:
        """Sets of conditions whose PMFs are measured; the total variation from one set is that to all samples."""
        is_to_all = self.question.measure == "TV" and len(self.groups) == len(self.given) == 1
        return (*self.given, {}) if is_to_all else self.given


def bind_question(question: Question, schema: Schema) -> BoundQuestion:
    """Find the variables and levels of a question in a schema.

    Raises
    ------
    UnknownNameError
        If a variable or a level is unknown; the message shows the position, and the nearest names.
    QuestionError
        If conditions contradict each other, a variable is asked for twice, or asked for and given, or levels are
        compared that have no order.
    """
    return _Binder(question, schema).bind()


class _Binder:
    def __init__(self, question: Question, schema: Schema) -> None:
        self.question = question
        self.schema = schema
        self.as_other: dict[str, str] = {}
        self.moved_cuts: dict[str, str] = {}

    def refuse(self, message: str, start: int, end: int) -> QuestionError:
        return QuestionError(point_at(self.question.text, start, end, message))

    def bind(self) -> BoundQuestion:
        asked = self.question
        groups, events = [], []
        for group in asked.groups:
            plain = self.bind_plain([term for term in group if not term.operator])
            event = self.bind_conditions([term for term in group if term.operator])
            groups.append(plain)
            events.append(event)
        by: tuple[int, ...] = ()
        given: list[Conditions] = []
        for side in asked.given or ((),):
            by += self.bind_plain([term for term in side if not term.operator])
            given.append(self.bind_conditions([term for term in side if term.operator]))
        parts = tuple(groups), tuple(events), tuple(given), by
        bound = BoundQuestion(asked, self.schema, *parts, self.as_other, self.moved_cuts)
        self.check_roles(bound)
        return bound

    def bind_plain(self, terms: list[Term]) -> tuple[int, ...]:
        positions: list[int] = []
        for term in terms:
            position = self.find_variable(term.name)
            if position in positions:
                raise self.refuse(
                    f"{term.name.text!r} is asked for twice; name each variable once", *term.span
                )
            positions.append(position)
        return tuple(positions)

    def bind_conditions(self, terms: list[Term]) -> Conditions:
        """Codes that all terms of a variable allow."""
        found: dict[int, tuple[int, ...]] = {}
        said: dict[int, Term] = {}
        for term in terms:
            position = self.find_variable(term.name)
            codes = self.find_codes(self.schema[position], term)
            both = tuple(code for code in found.get(position, codes) if code in codes)
            if not both:
                raise self.refuse(
                    self.explain_nothing(position, said.get(position), term), *term.span
                )
            found[position], said[position] = both, term
        return found

    def explain_nothing(self, position: int, before: Term | None, term: Term) -> str:
        name = self.schema[position].name
        if before is None:
            levels = abridge_names(self.schema[position].levels, 12)
            return f"no level of {name!r} is meant; its levels are {levels}"
        texts = [_say(each) for each in (before, term)]
        return f"{name!r} is given as {texts[0]} and as {texts[1]}, and has one level in a row; give one of them"

    def check_roles(self, bound: BoundQuestion) -> None:
        """Refuse variables that are asked for twice, or asked for and given."""
        terms = [term for group in self.question.groups for term in group]
        seen: set[int] = set()
        for group, events in zip(bound.groups, bound.events, strict=True):
            for position in dict.fromkeys([*group, *events]):
                if position in seen or (position in group and position in events):
                    name = self.schema[position].name
                    last = [term for term in terms if self.find_variable(term.name) == position][-1]
                    raise self.refuse(f"{name!r} is asked for twice; name it once", *last.span)
                seen.add(position)
        for side in self.question.given:
            for term in side:
                position = self.find_variable(term.name)
                fixed = any(len(given.get(position, "ab")) == 1 for given in bound.given)
                if position in seen and (not term.operator or fixed):
                    level = f"given as {_say(term)}" if term.operator else "given"
                    raise self.refuse(
                        f"{self.schema[position].name!r} is asked for and {level}; leave it out of one of them",
                        *term.span,
                    )
                if not term.operator and any(position in given for given in bound.given):
                    raise self.refuse(
                        f"{self.schema[position].name!r} is given as a whole and by its levels; leave one out",
                        *term.span,
                    )

    def find_variable(self, name: Phrase) -> int:
        if name.text in self.schema:
            return self.schema.position(name.text)
        close = list_near(name.text, self.schema.names)
        hint = (
            f"did you mean {close}?"
            if close
            else f"there are {abridge_names(self.schema.names, 12)}"
        )
        message = f"variable {name.text!r} is not in the schema; {hint}"
        raise UnknownNameError(point_at(self.question.text, name.start, name.end, message))

    def find_codes(self, variable: Variable, term: Term) -> tuple[int, ...]:
        """Codes that a term allows."""
        if term.operator in _COMPARE:
            return self.compare_levels(variable, term)
        codes = {self.find_level(variable, level) for level in term.levels}
        if term.operator in ("!=", "not in"):
            codes = set(range(variable.cardinality)) - codes
        return tuple(sorted(codes))

    def find_level(self, variable: Variable, level: Phrase) -> int:
        code = find_code(variable, level.text)
        if code < 0:
            message = explain_no_level(variable, level.text)
            raise UnknownNameError(point_at(self.question.text, level.start, level.end, message))
        if variable.levels[code] == variable.other != level.text.strip():
            self.as_other[variable.name] = level.text
        return code

    def compare_levels(self, variable: Variable, term: Term) -> tuple[int, ...]:
        """Codes of the levels on one side of a number, or of a level."""
        level = term.levels[0]
        compare, number = _COMPARE[term.operator], read_number(level.text)
        if variable.edges is not None and number is not None:
            return self.cut_bins(variable, variable.edges, term, number)
        if variable.role == "nominal":
            raise self.refuse(
                f"levels of {variable.name!r} have no order ({variable.role} in the schema); name those that are "
                f"meant: {variable.name} in {{{', '.join(variable.levels[:3])}}}",
                *term.span,
            )
        order = _order(variable)
        if number is None or variable.encode_value(level.text) >= 0:
            limit = order[self.find_level(variable, level)]
        else:
            limit = number
        return tuple(np.flatnonzero(compare(order, limit)).tolist())

    def cut_bins(
        self, variable: Variable, edges: tuple[float, ...], term: Term, number: float
    ) -> tuple[int, ...]:
        """Codes of the bins on one side of a number, with the bin that it lies in; what moves is noted."""
        is_above = term.operator in (">", ">=")
        is_edge = number in edges
        # of numbers without gaps nothing lies on the edge itself
        n_below = bisect_right(edges, number)
        first, last = (n_below, len(edges)) if is_above else (0, n_below - is_edge)
        if not is_edge or term.operator in (">", "<="):
            cut = first if is_above else last + 1
            if 0 < cut <= len(edges):
                answered = f"{variable.name}{'>=' if is_above else '<'}{edges[cut - 1]:g}"
            else:
                answered = f"every {variable.name}"
            if not is_edge:
                answered += f", with the whole bin {variable.levels[n_below]!r}"
            self.moved_cuts[f"{variable.name}{term.operator}{term.levels[0].text}"] = answered
        return tuple(range(first, last + 1))


def _order(variable: Variable) -> FloatArray:
    """Numbers that the levels are in order of: their values, or their codes."""
    if variable.values is None:
        return np.arange(variable.cardinality, dtype=np.float64)
    return np.asarray(variable.values, np.float64)


def _say(term: Term) -> str:
    texts = [each.text for each in term.levels]
    return repr(texts[0]) if term.operator == "=" else f"{term.operator} {', '.join(texts)}"
