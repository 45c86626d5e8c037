"""Objects of a store's bucket tried out: what its server must do for several writers, and its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pmflib.errors import PmfError
from pmflib.objects.addresses import open_objects
from pmflib.objects.interface import ObjectChangedError, Objects


def write_object(address: str, name: str) -> float:
    """Create a probe object, which holds its own name.

    Returns
    -------
    How far the clock of the server is ahead of that of this process, seconds.

    Raises
    ------
    OSError
        If it cannot be created, or there is one of that name.
    """
    with _use(address) as objects:
        objects.create(name, name.encode())
        before = time.time()
        clock = objects.read_clock()
        return clock - (before + time.time()) / 2


def read_object(address: str, name: str) -> str:
    """Read a probe object that another process has created; say why it cannot be read, or "" where it can."""
    try:
        with _use(address) as objects:
            content, _ = objects.read(name)
    except FileNotFoundError:
        return "it is not there: this is another bucket under the same address"
    except OSError as error:
        return error.strerror or str(error)
    return "" if content == name.encode() else "it has another content"


def remove_object(address: str, name: str) -> None:
    """Delete a probe object, if it is there and can be deleted."""
    with suppress(OSError), _use(address) as objects:
        objects.delete([name])


def find_lacking_conditions(address: str, name: str) -> list[str]:
    """Try what publication rests on in a bucket: an object is created once, and replaced only by who knows it.

    Parameters
    ----------
    address
        Address of the store.
    name
        Name of a probe object that is there.

    Returns
    -------
    What the server does not do as it must; nothing where all is well.

    Raises
    ------
    OSError
        If the server does not answer, or refuses.
    """
    lacking = []
    with _use(address) as objects:
        try:
            objects.create(name, b"second")
            lacking.append("an object is created over one that is there (If-None-Match)")
        except FileExistsError:
            pass
        _, tag = objects.read(name)
        objects.replace(name, b"new", tag)
        try:
            objects.replace(name, b"newer", tag)
            lacking.append("an object that has changed is replaced all the same (If-Match)")
        except ObjectChangedError:
            pass
    return lacking


@contextmanager
def _use(address: str) -> Iterator[Objects]:
    """Open a bucket; what it refuses is an error of the system, as for a folder."""
    try:
        yield open_objects(address)
    except PmfError as error:
        raise OSError(str(error)) from None
