"""Parse questions such as ``P(label=e | odor=f)`` or ``B given A=5 and C=yes``, and bind them to a schema."""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmflib.base.arrays import BoolArray, FloatArray
from pmflib.base.errors import QuestionError, UnknownNameError
from pmflib.base.texts import abridge_names, list_near
from pmflib.model.conditions import Conditions, explain_no_level, find_code
from pmflib.schema import Schema, Variable
from pmflib.schema.variable import read_number

Kind = Literal["word", "quoted", "symbol", "end"]

SYMBOLS = ("!=", "<>", "<=", ">=", "==", "≠", "≤", "≥", *"=<>(),|;{}")
"""Symbols that names and levels can contain only in quotes, the longest first."""
SAME = {"<>": "!=", "==": "=", "≠": "!=", "≤": "<=", "≥": ">="}
"""Canonical forms of alternative symbols."""
QUOTES = {'"': '"', "'": "'", "“": "”"}
"""Opening and closing quotation marks."""

_SYMBOL = re.compile("|".join(map(re.escape, SYMBOLS)))
_WORD = re.compile(r"[^\s=<>≠≤≥(),|;{}!]+|!")


@dataclass(frozen=True)
class Token:
    """A token of a question.

    Parameters
    ----------
    kind
        Kind of token: a plain word, quoted text, a symbol, or the end of the question.
    text
        Content: quoted text without the quotes, symbols in canonical form.
    start, end
        Position of its first character in the question, and of the one after the last.
    """

    kind: Kind
    text: str
    start: int
    end: int

    def is_symbol(self, *symbols: str) -> bool:
        """Return whether the token is one of the given symbols."""
        return self.kind == "symbol" and self.text in symbols

    def is_word(self, *words: str) -> bool:
        """Return whether the token is one of the given lower-case words, unquoted."""
        return self.kind == "word" and self.text.lower() in words


def point_at(text: str, start: int, end: int, message: str) -> str:
    """Return a message followed by the question, with carets under the characters in question.

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
    """Return the width of a text in terminal columns."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def split_tokens(text: str) -> list[Token]:
    """Split a question into tokens; the last one marks its end.

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
"""Measures that a question can request, with examples."""

_NAMES = {name.lower(): name for name in MEASURES}
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_PLAIN = ("E", "median", "quantile", "argmax", "H", "MI", "TV")
"""Measures of variables without levels; the others accept levels."""
_QUOTES_HELP = "names and levels that hold ( ) , = < > | ; { } are put in quotes"


@dataclass(frozen=True)
class Phrase:
    """A name, level or number as written in a question, with its position."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Term:
    """A variable, or a condition on its levels.

    Parameters
    ----------
    name
        The variable.
    operator
        "=", "!=", "<", "<=", ">", ">=", "in" or "not in"; "" for a variable without levels.
    levels
        Operand of the comparison: one level, or those of a set.
    """

    name: Phrase
    operator: str = ""
    levels: tuple[Phrase, ...] = ()

    @property
    def span(self) -> tuple[int, int]:
        """Position of the first character in the question, and of the one after the last."""
        return self.name.start, max(self.name.end, *(each.end for each in self.levels), 0)


@dataclass(frozen=True)
class Question:
    """A parsed question, before its names are looked up in a schema.

    Parameters
    ----------
    text
        The question.
    measure
        Requested measure, one of ``MEASURES``.
    groups
        Terms before the bar, in groups separated by semicolons.
    given
        Terms after the bar; a semicolon separates two sets of conditions to compare. None without a bar.
    share
        Cumulative probability of a quantile, in (0, 1).
    """

    text: str
    measure: str
    groups: tuple[tuple[Term, ...], ...]
    given: tuple[tuple[Term, ...], ...] = ()
    share: float | None = None


def parse_question(text: str) -> Question:
    """Parse a question.

    Parameters
    ----------
    text
        One of the forms of ``MEASURES``, or ``B given A=5 and C=yes``, which means ``P(B | A=5, C=yes)``. Terms are
        separated by commas or "and"; operators are = != < <= > >= and ``in {1, 2}``.

    Raises
    ------
    QuestionError
        If the text is not a valid question; the message shows the position.

    Examples
    --------
    >>> found = parse_question("E(rating | genre=drama and year>=1990)")
    >>> found.measure, [(term.name.text, term.operator) for term in found.given[0]]
    ('E', [('genre', '='), ('year', '>=')])
    """
    return _Parser(text).read()


class _Parser:
    """Recursive-descent parser of the tokens of a question."""

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
        """Parse a quoted text, or words up to the next symbol, "and", "given" or "in {"."""
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
        """Raise an error if the measure does not accept the form of the question."""
        groups, given, measure = question.groups, question.given, question.measure
        two_groups, two_conditions = len(groups) == 2, len(given) == 2
        whole = (0, len(self.text))
        sides = "; for example " + MEASURES[measure]
        if len(groups) > 2 or len(given) > 2:
            raise self.refuse(f"a semicolon parts two at most{sides}", *whole)
        if measure == "MI" and not two_groups:
            raise self.refuse(
                f"MI needs two groups of variables separated by a semicolon{sides}", *whole
            )
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
                    f"{measure} is of an event: pass {term.name.text!r} a level{sides}", *term.span
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
    """A question whose names are resolved to the variables of a schema.

    Parameters
    ----------
    question
        The parsed question.
    schema
        The schema.
    groups
        Positions of the target variables without levels, by group.
    events
        Levels of the target events, by group.
    given
        Conditions on either side of a semicolon; a single set, possibly empty, without a semicolon.
    by
        Positions of the conditioning variables without a level. Depending on the measure, there is an answer for each
        of their levels, or the mean over them.
    as_other
        Named levels that a variable does not have, by its name; they are mapped to its level `other`.
    moved_cuts
        Comparisons with a number that is not an edge of the bins of its variable, as asked and as answered: at the edge
        of the bin that contains the number.
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
        """Positions of all target variables, in the order of the question."""
        every = [
            p for pair in zip(self.groups, self.events, strict=True) for part in pair for p in part
        ]
        return tuple(dict.fromkeys(every))

    @property
    def involved(self) -> tuple[int, ...]:
        """Positions of all variables in the question."""
        given = [position for side in self.given for position in side]
        return tuple(dict.fromkeys([*self.targets, *self.by, *given]))

    @property
    def sides(self) -> tuple[Conditions, ...]:
        """Sets of conditions whose PMFs are measured; total variation with one set compares it with no condition."""
        is_to_all = self.question.measure == "TV" and len(self.groups) == len(self.given) == 1
        return (*self.given, {}) if is_to_all else self.given


def bind_question(question: Question, schema: Schema) -> BoundQuestion:
    """Look up the variables and levels of a question in a schema.

    Raises
    ------
    UnknownNameError
        If a variable or a level is unknown; the message shows the position and the nearest names.
    QuestionError
        If conditions contradict each other, a variable is a target twice, or both target and condition, or levels
        without an order are compared.
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
        """Find the codes that satisfy all terms of each variable."""
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
        return f"{name!r} is given as {texts[0]} and as {texts[1]}, and has one level in a row; pass one of them"

    def check_roles(self, bound: BoundQuestion) -> None:
        """Raise an error if a variable is a target twice, or both target and condition."""
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
        """Find the codes that satisfy a term."""
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
        """Find the codes of the levels on one side of a number or a level."""
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
        """Find the codes of the bins on one side of a number, including its own bin; record moved comparisons."""
        is_above = term.operator in (">", ">=")
        is_edge = number in edges
        # a continuous value has probability 0 of lying on the edge itself
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
    """Return the numbers that order the levels: their values or their codes."""
    if variable.values is None:
        return np.arange(variable.cardinality, dtype=np.float64)
    return np.asarray(variable.values, np.float64)


def _say(term: Term) -> str:
    texts = [each.text for each in term.levels]
    return repr(texts[0]) if term.operator == "=" else f"{term.operator} {', '.join(texts)}"
