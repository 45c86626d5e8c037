"""Integrity of stored data: digests of an artefact's files, JSON with a checksum, fingerprints of raw files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pmflib.base.errors import StoreError
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import from_json
from pmflib.store.objects.interface import (
    DROPPED_FILE,
    LIST_FILE,
    FileCache,
    Objects,
    is_inner,
)
from pmflib.store.objects.local_files import find_cache
from pmflib.store.objects.local_folder import digest_file, digest_files

FOLDER_DIGITS = 24
"""Number of digits of an artefact's digest in the name of its folder."""
_FOLDER = re.compile(rf"[0-9a-f]{{{FOLDER_DIGITS}}}")
Digest: TypeAlias = Annotated[str, re.compile(r"[0-9a-f]{64}")]
"""SHA-256 in hexadecimal."""


def write_list(folder: Path) -> str:
    """Write the digest list of a complete folder; return the digest of the folder: see `digest_tree`."""
    digests = digest_files(folder)
    text = json.dumps(digests, indent=0, sort_keys=True, ensure_ascii=False)
    (folder / LIST_FILE).write_text(text, "utf-8")
    return digest_list(digests)


def digest_tree(folder: Path) -> str:
    """SHA-256 of a folder: of the relative names and digests of its files, sorted by name."""
    return digest_list(digest_files(folder))


def digest_list(digests: Mapping[str, str]) -> str:
    """SHA-256 of a digest list, equal to `digest_tree` of its folder."""
    total = hashlib.sha256()
    for name in sorted(digests, key=lambda name: name.split("/")):
        total.update(name.encode() + b"\0" + bytes.fromhex(digests[name]))
    return total.hexdigest()


def find_artefact(path: Path) -> Path | None:
    """Folder of the artefact that a file or folder belongs to; None if it belongs to none.

    Raises
    ------
    StoreError
        If the artefact has lost its digest list.
    """
    for folder in (path, *path.parents):
        if not _FOLDER.fullmatch(folder.name):
            continue
        if (folder / LIST_FILE).is_file():
            return folder
        cache = find_cache(folder)
        if cache is not None and cache.fetch_list(folder):
            return folder
        if (folder.parent.parent / "manifest").is_dir():
            raise StoreError(f"{_describe(folder)} has no list of digests; {_remedy(folder)}")
    return None


def name_content(path: Path) -> str:
    """Name that identifies the content of a file or folder; within an artefact, it is the same in every store."""
    folder = find_artefact(path)
    return str(path.resolve()) if folder is None else str(path.relative_to(folder.parent.parent))


def read_list(folder: Path) -> Mapping[str, str]:
    """Read the digests of an artefact's files by name, authenticated by the name of its folder.

    The list is cached per process until the file changes.

    Raises
    ------
    StoreError
        If the list is damaged or does not match the name of the folder.
    """
    if (cache := find_cache(folder)) is not None:
        return _read_cached_list(cache, folder)
    return _read_list_here(folder)


def _read_cached_list(cache: FileCache, folder: Path) -> Mapping[str, str]:
    """Read the list of a cached artefact; a damaged one is dropped and fetched again, once."""
    for is_last in (False, True):
        cache.fetch_list(folder)
        try:
            return _read_list_here(folder)
        except StoreError:
            (folder / LIST_FILE).unlink(missing_ok=True)
            if is_last:
                raise
    raise AssertionError


def _read_list_here(folder: Path) -> Mapping[str, str]:
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
        return parse_list((folder / LIST_FILE).read_bytes(), folder.name)
    except (OSError, ValueError) as error:
        raise StoreError(
            f"list of digests of {_describe(folder)} is damaged ({error}); {_remedy(folder)}"
        ) from error


def parse_list(content: bytes, digest: str) -> dict[str, str]:
    """Parse and authenticate the digest list of an artefact.

    Parameters
    ----------
    content
        Content of the list, as written by `write_list`.
    digest
        Digest of the artefact, or its first digits.

    Returns
    -------
    SHA-256 of each file by relative name.

    Raises
    ------
    ValueError
        If it cannot be parsed, does not have this digest, or names a file outside its folder.
    """
    digests = from_json(dict[str, Digest], parse_json(content))
    if not digest_list(digests).startswith(digest) or not all(map(is_inner, digests)):
        raise ValueError("it is not the published list")
    return digests


def fetch_files(folder: Path, names: Iterable[str]) -> None:
    """Fetch files of an artefact from a bucket, in parallel, unless they are cached; do nothing for a local store.

    Raises
    ------
    StoreError
        If a file is lost or damaged in the bucket.
    """
    if (cache := find_cache(folder)) is not None:
        cache.fetch_files(folder, read_list(folder), names)


def fetch_all(path: Path, names: Iterable[str] = (".",)) -> Path:
    """Fetch all files of an artefact at or below some names relative to a folder of it: see `fetch_files`.

    Returns
    -------
    The folder.
    """
    folder = find_artefact(path)
    if folder is not None and find_cache(folder) is not None:
        names_below = [(path / name).relative_to(folder).as_posix() for name in names]
        below = tuple("" if location == "." else f"{location}/" for location in names_below)
        fetch_files(folder, [each for each in read_list(folder) if f"{each}/".startswith(below)])
    return path


def holds(path: Path) -> bool:
    """Whether a file or folder exists, locally or in the bucket of its artefact.

    It does not if the artefact does not exist or has lost its digest list.
    """
    try:
        folder = find_artefact(path)
    except StoreError:
        return False
    if folder is None or find_cache(folder) is None:
        return path.exists()
    name = path.relative_to(folder).as_posix()
    return name == "." or any(f"{each}/".startswith(f"{name}/") for each in read_list(folder))


def read_checked(path: Path) -> bytes:
    """Read a file that fits in memory, and check it: see `check_file`.

    Raises
    ------
    StoreError
        If it belongs to an artefact and has changed since it was published.
    OSError
        If it belongs to no artefact and cannot be read.
    """
    folder = find_artefact(path)
    if folder is None:
        return path.read_bytes()
    expected = _expect(folder, path)
    content = b""

    def digest() -> str:
        nonlocal content
        content = path.read_bytes()
        return hashlib.sha256(content).hexdigest()

    _compare(folder, path, expected, digest)
    return content


def check_file(path: Path) -> None:
    """Check that a file of an artefact is unchanged; other files are not checked.

    Raises
    ------
    StoreError
        If it has changed or is lost, with the file, the artefact and a remedy.
    """
    if (folder := find_artefact(path)) is not None:
        _check(folder, path, _expect(folder, path))


def check_files(folder: Path, name: str) -> None:
    """Check every file with a given name in a folder or below it: see `check_file`.

    Raises
    ------
    StoreError
        If a file is lost or has changed.
    """
    if (root := find_artefact(folder)) is None:
        return
    prefix = "" if folder == root else folder.relative_to(root).as_posix() + "/"
    requested = {
        each: expected
        for each, expected in read_list(root).items()
        if each.startswith(prefix) and (each == name or each.endswith("/" + name))
    }
    fetch_files(root, requested)
    for each, expected in requested.items():
        _check(root, root / each, expected)


def check_artefact(folder: Path) -> None:
    """Check every file of an artefact.

    Raises
    ------
    StoreError
        If a file was lost, changed or added.
    """
    for name in find_changes(folder):
        raise _refuse(folder, folder / name, "it was lost, changed or added later")


def find_changes(folder: Path) -> list[str]:
    """List the files of an artefact that were lost, changed or added since it was published, by relative name.

    A link counts as a change, as nothing protects its target. For a bucket, the cached files are compared after missing
    ones are fetched.

    Raises
    ------
    StoreError
        If the digest list is lost or damaged.
    """
    changed = compare_files(folder, read_list(folder), digest_files(fetch_all(folder)))
    links = (path for path in folder.rglob("*") if path.is_symlink())
    return sorted(changed | {path.relative_to(folder).as_posix() for path in links})


def compare_files(folder: Path, published: Mapping[str, str], found: Mapping[str, str]) -> set[str]:
    """Names whose digests differ, but for those of files that a collection has dropped."""
    changed = {name for name in published.keys() | found if published.get(name) != found.get(name)}
    return changed - {DROPPED_FILE} - ({*list_dropped(folder)} - found.keys())


def list_dropped(folder: Path) -> list[str]:
    """Names of the files of an artefact that a collection has dropped: see `collect`."""
    path = folder / DROPPED_FILE
    return path.read_text("utf-8").splitlines() if path.is_file() else []


def _expect(folder: Path, path: Path) -> str:
    expected = read_list(folder).get(path.relative_to(folder).as_posix())
    if expected is None:
        raise _refuse(folder, path, "it was added later")
    return expected


def _check(folder: Path, path: Path, expected: str) -> None:
    _compare(folder, path, expected, lambda: digest_file(path))


def _compare(folder: Path, path: Path, expected: str, digest: Callable[[], str]) -> None:
    """Compare the digest of a file; a damaged file in a cache is fetched again, once."""
    cache, name = find_cache(folder), path.relative_to(folder).as_posix()
    for is_last in (cache is None, True):
        try:
            if cache is not None:
                cache.fetch_files(folder, {name: expected}, [name])
            if digest() == expected:
                return
            problem = _refuse(folder, path, "its content has changed")
        except OSError as error:
            problem = _refuse(folder, path, error.strerror or "unreadable")
            problem.__cause__ = error
        if is_last:
            raise problem
        path.unlink(missing_ok=True)


def _refuse(folder: Path, path: Path, problem: str) -> StoreError:
    name = path.relative_to(folder).as_posix()
    return StoreError(
        f"file {name!r} of {_describe(folder)} is not what was published ({problem}); {_remedy(folder)}"
    )


def _describe(folder: Path) -> str:
    return f"artefact {folder.parent.name}/{folder.name}"


def _remedy(folder: Path) -> str:
    location, cache = f"{folder.parent.name}/{folder.name}", find_cache(folder)
    store = str(folder.parent.parent) if cache is None else cache.address
    return f"to rebuild the artefact, delete folder {location} of store {store!r} and run again"


CHECKSUM = "checksum"
"""Key of the checksum: SHA-256 of the other keys and values in canonical form."""


def seal(content: Mapping[str, Any]) -> bytes:
    """Serialise an object of plain JSON types, with a checksum."""
    # a round trip turns tuples into lists and keys into text
    plain = json.loads(json.dumps(content))
    sealed = {**plain, CHECKSUM: _sum(plain)}
    return json.dumps(sealed, indent=1, sort_keys=True, ensure_ascii=False).encode()


def unseal(text: bytes) -> dict[str, Any]:
    """Parse the output of `seal`, and remove the checksum.

    Raises
    ------
    ValueError
        If it cannot be parsed or was edited.
    """
    content = parse_json(text)
    if not isinstance(content, dict) or CHECKSUM not in content:
        raise ValueError("it is not an object with a checksum")
    checksum = content.pop(CHECKSUM)
    if checksum != _sum(content):
        raise ValueError("it has been edited")
    return content


def _sum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


FINGERPRINTS = "fingerprints"
"""Folder of a store with a JSON file for each raw file, named by the digest of its URL."""


@dataclass(frozen=True)
class Fingerprint:
    """Digest of a raw file and the metadata it had, so that an unchanged file is not read again.

    Parameters
    ----------
    file
        Digest of the file's URL.
    marks
        Metadata that change with the file, plain JSON types.
    digest
        SHA-256 of its bytes.
    """

    file: str
    marks: dict[str, object]
    digest: Digest


def write_fingerprint(
    objects: Objects, name: str, marks: Mapping[str, object], digest: str
) -> None:
    """Write the fingerprint of a raw file under the digest of its URL, replacing an earlier one."""
    content = Fingerprint(name, dict(marks), digest)
    objects.put(f"{FINGERPRINTS}/{name}.json", seal(asdict(content)))


def read_fingerprint(objects: Objects, name: str) -> tuple[dict[str, object], str]:
    """Read the marks and digest of a raw file.

    Raises
    ------
    OSError
        If there is no fingerprint, or it cannot be read.
    ValueError
        If it was edited, or belongs to another file.
    """
    location = f"{FINGERPRINTS}/{name}.json"
    if objects.lacks(location):
        raise FileNotFoundError(location)
    found = from_json(Fingerprint, unseal(objects.read(location)[0]))
    if found.file != name:
        raise ValueError("it was written for another file")
    return found.marks, found.digest
