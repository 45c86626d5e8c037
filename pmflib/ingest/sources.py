"""Raw files: finding, naming, opening and fingerprinting them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import posixpath
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import IO, Any, TypeVar

import pyarrow as pa

from pmflib.base.errors import (
    MisrememberedError,
    PmfError,
    SchemaError,
    SourceError,
    UnreachableError,
)
from pmflib.base.texts import mask_secrets
from pmflib.ingest.file_systems import (
    call_within,
    find_file_system,
    list_files,
    measure_file,
    open_file,
    refuse_unreachable,
)
from pmflib.ingest.options import DATA_SUFFIXES
from pmflib.ingest.source_paths import matches_hidden_parts, read_as_text, split_wildcards
from pmflib.store.file_digests import FINGERPRINTS, read_fingerprint, write_fingerprint
from pmflib.store.objects.addresses import open_objects

DIGEST_BYTES = 1 << 20
"""Chunk size for hashing files, bytes."""

PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed files."""
_END_OF_PATH = re.compile(r"[?#]")
FREE_BYTES, MOST_EXPANSION = 1 << 30, 500
"""Limits of compressed files, a few of whose bytes may hold any number: up to ``FREE_BYTES`` of text, or
``MOST_EXPANSION`` times the file. Answers of 1 % each, which hardly any survey has, are 200 times as large as their
entropy."""

DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException)
"""Errors of readers and decompressors on truncated or mislabelled files; an OSError may also be a fault of the disk or
the network: see `spare_transient`."""


@dataclass(frozen=True)
class Source:
    """One raw file.

    Parameters
    ----------
    name
        Base name, or path relative to the folder or glob: the same on every machine.
    url
        Path or fsspec URL; it may contain secrets and is not shown.
    size
        Size as stored, bytes; 1 if the file system does not report it.
    digest
        Expected hexadecimal SHA-256 of its bytes; empty if unknown.
    memory
        Folder or URL of the store with the fingerprint; empty if there is none.
    """

    name: str
    url: str = field(repr=False)
    size: int
    digest: str = ""
    memory: str = field(default="", repr=False, compare=False)

    def check(self, digest: str) -> None:
        """Compare the digest of the bytes that were read with the expected one.

        Raises
        ------
        MisrememberedError
            If they differ although the file has not changed since its fingerprint was written, which is deleted.
        SourceError
            If they differ because the file has changed.
        """
        if self.digest and digest != self.digest:
            if self.memory and recall_digest(self, self.memory) == self.digest:
                open_objects(self.memory).delete([f"{FINGERPRINTS}/{_name_memory(self)}.json"])
                raise MisrememberedError(
                    f"{self.name}: its SHA-256 was remembered as {self.digest[:12]} and is {digest[:12]}, though the "
                    "file has not changed; that is forgotten now, and nothing of the file was published: run again"
                )
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
    with "." or "_". A glob matches hidden names only where its pattern begins with a dot, too; if it ends with a
    wildcard, it gives only files that end as data do. A file whose name is given is always read.

    Parameters
    ----------
    path
        File, folder, glob or fsspec URL, or several of these.
    suffixes
        Suffixes of data files, ignoring case, each optionally followed by .gz, .bz2, .xz or .zst.
    skip_empty
        Whether to skip empty files instead of raising an error.
    skipped
        Receives the names of skipped files and the reasons.

    Returns
    -------
    Sources sorted by name; a file named twice is listed once.

    Raises
    ------
    SourceError
        If a path matches no file, a file is empty, two files would have the same name, or a file system cannot be
        accessed.
    """
    found: dict[str, Source] = {}
    left_out: dict[str, str] = {} if skipped is None else skipped
    for one in (path,) if isinstance(path, str) else path:
        listed = call_within(one, partial(_list, one, tuple(suffixes), left_out))
        for source in listed:
            found.setdefault(source.url, source)
    if not found:
        raise SourceError("source.path is empty; pass a file, a folder, a glob or a URL")
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
                "pass the folder above both, or a glob such as 'folder/*/name.csv'"
            )
    return sources


def digest_source(source: Source) -> str:
    """Hexadecimal SHA-256 of a file's bytes as stored.

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
    """Raise an `UnreachableError` if the file is not at fault, so that the stage is retried."""
    if isinstance(error, OSError) and (
        error.errno is not None or isinstance(error, ConnectionError | TimeoutError)
    ):
        raise UnreachableError(
            mask_secrets(
                f"a source could not be read on ({error}); see to its disk or network, then run again"
            )
        ) from None


def describe_file(source: Source) -> Mapping[str, Any]:
    """Metadata of a file from its file system (size, times, tags); empty if not available."""
    files, path = find_file_system(source.url)
    try:
        properties: Mapping[str, Any] = files.info(path)
    except OSError:
        return {}
    return properties


@contextmanager
def open_source(source: Source, *, unpack: bool = True, check: bool = False) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, decompressing .gz, .bz2, .xz and .zst.

    Parameters
    ----------
    source
        The file.
    unpack
        Whether to decompress it.
    check
        Whether to hash the stored bytes as they are read, and compare the digest at the end.

    Raises
    ------
    SourceError
        If the file cannot be opened, or its digest differs.
    """
    stored = open_file(source.name, source.url)
    with stored:
        if not (check and source.digest):
            yield _unpack(source, stored) if unpack else stored
            return
        hashed = _HashedReader(stored)
        stream = io.BufferedReader(hashed, DIGEST_BYTES)
        yield _unpack(source, stream) if unpack else stream
        # bytes that the decompressor did not read are hashed as well
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


def _unpack(source: Source, stored: IO[bytes]) -> IO[bytes]:
    suffix = posixpath.splitext(source.name)[1].lower()
    if suffix not in PACKED:
        return stored
    if suffix == ".gz":
        unpacked: Any = gzip.GzipFile(fileobj=stored)
    elif suffix == ".bz2":
        unpacked = bz2.BZ2File(stored)
    elif suffix == ".xz":
        unpacked = lzma.LZMAFile(stored)
    else:
        unpacked = pa.CompressedInputStream(stored, "zstd")
    # some file systems do not report sizes: see `Source`
    limited: Any = unpacked if source.size <= 1 else _LimitedReader(source, unpacked)
    return limited  # type: ignore[no-any-return]


class _LimitedReader(io.RawIOBase):
    """Reads a decompressed file up to the limit of its size."""

    def __init__(self, source: Source, stream: IO[bytes]) -> None:
        super().__init__()
        self._source, self._stream = source, stream
        self._left = max(FREE_BYTES, MOST_EXPANSION * source.size)

    def read(self, n_bytes: int = -1) -> bytes:
        content = self._stream.read(self._left + 1 if n_bytes < 0 else n_bytes)
        self._left -= len(content)
        if self._left < 0:
            raise SourceError(
                f"{self._source.name}: {self._source.size:,} bytes hold more than {MOST_EXPANSION} times as many "
                f"(and {FREE_BYTES:,}) bytes of text; if it is yours, deliver it uncompressed or in smaller files"
            )
        return content


def _list(path: str, suffixes: tuple[str, ...], skipped: dict[str, str]) -> list[Source]:
    files, pattern = find_file_system(path)
    chosen, shown = False, mask_secrets(read_as_text(path))
    with refuse_unreachable(f"source.path {path!r}"):
        base, wildcards = split_wildcards(pattern)
        text = read_as_text(pattern)
        if wildcards and not files.exists(text):
            paths = [
                match
                for match in files.glob(pattern)
                if matches_hidden_parts(wildcards, posixpath.relpath(match, base or "."))
                and not files.isdir(match)
            ]
            chosen = not pattern.endswith(("*", "?", "]"))
        elif files.isdir(text):
            base = text
            found = list_files(files, text)
            paths = [p for p in found if not _is_hidden(posixpath.relpath(p, text))]
        else:
            base = posixpath.dirname(text)
            paths = [text] if files.exists(text) else []
            chosen = True
        sizes = {p: measure_file(files, p) for p in paths}
    if not paths:
        raise SourceError(
            f"source.path {shown!r} matches no file; check the spelling, and that a relative path starts from the "
            "configuration file"
        )
    sources = []
    for p in paths:
        name = _name_file(p, base)
        if chosen or _is_data(name, suffixes):
            # a file of unknown size does not count as empty
            size = sizes[p]
            sources.append(Source(name, _url(files, p), 1 if size is None else size))
        else:
            skipped[name] = "its name does not end as data do: see source.suffixes"
    if not sources:
        raise SourceError(
            f"source.path {shown!r} matches no data: names of {len(paths)} files, as {paths[0]!r}, end "
            f"with none of {list(suffixes)}; name a file, or set source.suffixes"
        )
    return sources


def _name_file(path: str, base: str) -> str:
    """Name of a file below a folder; what follows the path of a URL may be a secret, and changes."""
    start = _END_OF_PATH.search(path) if "://" in path else None
    end = _END_OF_PATH.search(masked := mask_secrets(path))
    query = masked[end.start() :] if start and end else ""
    path = path[: start.start()] if start else path
    return mask_secrets(posixpath.relpath(path, base) if base else path) + query


def _is_data(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a name ends with one of some suffixes, compressed or not."""
    name = name.lower()
    stem, packed = posixpath.splitext(name)
    return (stem if packed in PACKED else name).endswith(tuple(s.lower() for s in suffixes))


def _url(files: Any, path: str) -> str:
    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    return path if "file" in protocols else str(files.unstrip_protocol(path))


def _is_hidden(relative: str) -> bool:
    return any(part.startswith((".", "_")) for part in relative.split("/"))


T = TypeVar("T")


def attempt(item: Any, *shared: Any, build: Callable[..., T]) -> T | PmfError:
    """Return the result of a step on one file, or its error, so that all errors can be reported together."""
    try:
        return build(item, *shared)
    except (SourceError, SchemaError) as error:
        return error


def keep_readable(
    sources: Sequence[Source], results: Sequence[T | PmfError], rule: str, skipped: dict[str, str]
) -> list[tuple[Source, T]]:
    """Select the files that a step could use.

    Parameters
    ----------
    sources, results
        The files, and the result of `attempt` for each.
    rule
        Whether to "skip" unreadable files or to "stop".
    skipped
        Receives the names of skipped files and the reasons.

    Returns
    -------
    Files with their results.

    Raises
    ------
    SourceError, SchemaError
        If files failed that are not skipped, or none is left.
    """
    kept: list[tuple[Source, T]] = []
    errors: list[PmfError] = []
    for source, result in zip(sources, results, strict=True):
        if not isinstance(result, PmfError):
            kept.append((source, result))
        elif rule == "skip" and isinstance(result, SourceError):
            skipped[source.name] = str(result)
        else:
            errors.append(result)
    if not kept and not errors:
        errors = [SourceError(reason) for reason in skipped.values()]
    if len(errors) > 1:
        listed = "\n".join(f"- {error}" for error in errors)
        raise type(errors[0])(f"{len(errors)} of {len(sources)} files cannot be used:\n{listed}")
    if errors:
        raise errors[0]
    return kept


MARGIN = 2.0
"""Least age of a file, seconds, for its fingerprint to be kept: file systems round times to up to two seconds, within
which a change would not be noticed."""
LOCAL_MARKS = ("size", "mtime", "created", "ino")
"""Metadata that change with a local file: size, times of the last change of content and state, inode."""
REMOTE_MARKS = (
    *("ETag", "etag", "e_tag", "VersionId", "version_id", "version"),
    *("generation", "md5Hash", "Content-MD5"),
)
"""Metadata that change with a remote file, besides its size; files without any are always hashed."""


def find_digest(source: Source, root: str, rehash: bool = False) -> str:
    """SHA-256 of a raw file, which is read only if it may have changed since it was last hashed.

    Parameters
    ----------
    source
        The file.
    root
        Folder or URL of the store with fingerprints.
    rehash
        Whether to read the file in any case.

    Raises
    ------
    SourceError
        If the file cannot be opened.
    """
    if (known := recall_digest(source, root, rehash)) is not None:
        return known
    marks = take_marks(source)
    started = time.time()
    digest = digest_source(source)
    # a change during or just before reading might not show in the marks
    changed = marks.get("mtime")
    quiet = not isinstance(changed, int | float) or changed < started - MARGIN
    if marks and quiet and take_marks(source) == marks:
        write_fingerprint(open_objects(root), _name_memory(source), marks, digest)
    return digest


def recall_digest(source: Source, root: str, rehash: bool = False) -> str | None:
    """Digest of an unchanged raw file from its fingerprint; None if it must be read. See `find_digest`."""
    marks = {} if rehash else take_marks(source)
    return _recall(source, root, marks) if marks else None


def identify_source(source: Source, root: str) -> Source:
    """Add the digest to a source: see `find_digest`."""
    return replace(source, digest=find_digest(source, root), memory=root)


def _name_memory(source: Source) -> str:
    """Name of the fingerprint of a raw file."""
    return hashlib.sha256(source.url.encode("utf-8", "surrogateescape")).hexdigest()


def take_marks(source: Source) -> dict[str, str | float | None]:
    """Metadata that change with a file; empty if a change could go unnoticed."""
    properties = describe_file(source)
    if all(isinstance(properties.get(name), int | float) for name in LOCAL_MARKS):
        return {name: properties[name] for name in LOCAL_MARKS}
    found = {name: str(properties[name]) for name in REMOTE_MARKS if properties.get(name)}
    return {"size": properties.get("size"), **found} if found else {}


def _recall(source: Source, root: str, marks: Mapping[str, object]) -> str | None:
    """Digest from a fingerprint with the same marks; None if there is none."""
    try:
        known, digest = read_fingerprint(open_objects(root), _name_memory(source))
        return digest if known == marks else None
    except PmfError:
        raise
    except (OSError, ValueError):
        return None
