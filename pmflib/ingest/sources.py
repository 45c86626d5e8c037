"""Raw files: finding them, naming them, opening them, wherever they are."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import posixpath
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any

import pyarrow as pa

from pmflib.config.data_sections import DATA_SUFFIXES
from pmflib.errors import SourceError, UnreachableError
from pmflib.ingest.file_systems import (
    call_within,
    find_file_system,
    list_files,
    measure_file,
    open_file,
    refuse_unreachable,
)
from pmflib.ingest.source_urls import mask_secrets

DIGEST_BYTES = 1 << 20
"""Bytes of a file that are hashed at a time."""

PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Ends of the names of files that are unpacked on the way."""

DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException)
"""Errors of readers and unpackers on a file that is cut short or not what its name says; an OSError may
also be the fault of the disk or the network: see `spare_transient`."""


@dataclass(frozen=True)
class Source:
    """One raw file.

    Parameters
    ----------
    name
        Base name, or path below the folder or glob it was found by: the same on every machine.
    url
        Path or fsspec URL to open it by; it may hold secrets, and is not shown.
    size
        Bytes as stored, packed or not; 1 where the file system does not report it.
    digest
        SHA-256 that its bytes must have, in hexadecimal; empty where that is not known.
    """

    name: str
    url: str = field(repr=False)
    size: int
    digest: str = ""

    def check(self, digest: str) -> None:
        """Compare the digest of the bytes that were read with the one that they must have.

        Raises
        ------
        SourceError
            If they differ.
        """
        if self.digest and digest != self.digest:
            raise SourceError(
                f"{self.name}: changed while it was read: its SHA-256 was {self.digest[:12]} before and {digest[:12]} "
                "after, and nothing of it was published; run again when the file is complete (--rehash, if it is)"
            )


def find_sources(
    path: str | tuple[str, ...],
    suffixes: Sequence[str] = DATA_SUFFIXES,
    *,
    skip_empty: bool = False,
    skipped: dict[str, str] | None = None,
) -> list[Source]:
    """List the files of one path or several.

    A folder gives every file below it that ends as data do, except where its name, or that of a folder between, starts
    with "." or "_"; so does a glob that ends with a wildcard. A file whose name or suffix is given is always taken.

    Parameters
    ----------
    path
        File, folder, glob or fsspec URL, or several of these.
    suffixes
        Ends of the names of data, each also with .gz, .bz2, .xz or .zst after it; capitals count as small letters.
    skip_empty
        Whether files without a byte are left out, rather than an error.
    skipped
        Gets the names of the files that are left out, and why.

    Returns
    -------
    Sources sorted by name; a file named twice is listed once.

    Raises
    ------
    SourceError
        If a path matches nothing, a file has no byte, two files would have the same name, or the file system
        cannot be opened.
    """
    found: dict[str, Source] = {}
    left_out: dict[str, str] = {} if skipped is None else skipped
    for one in (path,) if isinstance(path, str) else path:
        for source in _find(one, tuple(suffixes), left_out):
            found.setdefault(source.url, source)
    if not found:
        raise SourceError("source.path is empty; give a file, a folder, a glob or a URL")
    empty = sorted(source.name for source in found.values() if source.size == 0)
    if empty and not skip_empty:
        raise SourceError(
            f"{', '.join(empty)}: the file has no byte; copy it again or take it out of source.path, or set "
            "source.on_empty_file to 'skip'"
        )
    left_out |= dict.fromkeys(empty, "it has no byte")
    sources = sorted((s for s in found.values() if s.size), key=lambda source: source.name)
    if not sources:
        raise SourceError(f"{', '.join(empty)}: no file of source.path has a byte; copy them again")
    for before, after in pairwise(sources):
        if before.name == after.name:
            raise SourceError(
                f"two files are named {after.name!r}; names must differ: "
                "give the folder above both, or a glob such as 'folder/*/name.csv'"
            )
    return sources


def digest_source(source: Source) -> str:
    """SHA-256 of a file's bytes as stored, in hexadecimal.

    Raises
    ------
    SourceError
        If the file cannot be opened.
    """
    digest = hashlib.sha256()
    with open_source(source, unpack=False) as stream:
        while chunk := stream.read(DIGEST_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def spare_transient(error: BaseException) -> None:
    """Raise an `UnreachableError` where the file is not at fault, so that the stage is tried again."""
    if isinstance(error, OSError) and (
        error.errno is not None or isinstance(error, ConnectionError | TimeoutError)
    ):
        raise UnreachableError(
            mask_secrets(
                f"a source could not be read on ({error}); see to its disk or network, then run again"
            )
        ) from None


def describe_file(source: Source) -> dict[str, Any]:
    """What a file system says of a file: size, times, tags, whatever it has; nothing if it cannot be asked."""
    files, place = find_file_system(source.url)
    try:
        facts: dict[str, Any] = files.info(place)
    except OSError:
        return {}
    return facts


@contextmanager
def open_source(source: Source, *, unpack: bool = True, check: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes; .gz, .bz2, .xz and .zst are unpacked on the way.

    Parameters
    ----------
    source
        The file.
    unpack
        Whether to unpack it.
    check
        Whether to hash the stored bytes as they are read, one after the other, and to compare them with the digest of
        the source at the end.

    Raises
    ------
    SourceError
        If the file cannot be opened, or its bytes are not those of its digest.
    """
    stored = open_file(source.name, source.url)
    with stored:
        if not (check and source.digest):
            yield _unpack(source.name, stored) if unpack else stored
            return
        hashed = _HashedReader(stored)
        stream = io.BufferedReader(hashed, DIGEST_BYTES)
        yield _unpack(source.name, stream) if unpack else stream
        # what an unpacker did not need belongs to the file as well
        while stream.read(DIGEST_BYTES):
            pass
        source.check(hashed.digest.hexdigest())


class _HashedReader(io.RawIOBase):
    """Hashes the bytes of a stream as they are read."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self.digest = hashlib.sha256()
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self.digest.update(content)
        return len(content)


def _unpack(name: str, stored: IO[bytes]) -> IO[bytes]:
    suffix = posixpath.splitext(name)[1].lower()
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=stored)  # type: ignore[return-value]
    if suffix == ".bz2":
        return bz2.BZ2File(stored)
    if suffix == ".xz":
        return lzma.LZMAFile(stored)
    if suffix == ".zst":
        return pa.CompressedInputStream(stored, "zstd")  # type: ignore[no-any-return]
    return stored


def _find(path: str, suffixes: tuple[str, ...], skipped: dict[str, str]) -> list[Source]:
    return call_within(path, lambda: _list(path, suffixes, skipped))


def _list(path: str, suffixes: tuple[str, ...], skipped: dict[str, str]) -> list[Source]:
    files, place = find_file_system(path)
    chosen = False
    with refuse_unreachable(f"source.path {path!r}"):
        if re.search(r"[*?\[]", place) and not files.exists(place):
            base = posixpath.dirname(re.split(r"[*?\[]", place)[0])
            places = [match for match in files.glob(place) if not files.isdir(match)]
            chosen = not place.endswith(("*", "?", "]"))
        elif files.isdir(place):
            base = place
            found = list_files(files, place)
            places = [p for p in found if not _is_hidden(posixpath.relpath(p, place))]
        else:
            base = posixpath.dirname(place)
            places = [place] if files.exists(place) else []
            chosen = True
        sizes = {p: measure_file(files, p) for p in places}
    if not places:
        raise SourceError(
            f"source.path {mask_secrets(path)!r} matches no file; check the spelling, and that a relative path "
            "starts from the configuration file"
        )
    sources = []
    for p in places:
        # a signature in a URL is no part of the name: it is a secret, and another one every night
        name = mask_secrets(posixpath.relpath(p, base) if base else p)
        if chosen or _is_data(name, suffixes):
            # a size that is not known is no reason to take a file for empty
            size = sizes[p]
            sources.append(Source(name, _url(files, p), 1 if size is None else size))
        else:
            skipped[name] = "its name does not end as data do: see source.suffixes"
    if not sources:
        raise SourceError(
            f"source.path {mask_secrets(path)!r} matches no data: names of {len(places)} files, as {places[0]!r}, end "
            f"with none of {list(suffixes)}; name a file, or set source.suffixes"
        )
    return sources


def _is_data(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends with one of some suffixes, packed or not."""
    name = name.lower()
    stem, packed = posixpath.splitext(name)
    return (stem if packed in PACKED else name).endswith(tuple(s.lower() for s in suffixes))


def _url(files: Any, place: str) -> str:
    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    return place if "file" in protocols else str(files.unstrip_protocol(place))


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative.split("/"))
