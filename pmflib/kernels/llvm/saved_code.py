"""Compiled kernels kept on disk, so that only the first process on a machine compiles them.

Numba has a cache of its own, which does not serve here: its index of files is read, changed and written without a lock,
so that of two processes that compile at once one may later load the code of the other signature; it looks at the source
file of a kernel alone, not at those of the kernels and vector code that are compiled into it; and it does not find
what a factory made again, for its key holds the cells of closures, which differ from process to process. Here a file is
named by all that its code depends on: function, shape, signature, processor, Python, numba, and the sources of all
kernels. It holds its own digest, and is put in place whole; what cannot be read is compiled again.

Machine code does what it says, so it is loaded only from files that nobody else can have written: see
`pmflib.kernels.llvm.trusted_files`.
"""

from __future__ import annotations

import hashlib
import os
import pickle
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

from pmflib.kernels.llvm.trusted_files import (
    find_distrust,
    load_description,
    narrow_folder,
    read_trusted,
    write_private,
)

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
                _put_in_place(path, hashlib.sha256(body).digest() + body)
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


def _put_in_place(path: Path, content: bytes) -> None:
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
    places = [Path(asked) / "pmflib"] if asked else [_OWN_FOLDER, user / "pmflib"]
    why = ""
    for place in [place.absolute() for place in places]:
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            if place != _OWN_FOLDER:
                narrow_folder(place)
            why = find_distrust(place)
        except OSError as error:
            why = f"{str(place)!r} cannot be used ({error.strerror})"
        if not why and os.access(place, os.W_OK):
            return place
    warnings.warn(
        f"compiled kernels are not kept, and every process compiles them: {why or 'no folder can be written to'}; "
        f"set {FOLDER_VARIABLE} to a folder of your own",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
