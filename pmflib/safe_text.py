"""Text of data as it may reach a terminal."""

from __future__ import annotations

import unicodedata

INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of Unicode that a terminal acts on, shows as nothing, or cannot show: control and format characters, which
have escape sequences and marks of writing direction among them, halves of surrogate pairs, line separators."""


def show_text(text: str) -> str:
    r"""Text of data as it may reach a terminal: what is invisible or acted on is escaped with a backslash.

    Examples
    --------
    >>> print(show_text("red\x1b[31m, \u202eright to left, first\nsecond, [bold], :smile:"))
    red\x1b[31m, \u202eright to left, first\nsecond, [bold], :smile:
    """
    if text.isprintable():
        return text
    return "".join(map(_show_character, text))


def _show_character(character: str) -> str:
    if unicodedata.category(character) in INVISIBLE:
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character
