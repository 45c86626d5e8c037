"""Names near a name that is not there: what a person who mistyped one meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
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
