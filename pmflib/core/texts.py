"""Texts as they may be shown: names near a mistyped one, data without control characters, safe addresses."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

MAX_NAMES = 10_000
"""Names that are compared at most: of more, a message would take longer than a person waits."""


def list_near(name: object, known: Iterable[str], n_most: int = 3) -> list[str]:
    """List names near a name, the nearest first, without regard to case, blanks, hyphens and underscores.

    Parameters
    ----------
    name
        What was given; anything but a text is near nothing.
    known
        Names that there are.
    n_most
        Names that are listed at most.

    Examples
    --------
    >>> list_near("Dawid-Skene", ["auto", "dawid_skene", "majority"])
    ['dawid_skene']
    """
    if not isinstance(name, str):
        return []
    folded: dict[str, str] = {}
    for _, each in zip(range(MAX_NAMES), known, strict=False):
        folded.setdefault(_fold(each), each)
    near = difflib.get_close_matches(_fold(name), folded, n=n_most)
    return [folded[each] for each in near]


def fold_text(text: str) -> str:
    """Text without blanks around it, without case, and in one Unicode composition.

    Examples
    --------
    >>> fold_text(" Chie\u0301n ") == fold_text("CHI\u00c9N")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text.strip()).casefold())


def unify_texts(texts: Iterable[str]) -> dict[str, str]:
    """For each text the first one that differs from it in case or Unicode composition at most.

    Examples
    --------
    >>> unify_texts(["Dog", "dog", "cat"])
    {'Dog': 'Dog', 'dog': 'Dog', 'cat': 'cat'}
    """
    first: dict[str, str] = {}
    return {text: first.setdefault(fold_text(text), text) for text in texts}


def list_some(names: Sequence[str], n_most: int = 6, between: str = ", ") -> str:
    """Names in one line, with a sign between them; of many the first ones, and how many more there are.

    Examples
    --------
    >>> list_some(["a", "b", "c", "d"], 2)
    'a, b, ... 2 more'
    """
    shown = list(names[:n_most])
    if len(names) > n_most:
        shown.append(f"... {len(names) - n_most:,} more")
    return between.join(shown)


def abridge_names(names: Sequence[object], n_most: int = 8) -> str:
    """Quoted names in brackets; of many the first ones, and how many more there are.

    Examples
    --------
    >>> abridge_names(["a", "b", "c"], 2)
    "['a', 'b', ... 1 more]"
    """
    return f"[{list_some([repr(name) for name in names], n_most)}]"


def suggest(name: object, known: Iterable[str], *, before: str = "; ") -> str:
    """Question for the end of a message, such as "; did you mean ['visits']?"; empty where nothing is near."""
    near = list_near(name, known)
    return f"{before}did you mean {near}?" if near else ""


def suggest_file(path: Path) -> str:
    """Question for the end of a message on a file that does not exist: the nearest in its folder."""
    try:
        names = sorted(
            each.name for _, each in zip(range(MAX_NAMES), path.parent.iterdir(), strict=False)
        )
    except OSError:
        return f"; the folder {str(path.parent)!r} cannot be read either"
    near = list_near(path.name, [name for name in names if name != path.name])
    return f"; did you mean {[str(path.parent / each) for each in near]}?" if near else ""


def _fold(name: str) -> str:
    return name.casefold().translate(_SEPARATORS)


_SEPARATORS = str.maketrans("- .", "___")


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


RUN_BY_SPREADSHEETS = r"^'*[=+\-@\t\r\n]"
"""Start of a text in CSV that a spreadsheet would run as a formula, or that `guard_cell` has guarded."""
_RUN = re.compile(RUN_BY_SPREADSHEETS)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def guard_cell(text: str) -> str:
    """Text of data as a cell of CSV for people: a spreadsheet shows it, and does not run it. Numbers stay as they are.

    Examples
    --------
    >>> [guard_cell(each) for each in ("=1+1", "-1", "@x", "plain", "'=1+1")]
    ["'=1+1", '-1', "'@x", 'plain', "''=1+1"]
    """
    return f"'{text}" if _RUN.match(text) and not _NUMBER.fullmatch(text) else text


def restore_cell(text: str) -> str:
    """Undo `guard_cell`."""
    return text[1:] if text.startswith("'") and _RUN.match(text) else text


MASK = "***"
"""What stands in place of a secret."""

_AUTHORITY = re.compile(
    # what is before the last "@" of the authority; and a password with a "/", "?" or "#" that should be encoded
    r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:@]*:(?!\d*(?:[/?#\s]|$))[^\s@]*@)"
)
_PARAMETER = re.compile(
    r"([?&;#]"
    r"[\w.%-]*(?:pass|pwd|secret|token|key|sig|sas|auth|cred|jwt|session|policy|%)[\w.%-]*=)"
    r"[^\s&;#'\"]+",
    re.IGNORECASE,
)


def mask_secrets(text: str) -> str:
    """Replace what may be a secret in the URLs of a text: user information, and parameters named as secrets are.

    Everything that is shown, logged or kept goes through here where it may name a source: messages, records, events.

    Parameters
    ----------
    text
        One URL or path, or a message with any number of them.

    Examples
    --------
    >>> mask_secrets("https://me:hunter2@host/a.csv?part=1&X-Amz-Signature=ab12")
    'https://***@host/a.csv?part=1&X-Amz-Signature=***'
    >>> mask_secrets("source.path 's3://bucket/a.csv' matches no file")
    "source.path 's3://bucket/a.csv' matches no file"
    """
    return _PARAMETER.sub(rf"\g<1>{MASK}", _AUTHORITY.sub(f"{MASK}@", text))
