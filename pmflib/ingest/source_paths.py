"""Paths of raw files: wildcards, and collisions with stores and outputs."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from pmflib.base.errors import ConfigError
from pmflib.base.texts import mask_secrets
from pmflib.ingest.options import abridge

_WILDCARD = r"[*?\[]"
_TEXT = re.compile(rf"(?:[^*?\[]|\[{_WILDCARD}\])*")
_STORED_PATH = ("kind", "identity", "quarantine.parquet")
"""Path components of files in a store that look like data."""


def escape_text(path: str) -> str:
    """Escape the wildcards of a path."""
    return re.sub(f"({_WILDCARD})", r"[\1]", path)


def read_as_text(path: str) -> str:
    """Undo `escape_text`; other wildcards are kept."""
    return re.sub(rf"\[({_WILDCARD})\]", r"\1", path)


def split_wildcards(path: str) -> tuple[str, str]:
    """Split a path into a literal folder and the components from the first wildcard on.

    Returns
    -------
    Literal folder and pattern; without wildcards, the whole path and "".
    """
    match = _TEXT.match(path)
    text = path[: match.end()] if match else ""
    if len(text) == len(path):
        return read_as_text(path), ""
    return posixpath.dirname(read_as_text(text)), path[text.rfind("/") + 1 :]


def make_absolute(path: str) -> str:
    """Make a path or glob absolute, escaping wildcards in the working folder; URLs and "" are kept."""
    if not path or "://" in path:
        return path
    text, wildcards = split_wildcards(path)
    if wildcards and os.path.exists(path):
        text, wildcards = path, ""
    whole = escape_text(os.path.realpath(text))
    return posixpath.join(whole, wildcards) if wildcards else whole


def would_find_store(path: str, store: str, suffixes: Sequence[str]) -> bool:
    """Whether a path of raw files would match files that a store writes.

    Parameters
    ----------
    path
        File, folder, glob or URL.
    store
        Folder or URL of the store, which need not exist yet.
    suffixes
        Suffixes of data files.
    """
    return _would_find(path, store, _STORED_PATH, suffixes)


def check_output(
    paths: Sequence[str], output: str | os.PathLike[str], suffixes: Sequence[str]
) -> None:
    """Check that an output would not be read as a raw file.

    Parameters
    ----------
    paths
        Files, folders, globs or URLs of raw files.
    output
        File, or folder of Parquet files.
    suffixes
        Suffixes of data files.

    Raises
    ------
    ConfigError
        If it would.
    """
    name = os.fspath(output)
    inner = () if os.path.splitext(name)[1] else ("part.parquet",)
    for path in map(make_absolute, paths):
        if _would_find(path, name, inner, suffixes):
            shown = abridge(mask_secrets(read_as_text(path)))
            raise ConfigError(
                f"output {abridge(name)} is among the raw files of {shown}, and would be read as data by the next "
                "call; name an output elsewhere"
            )


def _would_find(path: str, outer: str, inner: Sequence[str], suffixes: Sequence[str]) -> bool:
    """Whether a path of raw files would match the file with some components below an outer path."""
    text, wildcards = split_wildcards(path)
    folder, where = _follow(text), _follow(outer)
    if where != folder and not where.startswith(folder.rstrip("/") + "/"):
        return False
    below = [each for each in where[len(folder) :].split("/") if each]
    if not wildcards and not below and not inner:
        return True
    is_data = [where, *inner][-1].endswith(tuple(suffixes))
    if wildcards:
        names_suffix = not wildcards.endswith(("*", "?", "]"))
        return (
            (names_suffix or is_data)
            and matches_hidden_parts(wildcards, "/".join([*below, *inner]))
            and _matches(wildcards.split("/"), [*below, *inner])
        )
    return is_data and not any(each.startswith((".", "_")) for each in below)


def matches_hidden_parts(wildcards: str, relative: str) -> bool:
    """Whether each hidden name in a relative path is matched by a part of a pattern that begins with a dot, too.

    Examples
    --------
    >>> matches_hidden_parts("*/*.csv", "log/night-08.csv")
    True
    >>> matches_hidden_parts("*/*.csv", "log/.night-08.csv.swp.csv")
    False
    >>> matches_hidden_parts("*/.night*.csv", "log/.night-08.csv.swp.csv")
    True
    """
    patterns = [part for part in wildcards.split("/") if part.startswith(".")]
    return all(
        any(fnmatchcase(part, pattern) for pattern in patterns)
        for part in relative.split("/")
        if part.startswith(".")
    )


def _follow(path: str) -> str:
    """Resolve a path; a URL only loses a trailing slash."""
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def _matches(wildcards: Sequence[str], names: Sequence[str]) -> bool:
    if not wildcards or not names:
        return not wildcards and not names
    first, *rest = wildcards
    if first == "**":
        return any(_matches(rest, names[n:]) for n in range(len(names))) or not rest
    return fnmatchcase(names[0], first) and _matches(rest, names[1:])
