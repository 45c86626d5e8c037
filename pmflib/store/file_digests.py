"""Digests of an artefact's files, kept in its folder: what is read is compared with what was published."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pmflib.errors import StoreError

LIST_FILE = ".digests"
"""List of an artefact's files in its folder: JSON, relative name to SHA-256 in hexadecimal. It is no part of the
content: the digest of the content is a digest of this list."""
PLACE_DIGITS = 24
"""Digits of an artefact's digest that name its folder."""
_PLACE = re.compile(rf"[0-9a-f]{{{PLACE_DIGITS}}}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def write_list(folder: Path) -> str:
    """Write the list of the files of a folder that is complete; return the digest of the folder: see `digest_tree`."""
    digests = digest_files(folder)
    text = json.dumps(digests, indent=0, sort_keys=True, ensure_ascii=False)
    (folder / LIST_FILE).write_text(text, "utf-8")
    return digest_list(digests)


def digest_tree(folder: Path) -> str:
    """SHA-256 of a folder: of the relative name and the digest of every file, in order of name."""
    return digest_list(digest_files(folder))


def digest_files(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder but its list, by relative name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        name: digest_file(path)
        for path in files
        if (name := path.relative_to(folder).as_posix()) != LIST_FILE
    }


def digest_list(digests: Mapping[str, str]) -> str:
    """SHA-256 of a list of files: what `digest_tree` gives for the folder that it is of."""
    total = hashlib.sha256()
    for name in sorted(digests, key=lambda name: name.split("/")):
        total.update(name.encode() + b"\0" + bytes.fromhex(digests[name]))
    return total.hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find_artefact(path: Path) -> Path | None:
    """Folder of the artefact that a file or folder belongs to; None for what is in no artefact.

    Raises
    ------
    StoreError
        If it is in an artefact's folder that has lost its list.
    """
    for folder in (path, *path.parents):
        if not _PLACE.fullmatch(folder.name):
            continue
        if (folder / LIST_FILE).is_file():
            return folder
        if (folder.parent.parent / "manifest").is_dir():
            raise StoreError(f"{_describe(folder)} has no list of digests; {_remedy(folder)}")
    return None


def name_place(path: Path) -> str:
    """Name of a file or folder that other content does not have: within an artefact, it is the same in every store."""
    folder = find_artefact(path)
    return str(path.resolve()) if folder is None else str(path.relative_to(folder.parent.parent))


def read_list(folder: Path) -> Mapping[str, str]:
    """Digests of an artefact's files by name, authenticated by the name of its folder.

    It is read once per process, and again when the file changes.

    Raises
    ------
    StoreError
        If the list does not read, or is not the one that the folder is named after.
    """
    try:
        state = os.stat(folder / LIST_FILE)
    except OSError as error:
        raise StoreError(
            f"{_describe(folder)} has no list of digests ({error.strerror}); {_remedy(folder)}"
        ) from error
    return _read_list(folder, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=4096)
def _read_list(folder: Path, *state: int) -> Mapping[str, str]:
    try:
        digests = json.loads((folder / LIST_FILE).read_text("utf-8"))
        whole = all(_DIGEST.fullmatch(digest) for digest in digests.values())
        if whole and digest_list(digests).startswith(folder.name):
            return dict(digests)
        problem = "it is not the one that was published"
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        problem = str(error)
    raise StoreError(
        f"list of digests of {_describe(folder)} is damaged ({problem}); {_remedy(folder)}"
    )


def read_checked(path: Path) -> bytes:
    """Read a file, and check it: see `check_file`; for files that fit in memory.

    Raises
    ------
    StoreError
        If it is a file of an artefact and not what was published.
    OSError
        If it is in no artefact, and cannot be read.
    """
    folder = find_artefact(path)
    if folder is None:
        return path.read_bytes()
    expected = _expect(folder, path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _refuse(folder, path, error.strerror or "unreadable") from error
    if hashlib.sha256(content).hexdigest() != expected:
        raise _refuse(folder, path, "its content has changed")
    return content


def check_file(path: Path) -> None:
    """Check that a file of an artefact is what was published; a file in no artefact is not checked.

    Raises
    ------
    StoreError
        If it is not, naming the file, the artefact and what to do.
    """
    if (folder := find_artefact(path)) is not None:
        _check(folder, path, _expect(folder, path))


def check_files(folder: Path, name: str) -> None:
    """Check every file of a name in a folder and the folders below: see `check_file`.

    Raises
    ------
    StoreError
        If one is lost or changed.
    """
    if (root := find_artefact(folder)) is None:
        return
    prefix = "" if folder == root else folder.relative_to(root).as_posix() + "/"
    for each, expected in read_list(root).items():
        if each.startswith(prefix) and (each == name or each.endswith("/" + name)):
            _check(root, root / each, expected)


def check_artefact(folder: Path) -> None:
    """Check every file of an artefact, before it is handed to somebody.

    Raises
    ------
    StoreError
        If a file was lost, changed or added.
    """
    for name in find_changes(folder):
        raise _refuse(folder, folder / name, "it was lost, changed or added later")


def find_changes(folder: Path) -> list[str]:
    """Files of an artefact that are lost, changed or added since it was published, by relative name, in order.

    Raises
    ------
    StoreError
        If its list is lost or damaged.
    """
    published, found = read_list(folder), digest_files(folder)
    return sorted(
        name for name in published.keys() | found if published.get(name) != found.get(name)
    )


def _expect(folder: Path, path: Path) -> str:
    expected = read_list(folder).get(path.relative_to(folder).as_posix())
    if expected is None:
        raise _refuse(folder, path, "it was added later")
    return expected


def _check(folder: Path, path: Path, expected: str) -> None:
    try:
        found = digest_file(path)
    except OSError as error:
        raise _refuse(folder, path, error.strerror or "unreadable") from error
    if found != expected:
        raise _refuse(folder, path, "its content has changed")


def _refuse(folder: Path, path: Path, problem: str) -> StoreError:
    name = path.relative_to(folder).as_posix()
    return StoreError(
        f"file {name!r} of {_describe(folder)} is not what was published ({problem}); {_remedy(folder)}"
    )


def _describe(folder: Path) -> str:
    return f"artefact {folder.parent.name}/{folder.name}"


def _remedy(folder: Path) -> str:
    place = f"{folder.parent.name}/{folder.name}"
    return f"to rebuild the artefact, delete folder {place} of store {str(folder.parent.parent)!r} and run again"
