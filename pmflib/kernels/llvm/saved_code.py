"""Compiled kernels kept on disk, in files that nobody else can have written.

Numba has a cache of its own, which does not serve here: its index of files is read, changed and written without a lock,
so that of two processes that compile at once one may later load the code of the other signature; it looks at the source
file of a kernel alone, not at those of the kernels and vector code that are compiled into it; and it does not find
what a factory made again, for its key holds the cells of closures, which differ from process to process. Here a file is
named by all that its code depends on: function, shape, signature, processor, Python, numba, and the sources of all
kernels. It holds its own digest, and is written whole or not at all; what cannot be read is compiled again.

To load machine code is to run it. What protects is who can write the files: folder and files must be this user's own
and writable by nobody else, which is checked on the open file. Beside the machine code a file describes the types of
its arguments, as a pickle of numba's own classes: it is read by an unpickler that knows these classes and no others,
and so can call nothing else. Whoever can write files as this user (or is the administrator) can run code as this user
anyway, by the same right with which they could change the sources of this package.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import stat
import sys
import uuid
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding

VECTORS = ("avx512f", "avx2", "avx", "neon", "sse4.2")
"""Instruction sets of vectors, widest first, by the names of LLVM."""


def describe_processor() -> tuple[str, str]:
    """Name of this machine's processor, and its widest instruction set of ``VECTORS``, "" where it has none of them."""
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
            from numba.core.types import Type

            found = super().find_class(module, name)
            if isinstance(found, type) and issubclass(found, (Type, tuple)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a description of code")


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


FOLDER_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable: folder for compiled code, instead of those of `find_folder`."""

_KERNELS = Path(__file__).parents[1]
_OWN_FOLDER = _KERNELS / "__pycache__"
_DIGEST_BYTES = 32


def compile_kernel(*shape: int, saved: bool = True, **options: Any) -> Callable[[Any], Any]:
    """Compile a kernel on its first call, or load what another process compiled.

    Parameters
    ----------
    shape
        Arguments of the factory that makes the kernel, if one does. They become a part of its name: two kernels of one
        name in one process, one of them from disk, could be taken for each other.
    saved
        Whether to keep the code: of kernels that are called from Python. It may call other kernels and intrinsics of
        this package, and nothing else.
    options
        Options of numba's ``njit``; ``nogil`` is set.

    Returns
    -------
    A decorator. Where there is no folder to write to, each process compiles.
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
    """Whether code of a kernel is on disk: for some signature, and this processor or another."""
    files, folder = kernel._cache, find_folder()
    return folder is not None and any(folder.glob(f"{files.base}.*"))


class _CodeFiles:
    """What numba asks for compiled code and hands it to: one file for each signature.

    Parameters
    ----------
    name
        Module and name of the kernel.
    """

    cache_path = None

    def __init__(self, name: str) -> None:
        self.base = f"{name.removeprefix('pmflib.kernels.')}.{digest_sources()[:12]}"

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Code for a signature, or None."""
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
            # nothing there, or not readable, or a numba that is of another opinion on its own format: compile
            return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep code, if that is possible."""
        if code.library.has_dynamic_globals or code.lifted:
            return
        try:
            path = self._locate(signature, code.library.codegen)
            if path is not None:
                body = pickle.dumps(code._reduce(), protocol=5)
                _replace_file(path, hashlib.sha256(body).digest() + body)
                _drop_stale(path)
        except Exception:
            # a full disk, or a numba that works otherwise, costs the next process time, and this one nothing
            return

    def flush(self) -> None:
        """Nothing is held in memory."""

    def _locate(self, signature: Any, codegen: Any) -> Path | None:
        folder = find_folder()
        key = hashlib.sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()
        return None if folder is None else folder / f"{self.base}.{key[:16]}"


def _start_runtime(context: Any) -> None:
    """Start what compiled code calls; a refresh of the context would import what only a compiler needs, for .2 s."""
    from numba.core.runtime import rtsys

    rtsys.initialize(context)


def _code_class() -> Any:
    # a part that numba does not promise to keep
    from numba.core.compiler import CompileResult

    return CompileResult


def _replace_file(path: Path, content: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_private(fresh, content)
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _drop_stale(path: Path) -> None:
    """Remove code of sources that are gone: in the package's own folder there is one state of them."""
    if path.parent == _OWN_FOLDER:
        current, name = path.name.rsplit(".", 1)[0], path.name.rsplit(".", 2)[0]
        for old in path.parent.glob(f"{name}.*"):
            if not old.name.startswith(current):
                old.unlink(missing_ok=True)


@cache
def digest_sources() -> str:
    """Digest of the sources of all kernels, of the compiler and its settings, and of Python."""
    digest = hashlib.sha256()
    for path in sorted(_KERNELS.rglob("*.py")):
        digest.update(
            path.relative_to(_KERNELS).as_posix().encode() + b"\0" + path.read_bytes() + b"\0"
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
    """Find the first folder that this user alone can write to: the one asked for, the package's, or the user's.

    Returns
    -------
    An absolute path; None, with a warning, where there is none: each process then compiles for itself.
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
        f"compiled kernels are not kept, and every process compiles them: {why or 'no folder can be written to'}; "
        f"set {FOLDER_VARIABLE} to a folder of your own",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
