"""Raw files: finding them, naming them, opening them, wherever they are."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import posixpath
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any

import pyarrow as pa

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
        Bytes as stored, packed or not; 0 where the file system does not report it.
    """

    name: str
    url: str = field(repr=False)
    size: int


def find_sources(path: str | tuple[str, ...]) -> list[Source]:
    """List the files of one path or several.

    A folder gives every file below it, except where its name, or that of a folder between, starts with "." or "_".

    Parameters
    ----------
    path
        File, folder, glob or fsspec URL, or several of these.

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
    for one in (path,) if isinstance(path, str) else path:
        for source in _find(one):
            found.setdefault(source.url, source)
    if not found:
        raise SourceError("source.path is empty; give a file, a folder, a glob or a URL")
    sources = sorted(found.values(), key=lambda source: source.name)
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


@contextmanager
def open_source(source: Source, *, unpack: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes; .gz, .bz2, .xz and .zst are unpacked on the way.

    Raises
    ------
    SourceError
        If the file cannot be opened.
    """
    stored = open_file(source.name, source.url)
    with stored:
        yield _unpack(source.name, stored) if unpack else stored


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


def _find(path: str) -> list[Source]:
    return call_within(path, lambda: _list(path))


def _list(path: str) -> list[Source]:
    files, place = find_file_system(path)
    with refuse_unreachable(f"source.path {path!r}"):
        if re.search(r"[*?\[]", place) and not files.exists(place):
            base = posixpath.dirname(re.split(r"[*?\[]", place)[0])
            places = [match for match in files.glob(place) if not files.isdir(match)]
        elif files.isdir(place):
            base = place
            found = list_files(files, place)
            places = [p for p in found if not _is_hidden(posixpath.relpath(p, place))]
        else:
            base = posixpath.dirname(place)
            places = [place] if files.exists(place) else []
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
        if sizes[p] == 0:
            raise SourceError(
                f"{name}: the file has no byte; copy it again or take it out of source.path"
            )
        sources.append(Source(name, _url(files, p), sizes[p] or 0))
    return sources


def _url(files: Any, place: str) -> str:
    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    return place if "file" in protocols else str(files.unstrip_protocol(place))


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative.split("/"))
