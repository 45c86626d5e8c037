"""Compiled kernels cached on disk, in files that only this user can write.

Numba's own cache is not used, for three reasons. Its index is read, changed and written without a lock, so if two
processes compile at once, one may later load code for the other's signature. It checks only the source file of a
kernel, not the sources of kernels and vector code compiled into it. And it cannot find code made by a factory, because
its key contains closure cells, which differ between processes. Here the file name contains everything the code depends
on: function, shape, signature, processor, Python, numba, and the sources of all kernels. A file contains its own digest
and is written atomically; a file that cannot be read is compiled again.

Loading machine code means running it, so security depends on who can write the files: folder and files must belong to
this user and be writable by nobody else, which is checked on the open file. The types of arguments are stored as a
pickle of numba classes and read by an unpickler that accepts only these classes, and therefore cannot call anything
else. Anyone who can write files as this user (or as administrator) can run code as this user anyway, for example by
changing the sources of this package.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import stat
import sys
import time
import uuid
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
import numpy as np
from llvmlite import binding

WAIT_SECONDS = 120.0
"""Maximum time that a process waits for code that another compiles; the slowest kernel takes half a minute."""
VECTORS = ("avx512f", "avx2", "avx", "neon", "sse4.2")
"""Vector instruction sets, widest first, by their LLVM names."""


def describe_processor() -> tuple[str, str]:
    """Return the name of this machine's processor and its widest instruction set in ``VECTORS``, if any."""
    features = binding.get_host_cpu_features()
    return binding.get_host_cpu_name(), next((each for each in VECTORS if features.get(each)), "")


_CLASSES = {
    ("builtins", "object"),
    ("copyreg", "_reconstructor"),
    ("numba.core.funcdesc", "PythonFunctionDescriptor"),
    ("numba.core.types.abstract", "_type_reconstructor"),
    ("numba.core.typing.templates", "Signature"),
}
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def find_distrust(path: Path) -> str:
    """Return why a file or folder is not private to this user, or "" if it is."""
    return _find_distrust(path, os.stat(path))


def narrow_folder(path: Path) -> None:
    """Remove the permissions of others from a folder of this user."""
    found = os.stat(path)
    if _is_own(found) and found.st_mode & 0o077:
        os.chmod(path, 0o700)


def read_trusted(path: Path) -> bytes:
    """Read a file that is private to this user.

    Raises
    ------
    OSError
        If it cannot be opened, is a link, or can be written by others.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, "rb") as stream:
        # check the open file, so that it cannot be replaced between the check and reading
        if why := _find_distrust(path, os.fstat(descriptor)):
            raise PermissionError(why)
        return stream.read()


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only this user can read and write.

    Raises
    ------
    OSError
        If a file of that name exists, or the file cannot be created.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(content)


def load_description(content: bytes) -> Any:
    """Load the description of compiled code: types, names, environments, and machine code as bytes.

    Raises
    ------
    pickle.UnpicklingError
        If it refers to anything other than numba's types and the tuples of kernels.
    """
    return _Unpickler(io.BytesIO(content)).load()


class _Unpickler(pickle.Unpickler):
    """Restricted unpickler for numba's descriptions of compiled functions."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _rebuild_environment
        if (module, name) in _CLASSES:
            return super().find_class(module, name)
        if module.startswith("numba.core.types.") or module in sys.modules:
            from numba.core.types import Type

            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, (Type, tuple)):
                return found
        raise pickle.UnpicklingError(
            f"{module}.{name} is not allowed in a description of compiled code"
        )


def _rebuild_environment(module: str, constants: Any, name: str) -> Any:
    # numba's own unpickler would import any module; numba's modules are trusted, and may not all be loaded yet
    if module not in sys.modules and not module.startswith("numba."):
        raise pickle.UnpicklingError(f"module {module} is not loaded")
    from numba.core.environment import _rebuild_env

    return _rebuild_env(module, constants, name)


def _is_own(found: os.stat_result) -> bool:
    # Windows has no user ids of this kind; its user folders are private
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _find_distrust(path: Path, found: os.stat_result) -> str:
    if not _is_own(found):
        return f"{str(path)!r} belongs to another user ({found.st_uid})"
    if hasattr(os, "geteuid") and found.st_mode & _OTHERS_MAY_WRITE:
        return f"{str(path)!r} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable for the folder of compiled code, in place of those tried by `find_folder`."""

_PACKAGE = Path(__file__).parents[2]
_OWN_FOLDER = Path(__file__).parent / "__pycache__"
_DIGEST_BYTES = 32


def compile_kernel(*shape: int, saved: bool = True, **options: Any) -> Callable[[Any], Any]:
    """Compile a kernel on its first call, or load code compiled by another process.

    Parameters
    ----------
    shape
        Arguments of the factory that makes the kernel, if any. They become part of its name; otherwise two kernels with
        the same name in one process, one of them loaded from disk, could be confused.
    saved
        Whether to store the code; for kernels called from Python. Such a kernel may call only other kernels and
        intrinsics of this package.
    options
        Options for numba's ``njit``; ``nogil`` is always set.

    Returns
    -------
    A decorator. If no folder is writable, each process compiles for itself.
    """

    def decorate(function: Any) -> Any:
        function.__qualname__ = "_".join([function.__qualname__, *map(str, shape)])
        kernel = numba.njit(**{"nogil": True, **options})(function)
        if saved:
            name = function.__qualname__.replace("<locals>.", "")
            kernel._cache = _CodeFiles(f"{function.__module__}.{name}")
        return kernel

    return decorate


def has_saved_code(kernel: Any) -> bool:
    """Return whether code of a kernel is on disk, for any signature and processor."""
    files, folder = kernel._cache, find_folder()
    return folder is not None and any(folder.glob(f"{files.base}.*"))


class _CodeFiles:
    """Cache implementation for numba's dispatcher: one file per signature.

    Parameters
    ----------
    name
        Module and name of the kernel.
    """

    cache_path = None

    def __init__(self, name: str) -> None:
        self.base = f"{name.removeprefix('pmflib.')}.{digest_sources()[:12]}"
        self._lock: _Lock | None = None

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load the code for a signature; None if there is none, and this process is to compile it."""
        found = self._load(signature, context)
        if found is None:
            # of processes that start together one compiles, and the others load its code
            self._release()
            self._lock = self._wait_for_lock(signature, context)
            found = self._load(signature, context)
            if found is not None:
                self._release()
        return found

    def _load(self, signature: Any, context: Any) -> Any:
        try:
            _start_runtime(context)
            path = self._locate(signature, context.codegen())
            if path is None:
                return None
            content = read_trusted(path)
            digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(body).digest() != digest:
                return None
            return _code_class()._rebuild(context, *load_description(body))
        except Exception:
            # missing, unreadable, or in a format that this numba does not accept: compile
            return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Save code, if possible."""
        try:
            if code.library.has_dynamic_globals or code.lifted:
                return
            path = self._locate(signature, code.library.codegen)
            if path is not None:
                body = pickle.dumps(code._reduce(), protocol=5)
                _replace_file(path, hashlib.sha256(body).digest() + body)
                _drop_stale(path)
        except Exception:
            # if the disk is full or numba has changed, only the next process loses time
            return
        finally:
            self._release()

    def _wait_for_lock(self, signature: Any, context: Any) -> _Lock | None:
        try:
            path = self._locate(signature, context.codegen())
            return None if path is None else _Lock.wait(path.with_name(f".{path.name}.lock"))
        except Exception:
            # without a lock it compiles as well
            return None

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def flush(self) -> None:
        """Do nothing: no code is held in memory."""

    def _locate(self, signature: Any, codegen: Any) -> Path | None:
        folder = find_folder()
        key = hashlib.sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()
        return None if folder is None else folder / f"{self.base}.{key[:16]}"


def _start_runtime(context: Any) -> None:
    """Start the runtime that compiled code calls; a full refresh would import compiler modules, which takes 0.2 s."""
    from numba.core.runtime import rtsys

    rtsys.initialize(context)


def _code_class() -> Any:
    # uses an internal interface of numba
    from numba.core.compiler import CompileResult

    return CompileResult


class _Lock(NamedTuple):
    """A file that this process has locked."""

    path: Path
    descriptor: int

    @classmethod
    def wait(cls, path: Path) -> _Lock | None:
        """Lock a file; None if it cannot be locked, or another process holds it for longer than ``WAIT_SECONDS``."""
        if sys.platform == "win32":
            return None
        import fcntl

        end = time.monotonic() + WAIT_SECONDS
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(path, descriptor)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() > end:
                    os.close(descriptor)
                    return None
            time.sleep(0.05)

    def release(self) -> None:
        """Unlock and delete the file. Who still waits for it compiles at the same time as who comes later, at worst."""
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


def _replace_file(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_private(fresh, content)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _drop_stale(path: Path) -> None:
    """Delete code compiled from outdated sources; the package's own folder keeps only the current version."""
    if path.parent == _OWN_FOLDER:
        current, name = path.name.rsplit(".", 1)[0], path.name.rsplit(".", 2)[0]
        for old in path.parent.glob(f"{name}.*"):
            if not old.name.startswith(current):
                old.unlink(missing_ok=True)


@cache
def digest_sources() -> str:
    """Compute a digest of the sources of all kernels, of the compiler and its settings, and of Python."""
    digest = hashlib.sha256()
    sources = (*_PACKAGE.glob("**/kernels/*.py"), *_PACKAGE.glob("base/compiled/*.py"))
    for path in sorted(sources):
        digest.update(
            path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
        )
    settings = [
        getattr(numba.config, name, None)
        for name in ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE")
    ]
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    digest.update(repr((versions, settings)).encode())
    return digest.hexdigest()


@cache
def find_folder() -> Path | None:
    """Find the first folder that only this user can write to: the requested one, the package's, or the user's.

    Returns
    -------
    An absolute path; None, with a warning, if there is none: each process then compiles for itself.
    """
    asked = os.environ.get(FOLDER_VARIABLE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    folders = [Path(asked) / "pmflib"] if asked else [_OWN_FOLDER, user / "pmflib"]
    why = ""
    for folder in [folder.absolute() for folder in folders]:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder != _OWN_FOLDER:
                narrow_folder(folder)
            why = find_distrust(folder)
        except OSError as error:
            why = f"{str(folder)!r} cannot be used ({error.strerror})"
        if not why and os.access(folder, os.W_OK):
            return folder
    warnings.warn(
        f"compiled kernels are not saved, so every process compiles them again: {why or 'no folder is writable'}; "
        f"set {FOLDER_VARIABLE} to a folder of your own",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
