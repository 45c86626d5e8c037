"""Access to local and remote file systems, with errors of drivers translated to `SourceError`."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import IO, Any, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pmflib.base.errors import PmfError, SourceError, UnreachableError
from pmflib.base.texts import mask_secrets

T = TypeVar("T")

ANSWER_SECONDS = 60.0
"""Timeout for a remote file system to list files or open one, seconds. Drivers have timeouts from five minutes to
infinity."""

NO_SOURCES = {"dask", "async_wrapper", "generic", "asynclocal"}
"""Protocols of fsspec that wrap other file systems; one of them would start workers."""

_TRANSIENT = (TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_TRANSIENT_NUMBERS = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EIO, errno.ESTALE}
_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}


@contextmanager
def refuse_unreachable(what: str) -> Iterator[None]:
    """Translate the errors of a file system's driver.

    Parameters
    ----------
    what
        What is listed or opened, for the message; secrets are masked.

    Raises
    ------
    UnreachableError
        If a retry may help: a timeout, a lost connection, a busy server.
    SourceError
        Otherwise: an unknown host or file, a refused connection, an invalid address.
    """
    try:
        yield
    except PmfError:
        raise
    except Exception as error:
        said = mask_secrets(f"{what}: cannot be reached or read ({type(error).__name__}: {error})")
        if _is_transient(error):
            raise UnreachableError(f"{said}; try again later") from None
        # the driver's own error may show the address with its secrets
        raise SourceError(
            f"{said}; check the address, and that what it names is there and may be read"
        ) from None


def find_file_system(url: str) -> tuple[Any, str]:
    """File system of a path or an fsspec URL, and the path on it.

    Raises
    ------
    SourceError
        If the file system is unknown, its driver is not installed, or it cannot be reached.
    """
    shown = mask_secrets(url)
    _check_path(shown, url)
    if {part.partition("://")[0] for part in url.split("::")} & NO_SOURCES:
        raise SourceError(
            f"source.path {shown!r}: not a location of files; pass a file, a folder or a URL"
        )
    _choose_driver(url)
    try:
        with refuse_unreachable(f"source.path {shown!r}"):
            try:
                files, path = fsspec.core.url_to_fs(url)
            except (ValueError, ImportError, TypeError) as error:
                raise SourceError(
                    f"source.path {shown!r}: no file system for it ({mask_secrets(str(error))}); "
                    "install the fsspec driver it names, or copy the files here"
                ) from None
    except RecursionError:
        raise SourceError(
            f"source.path {shown[:200]!r}: too many file systems in one URL"
        ) from None
    return files, str(path)


def _choose_driver(url: str) -> None:
    """Use obstore for s3:// if it is installed and s3fs, the default of fsspec, is not."""
    if "s3://" in url and find_spec("s3fs") is None and find_spec("obstore") is not None:
        from obstore.fsspec import register

        register("s3")


def call_within(url: str, work: Callable[[], T]) -> T:
    """Call a function on a file system with a timeout of `ANSWER_SECONDS`, unless it is local.

    Raises
    ------
    UnreachableError
        After the timeout.
    """
    if "://" not in url and "::" not in url:
        return work()
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:
            errors.append(error)

    # a daemon, as it must not keep this process alive
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if errors:
        raise errors[0]
    if not answers:
        raise UnreachableError(
            f"source.path {mask_secrets(url)!r}: no answer in {ANSWER_SECONDS:g} s; try again later"
        )
    return answers[0]


def list_files(files: Any, folder: str) -> list[str]:
    """List all files below a folder.

    Raises
    ------
    OSError
        If a folder cannot be read, or links back to one above it: files would be missed or read twice.
    """
    if isinstance(files, LocalFileSystem):

        def fail(error: OSError) -> None:
            raise error

        above: dict[str, set[tuple[int, int]]] = {folder: set()}
        for here, below, _ in os.walk(folder, onerror=fail, followlinks=True):
            seen = above.pop(here)
            status = os.stat(here)
            mark = (status.st_dev, status.st_ino)
            if mark in seen:
                raise OSError(errno.ELOOP, "a link in it leads back to a folder above it", here)
            above |= {os.path.join(here, name): seen | {mark} for name in below}
    return list(map(str, files.find(folder)))


def measure_file(files: Any, path: str) -> int | None:
    """Size of a file as stored, bytes; None if the file system does not report it.

    Raises
    ------
    SourceError
        If it is a pipe, a device or a socket, which cannot be read twice, or its name is not UTF-8.
    """
    _check_path(path, path)
    if isinstance(files, LocalFileSystem) and not stat.S_ISREG(os.stat(path).st_mode):
        raise SourceError(
            f"{path!r} is not a regular file, but sources are read more than once; copy its content to a file"
        )
    size = files.info(path).get("size")
    return None if size is None else int(size)


def open_file(name: str, url: str) -> IO[bytes]:
    """Open a file for reading its bytes as stored.

    Parameters
    ----------
    name
        Name of the source, for messages.
    url
        Path or fsspec URL.

    Raises
    ------
    SourceError
        If the file cannot be opened.
    """

    def work() -> IO[bytes]:
        files, path = find_file_system(url)
        try:
            return files.open(path, "rb")  # type: ignore[no-any-return]
        except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
            raise SourceError(
                f"{name}: cannot be opened ({type(error).__name__}); "
                "check that it still exists and may be read"
            ) from None

    with refuse_unreachable(name):
        return call_within(url, work)


def _is_transient(error: Exception) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, ConnectionRefusedError):
        return False
    status = getattr(error, "status", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    return (
        isinstance(error, _TRANSIENT)
        or getattr(error, "errno", None) in _TRANSIENT_NUMBERS
        or status in _TRANSIENT_STATUS
    )


def _check_path(shown: str, path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise SourceError(
            f"{shown!r}: the name is not UTF-8, and could be written in no record; rename it"
        ) from None
    if "\0" in path:
        raise SourceError(
            f"source.path {shown[:200]!r} has a NUL byte, which no file name may hold"
        )
