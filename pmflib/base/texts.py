"""Text for display: suggestions for mistyped names, escaped control characters, addresses without secrets."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MAX_NAMES = 10_000
"""Maximum number of names compared for a suggestion; with more, a message would be slow."""


def list_near(name: object, known: Iterable[str], n_most: int = 3) -> list[str]:
    """List names similar to a name, the closest first, ignoring case, blanks, hyphens and underscores.

    Parameters
    ----------
    name
        The given name; objects other than strings are similar to nothing.
    known
        Known names.
    n_most
        Maximum number of names listed.

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
    """Normalise text: fold case and blanks, compose Unicode, and remove characters of no width.

    Examples
    --------
    >>> fold_text(" Chie\u0301n ") == fold_text("CHI\u00c9N\u200b")
    True
    >>> fold_text("New\u00a0York") == fold_text("new york")
    True
    """
    if not text.isascii():
        # the second composition is of what folding case has taken apart
        text = unicodedata.normalize("NFC", text.translate(_WITHOUT_WIDTH))
        return " ".join(unicodedata.normalize("NFC", text.casefold()).split())
    return " ".join(text.casefold().split())


_WITHOUT_WIDTH = dict.fromkeys(map(ord, "\u200b\u2060\ufeff\u00ad"))
"""Blanks of no width and soft hyphens; joiners, which are letters of some scripts, are kept."""


def unify_texts(texts: Iterable[str], counts: Mapping[str, int] | None = None) -> dict[str, str]:
    """Map each text to the most frequent one that `fold_text` does not tell from it, of equal ones the first.

    Examples
    --------
    >>> unify_texts(["Dog", "dog", "cat"], {"Dog": 1, "dog": 9})
    {'Dog': 'dog', 'dog': 'dog', 'cat': 'cat'}
    """
    times, kept = counts or {}, dict[str, str]()
    texts = list(texts)
    for text in texts:
        best = kept.setdefault(fold_text(text), text)
        if times.get(text, 0) > times.get(best, 0):
            kept[fold_text(text)] = text
    return {text: kept[fold_text(text)] for text in texts}


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that compares numbers inside names by value."""
    parts = []
    for digits, text in re.findall(r"0*([0-9]+)|([^0-9]+)", name):
        # without leading zeros, the longer number is the greater one
        parts.append((0, len(digits), digits) if digits else (1, 0, text))
    return (*parts, (-1, 0, name))


def list_some(names: Sequence[str], n_most: int = 6, between: str = ", ") -> str:
    """Join names in one line; long lists are abbreviated with the number of omitted names.

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
    """Quote names in brackets; long lists are abbreviated with the number of omitted names.

    Examples
    --------
    >>> abridge_names(["a", "b", "c"], 2)
    "['a', 'b', ... 1 more]"
    """
    return f"[{list_some([repr(name) for name in names], n_most)}]"


def suggest(name: object, known: Iterable[str], *, before: str = "; ") -> str:
    """Return a suggestion for a message, such as "; did you mean ['visits']?", or "" if nothing is similar."""
    near = list_near(name, known)
    return f"{before}did you mean {near}?" if near else ""


def suggest_file(path: Path) -> str:
    """Return a suggestion for a file that does not exist: similar names in its folder."""
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
"""Unicode categories that a terminal interprets, hides, or cannot display: control and format characters (including
escape sequences and direction marks), surrogate halves and line separators.
"""


def show_text(text: str) -> str:
    r"""Escape data for display on a terminal: invisible and control characters become backslash escapes.

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


_MARKED = re.compile(r"[\\`*_{}\[\]<>()#+!|~&]|(?<=:)//|(?<=www)\.")
"""What Markdown and HTML give a meaning, and what makes a link of an address."""


def escape_markdown(text: str) -> str:
    r"""Escape a text for Markdown and HTML, in one line.

    Examples
    --------
    >>> print(escape_markdown("a | <b> [here](https://x.y)"))
    a \| \<b\> \[here\]\(https:\//x.y\)
    """
    return _MARKED.sub(r"\\\g<0>", " ".join(show_text(text).split()))


RUN_BY_SPREADSHEETS = r"^'*[=+\-@\t\r\n]"
"""Start of a CSV text that a spreadsheet would run as a formula, or that `guard_cell` has escaped."""
_RUN = re.compile(RUN_BY_SPREADSHEETS)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def guard_cell(text: str) -> str:
    """Escape a CSV cell so that spreadsheets display it instead of running it as a formula. Numbers are unchanged.

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
"""Replacement for secrets."""

_AUTHORITY = re.compile(
    # what precedes the last "@" of the authority; also passwords with a "/", "?" or "#" that should have been encoded
    r"(?<=://)(?:[^\s/?#]*@|[^\s/?#:@]*:(?!\d*(?:[/?#\s]|$))[^\s@]*@)"
)
_USER = re.compile(r"[^\s/?#'\"=:@]*:[^\s/'\"@]+@")
_PARAMETER = re.compile(r"([?&;#])([\w.%-]+)=([^\s&;#'\"]+)")
_HARMLESS_PARAMETERS = frozenset(
    "id file part page version v date day week month year quarter from to start end since until after before limit "
    "offset size format type lang encoding sheet gid table columns sv sp sr st se spr ss srt X-Amz-Algorithm "
    "X-Amz-Date X-Amz-Expires X-Goog-Algorithm X-Goog-Date X-Goog-Expires".casefold().split()
)
"""Parameters of downloads and signed URLs that hold no secret; the values of all others are masked."""
_WEB_URL = re.compile(
    # object stores and archives have no secret in paths, and their "?" is a wildcard
    r"(?<![\w+.-])(?!(?:s3a?|gs|gcs|az|abfss?|adl|hdfs|file|memory|zip|tar|tcp|tls|inproc)://)"
    r"([\w+.-]+://[^\s/?#'\"]*)([^\s?#'\"]*)([^\s'\"]*)",
    re.IGNORECASE,
)
_BARE = re.compile(r"(?<=[?&;#])[^\s&;#'\"=]+(?=[&;#]|$)")
_LONG_WORD, _RUN_OF_KIND = re.compile(r"[A-Za-z0-9]{16,}"), re.compile(r"\d+|[A-Za-z]+")
MOST_RUNS = 4
"""Maximum number of runs of letters and of digits in a long word of a path; tokens have more."""


def mask_secrets(text: str) -> str:
    """Mask possible secrets in the URLs of a text: all but what is known to be harmless.

    Masked are user information; the values of all parameters but those of `_HARMLESS_PARAMETERS`; and, except in
    addresses of object stores, parameters without a value and long words that mix letters with digits. All messages,
    records and events that may contain a source address are passed through this function.

    Parameters
    ----------
    text
        A URL or path, or a message with any number of them.

    Examples
    --------
    >>> mask_secrets("https://me:hunter2@host/a.csv?part=1&X-Amz-Signature=ab12")
    'https://***@host/a.csv?part=1&X-Amz-Signature=***'
    >>> mask_secrets("source.path 's3://bucket/a.csv' matches no file")
    "source.path 's3://bucket/a.csv' matches no file"
    """
    text = _USER.sub(f"{MASK}@", _AUTHORITY.sub(f"{MASK}@", text))
    return _WEB_URL.sub(_mask_web_url, _PARAMETER.sub(_mask_parameter, text))


def _mask_parameter(found: re.Match[str]) -> str:
    separator, name, value = found.groups()
    return f"{separator}{name}={value if name.casefold() in _HARMLESS_PARAMETERS else MASK}"


def _mask_web_url(found: re.Match[str]) -> str:
    authority, path, query = found.groups()
    return authority + _LONG_WORD.sub(_mask_word, path) + _BARE.sub(MASK, query)


def _mask_word(found: re.Match[str]) -> str:
    return found[0] if len(_RUN_OF_KIND.findall(found[0])) <= MOST_RUNS else MASK
