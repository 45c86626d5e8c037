"""Questions in words, as ``P(label=e | odor=f)`` or ``B given A=5 and C=yes``: parsed, and bound to a schema."""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.core.arrays import BoolArray, FloatArray
from pmflib.core.errors import QuestionError, UnknownNameError
from pmflib.core.texts import abridge_names, list_near
from pmflib.model.conditions import Conditions, explain_no_level, find_code
from pmflib.schema import Schema, Variable
from pmflib.schema.variable import read_number

Kind = Literal["word", "quoted", "symbol", "end"]

SYMBOLS = ("!=", "<>", "<=", ">=", "==", "≠", "≤", "≥", *"=<>(),|;{}")
"""What a name or a level can hold in quotes only, the longest first."""
SAME = {"<>": "!=", "==": "=", "≠": "!=", "≤": "<=", "≥": ">="}
"""Symbols that have another form."""
QUOTES = {'"': '"', "'": "'", "“": "”"}
"""What a quoted name starts with, and ends with."""

_SYMBOL = re.compile("|".join(map(re.escape, SYMBOLS)))
_WORD = re.compile(r"[^\s=<>≠≤≥(),|;{}!]+|!")


@dataclass(frozen=True)
class Token:
    """A part of a question.

    Parameters
    ----------
    kind
        A word as it stands, a quoted text, a symbol, or the end of the question.
    text
        What it says; of quoted texts without the quotes, of symbols in the form that is the first.
    start, end
        First letter in the question, and the one after the last.
    """

    kind: Kind
    text: str
    start: int
    end: int

    def is_symbol(self, *symbols: str) -> bool:
        """Whether it is one of some symbols."""
        return self.kind == "symbol" and self.text in symbols

    def is_word(self, *words: str) -> bool:
        """Whether it is one of some words, which are in small letters; not in quotes."""
        return self.kind == "word" and self.text.lower() in words


def point_at(text: str, start: int, end: int, message: str) -> str:
    """Message over the question, with a caret under each letter that is meant.

    Examples
    --------
    >>> print(point_at("P(a | b)", 6, 7, "no variable is called 'b'"))
    no variable is called 'b'
      P(a | b)
            ^
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    before, meant = _measure(shown[:start]), _measure(shown[start:end])
    return f"{message}\n  {shown}\n  {' ' * before}{'^' * max(meant, 1)}"


def _measure(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def split_tokens(text: str) -> list[Token]:
    """Split a question into tokens; the last is its end.

    Raises
    ------
    QuestionError
        If a quote is not closed.

    Examples
    --------
    >>> [token.text for token in split_tokens("P('my pet'=cat | age≥5)")]
    ['P', '(', 'my pet', '=', 'cat', '|', 'age', '>=', '5', ')', '']
    """
    tokens = []
    position = 0
    while position < len(text):
        letter = text[position]
        if letter.isspace():
            position += 1
        elif letter in QUOTES:
            close = text.find(QUOTES[letter], position + 1)
            if close < 0:
                raise QuestionError(
                    point_at(
                        text,
                        position,
                        len(text),
                        f"the quote {letter} is not closed; add the other",
                    )
                )
            tokens.append(Token("quoted", text[position + 1 : close], position, close + 1))
            position = close + 1
        elif (found := _SYMBOL.match(text, position)) is not None:
            symbol = found.group()
            tokens.append(Token("symbol", SAME.get(symbol, symbol), position, found.end()))
            position = found.end()
        else:
            found = _WORD.match(text, position)
            assert found is not None
            tokens.append(Token("word", found.group(), position, found.end()))
            position = found.end()
    return [*tokens, Token("end", "", len(text), len(text))]


MEASURES = {
    "P": "P(label=e | odor=f, cap=x), P(a, b | c=yes), P(a | b)",
    "E": "E(rating | genre=drama)",
    "median": "median(age | party=left)",
    "quantile": "quantile(age, 0.9 | party=left)",
    "argmax": "argmax(a, b, c | d=yes)",
    "H": "H(a, b | c=yes), H(a | b)",
    "MI": "MI(a; b | c=yes), MI(a; b | c)",
    "TV": "TV(b | a=1; a=2), TV(a; b)",
    "odds": "odds(a=yes | b=1)",
    "OR": "OR(a=yes | b=1; b=2), OR(a=yes; b=1 | c=2)",
}
"""What can be asked, with examples."""

_NAMES = {name.lower(): name for name in MEASURES}
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_PLAIN = ("E", "median", "quantile", "argmax", "H", "MI", "TV")
"""Measures of variables as a whole; the others can take levels."""
_QUOTES_HELP = "names and levels that hold ( ) , = < > | ; { } are put in quotes"


@dataclass(frozen=True)
class Phrase:
    """A name, a level or a number, as it is written in a question, and where."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Term:
    """A variable, or a variable that has one of some levels.

    Parameters
    ----------
    name
        The variable.
    operator
        "=", "!=", "<", "<=", ">", ">=", "in" or "not in"; "" for the variable as a whole.
    levels
        What it is compared with: one, or those of a set.
    """

    name: Phrase
    operator: str = ""
    levels: tuple[Phrase, ...] = ()

    @property
    def span(self) -> tuple[int, int]:
        """First letter in the question, and the one after the last."""
        return self.name.start, max(self.name.end, *(each.end for each in self.levels), 0)


@dataclass(frozen=True)
class Question:
    """What a question in words says, before a schema says what its names are.

    Parameters
    ----------
    text
        The question.
    measure
        What is asked for, one of ``MEASURES``.
    groups
        Terms before the bar; a semicolon parts the groups.
    given
        Terms after the bar; a semicolon parts two sets of conditions that are compared. None without a bar.
    share
        Share of a quantile, in (0, 1).
    """

    text: str
    measure: str
    groups: tuple[tuple[Term, ...], ...]
    given: tuple[tuple[Term, ...], ...] = ()
    share: float | None = None


def parse_question(text: str) -> Question:
    """Read a question.

    Parameters
    ----------
    text
        One of the forms of ``MEASURES``, or ``B given A=5 and C=yes``, which is ``P(B | A=5, C=yes)``. Terms are parted
        by commas or "and", and compare by = != < <= > >= or ``in {1, 2}``.

    Raises
    ------
    QuestionError
        If the text is no question; the message shows the position.

    Examples
    --------
    >>> found = parse_question("E(rating | genre=drama and year>=1990)")
    >>> found.measure, [(term.name.text, term.operator) for term in found.given[0]]
    ('E', [('genre', '='), ('year', '>=')])
    """
    return _Parser(text).read()


class _Parser:
    """Recursive descent over the tokens of a question."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = split_tokens(text)
        self.position = 0

    @property
    def here(self) -> Token:
        return self.tokens[self.position]

    def refuse(self, message: str, start: int, end: int) -> QuestionError:
        return QuestionError(point_at(self.text, start, end, message))

    def expect(self, *symbols: str) -> Token:
        found = self.here
        if not found.is_symbol(*symbols):
            expected = " or ".join(repr(symbol) for symbol in symbols)
            what = "the question ends" if found.kind == "end" else f"{found.text!r} stands"
            raise self.refuse(
                f"{what} where {expected} is expected; {_QUOTES_HELP}", found.start, found.end
            )
        self.position += 1
        return found

    def read(self) -> Question:
        first = self.here
        if first.kind == "end":
            raise self.refuse("the question names no variable; write for example P(B | A=5)", 0, 0)
        if first.kind != "word" or not self.tokens[1].is_symbol("("):
            groups, given = self.read_sides()
            if self.here.kind != "end":
                self.expect(",", "|")
            question = Question(self.text, "P", groups, given)
        else:
            question = self.read_call()
        self.check_form(question)
        return question

    def read_call(self) -> Question:
        name = self.here
        measure = _NAMES.get(name.text.lower())
        if measure is None:
            close = difflib.get_close_matches(name.text.lower(), _NAMES, n=1, cutoff=0.5)
            hint = f"did you mean {_NAMES[close[0]]}? " if close else ""
            raise self.refuse(
                f"{name.text!r} is nothing that can be asked for; {hint}There are {', '.join(MEASURES)}; "
                f"{_QUOTES_HELP}",
                name.start,
                name.end,
            )
        self.position += 2
        groups, given = self.read_sides()
        self.expect(")")
        if self.here.kind != "end":
            raise self.refuse(
                "this follows the question; leave it out", self.here.start, len(self.text)
            )
        share = None
        if measure == "quantile":
            groups, share = self.take_share(groups)
        return Question(self.text, measure, groups, given, share)

    def read_sides(self) -> tuple[tuple[tuple[Term, ...], ...], tuple[tuple[Term, ...], ...]]:
        groups = self.read_groups()
        if not (self.here.is_symbol("|") or self.here.is_word("given")):
            return groups, ()
        self.position += 1
        return groups, self.read_groups()

    def read_groups(self) -> tuple[tuple[Term, ...], ...]:
        groups = [self.read_terms()]
        while self.here.is_symbol(";"):
            self.position += 1
            groups.append(self.read_terms())
        return tuple(groups)

    def read_terms(self) -> tuple[Term, ...]:
        terms = [self.read_term()]
        while self.here.is_symbol(",") or self.here.is_word("and"):
            self.position += 1
            terms.append(self.read_term())
        return tuple(terms)

    def read_term(self) -> Term:
        name = self.read_phrase("a variable")
        found = self.here
        if found.is_symbol(*_OPERATORS):
            self.position += 1
            return Term(name, found.text, (self.read_phrase(f"a level of {name.text!r}"),))
        if found.is_word("in", "not"):
            negated = found.is_word("not")
            self.position += 2 if negated else 1
            return Term(name, "not in" if negated else "in", self.read_set(name))
        return Term(name)

    def read_set(self, name: Phrase) -> tuple[Phrase, ...]:
        self.expect("{")
        levels = [self.read_phrase(f"a level of {name.text!r}")]
        while self.here.is_symbol(","):
            self.position += 1
            levels.append(self.read_phrase(f"a level of {name.text!r}"))
        self.expect("}")
        return tuple(levels)

    def read_phrase(self, what: str) -> Phrase:
        """Read a quoted text, or words up to the next symbol, "and", "given" or "in {"."""
        first = self.here
        if first.kind == "quoted":
            self.position += 1
            return Phrase(first.text.strip(), first.start, first.end)
        last = None
        while self.here.kind == "word" and not self.here.is_word("and", "given"):
            if last is not None and self.is_set_ahead():
                break
            last = self.here
            self.position += 1
        if last is None:
            shown = repr(first.text) if first.text else "nothing"
            raise self.refuse(
                f"{shown} stands where {what} is expected; {_QUOTES_HELP}", first.start, first.end
            )
        return Phrase(self.text[first.start : last.end], first.start, last.end)

    def is_set_ahead(self) -> bool:
        after = self.tokens[self.position + 1]
        if self.here.is_word("in"):
            return after.is_symbol("{")
        return (
            self.here.is_word("not")
            and after.is_word("in")
            and self.tokens[self.position + 2].is_symbol("{")
        )

    def take_share(
        self, groups: tuple[tuple[Term, ...], ...]
    ) -> tuple[tuple[tuple[Term, ...], ...], float]:
        last = groups[-1][-1]
        try:
            share = float(last.name.text)
        except ValueError:
            share = -1.0
        if len(groups) != 1 or len(groups[0]) != 2 or not 0 < share < 1:
            raise self.refuse(
                "a quantile is of one variable and a number between 0 and 1: "
                + MEASURES["quantile"],
                *last.span,
            )
        return ((groups[0][0],),), share

    def check_form(self, question: Question) -> None:
        """Refuse what the measure cannot be of."""
        groups, given, measure = question.groups, question.given, question.measure
        two_groups, two_conditions = len(groups) == 2, len(given) == 2
        whole = (0, len(self.text))
        sides = "; for example " + MEASURES[measure]
        if len(groups) > 2 or len(given) > 2:
            raise self.refuse(f"a semicolon parts two at most{sides}", *whole)
        if measure == "MI" and not two_groups:
            raise self.refuse(f"MI is between two parts: a semicolon is missing{sides}", *whole)
        if measure in ("TV", "OR"):
            n_conditions = (1, 2) if measure == "TV" else (2,)
            if two_conditions if two_groups else len(given) not in n_conditions:
                message = f"{measure} has one semicolon, before the bar or after it{sides}"
                raise self.refuse(message, *whole)
        elif two_conditions or (two_groups and measure != "MI"):
            raise self.refuse(f"{measure} has no semicolon here{sides}", *whole)
        for term in (term for group in groups for term in group):
            if measure in _PLAIN and term.operator:
                raise self.refuse(
                    f"{measure} is of whole variables, and {term.name.text!r} has a level; conditions stand after a bar"
                    + sides,
                    *term.span,
                )
            if measure in ("odds", "OR") and not term.operator:
                raise self.refuse(
                    f"{measure} is of an event: give {term.name.text!r} a level{sides}", *term.span
                )
        if measure in ("E", "median", "quantile") and len(groups[0]) > 1:
            raise self.refuse(f"{measure} is of one variable{sides}", *groups[0][1].span)
        if measure in ("argmax", "OR") or (measure == "TV" and not two_groups):
            for term in (term for side in given for term in side if not term.operator):
                message = f"{term.name.text!r} is no condition: it has no level; write NAME=LEVEL"
                raise self.refuse(message + sides, *term.span)


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
