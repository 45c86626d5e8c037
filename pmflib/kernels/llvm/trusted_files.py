"""Files of compiled code that nobody but this user can have written, and what may be read from them.

To load machine code is to run it. What protects is who can write the files: folder and files must be this user's own
and writable by nobody else, which is checked on the open file. Beside the machine code a file describes the types of
its arguments, as a pickle of numba's own classes: it is read by an unpickler that knows these classes and no others,
and so can call nothing else. Whoever can write files as this user (or is the administrator) can run code as this user
anyway, by the same right with which they could change the sources of this package.
"""

from __future__ import annotations

import io
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any

_CLASSES = {
    ("builtins", "object"),
    ("copyreg", "_reconstructor"),
    ("numba.core.funcdesc", "PythonFunctionDescriptor"),
    ("numba.core.types.abstract", "_type_reconstructor"),
    ("numba.core.typing.templates", "Signature"),
}
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find_distrust(path: Path) -> str:
    """Say why a file or folder is not this user's alone; "" if it is."""
    return _find_distrust(path, os.stat(path))


def narrow_folder(path: Path) -> None:
    """Take the permissions of others from a folder of this user."""
    found = os.stat(path)
    if _is_own(found) and found.st_mode & 0o077:
        os.chmod(path, 0o700)


def read_trusted(path: Path) -> bytes:
    """Read a file that is this user's alone.

    Raises
    ------
    OSError
        If it cannot be opened, is a link, or others may have written it.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, "rb") as stream:
        # of the file that is open, so that none can be put in its place between the check and the reading
        if why := _find_distrust(path, os.fstat(descriptor)):
            raise PermissionError(why)
        return stream.read()


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that this user alone can read and write.

    Raises
    ------
    OSError
        If there is a file of that name, or none can be made.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(content)


def load_description(content: bytes) -> Any:
    """Read the description of compiled code: types, names, environments, and machine code as bytes.

    Raises
    ------
    pickle.UnpicklingError
        If it names anything but numba's types and the tuples of kernels.
    """
    return _Unpickler(io.BytesIO(content)).load()


class _Unpickler(pickle.Unpickler):
    """An unpickler for the descriptions that numba makes of compiled functions."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _rebuild_environment
        if (module, name) in _CLASSES:
            return super().find_class(module, name)
        if module.startswith("numba.core.types.") or module in sys.modules:
            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, (_type_class(), tuple)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a description of code")


def _type_class() -> type:
    from numba.core.types import Type

    return Type


def _rebuild_environment(module: str, constants: Any, name: str) -> Any:
    # numba's own would import any module; those of numba are trusted, and not all of them are loaded yet
    if module not in sys.modules and not module.startswith("numba."):
        raise pickle.UnpicklingError(f"module {module} is not loaded")
    from numba.core.environment import _rebuild_env

    return _rebuild_env(module, constants, name)


def _is_own(found: os.stat_result) -> bool:
    # Windows has no such numbers; its folders of users are private
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _find_distrust(path: Path, found: os.stat_result) -> str:
    if not _is_own(found):
        return f"{str(path)!r} belongs to another user ({found.st_uid})"
    if hasattr(os, "geteuid") and found.st_mode & _OTHERS_MAY_WRITE:
        return f"{str(path)!r} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""
