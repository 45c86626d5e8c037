"""Tokens of a question in words, with their places; errors that point at one of them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from pmflib.errors import QuestionError

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
    place = 0
    while place < len(text):
        letter = text[place]
        if letter.isspace():
            place += 1
        elif letter in QUOTES:
            close = text.find(QUOTES[letter], place + 1)
            if close < 0:
                raise QuestionError(
                    point_at(
                        text, place, len(text), f"the quote {letter} is not closed; add the other"
                    )
                )
            tokens.append(Token("quoted", text[place + 1 : close], place, close + 1))
            place = close + 1
        elif (found := _SYMBOL.match(text, place)) is not None:
            symbol = found.group()
            tokens.append(Token("symbol", SAME.get(symbol, symbol), place, found.end()))
            place = found.end()
        else:
            found = _WORD.match(text, place)
            assert found is not None
            tokens.append(Token("word", found.group(), place, found.end()))
            place = found.end()
    return [*tokens, Token("end", "", len(text), len(text))]
