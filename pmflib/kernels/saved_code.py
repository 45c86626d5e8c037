"""Compiled kernels kept on disk, so that only the first process on a machine compiles them.

Numba has a cache of its own, which serves here for the folder and for what identifies code: signature, processor and
bytecode. Its files do not: its index of files is read, changed and written without a lock, so that of two processes
that compile at once one may later load the code of the other signature; and it looks at the source file of a
kernel alone, not at those of the kernels and vector code that are compiled into it. Here a file is named by all that
its code depends on, holds its own digest, and is put in place whole; what cannot be read is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba

try:
    from numba.core.caching import FunctionCache
    from numba.core.serialize import dumps
except (
    ImportError
):  # parts that numba does not promise to keep: without them, each process compiles
    FunctionCache = object

DIGEST_BYTES = 32


def compile_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel on its first call, as ``njit(nogil=True)``, or load what another process compiled.

    Parameters
    ----------
    function
        Defined in this package; may call other kernels and intrinsics of this package, and nothing else of its own.

    Returns
    -------
    The kernel. Its code goes to ``__pycache__`` next to the source, or to the user's cache folder where the package
    cannot be written; where neither can, each process compiles.
    """
    kernel = numba.njit(nogil=True)(function)
    # RuntimeError: there is no folder to write to. The others: a numba that works otherwise
    with contextlib.suppress(RuntimeError, AttributeError, TypeError):
        kernel._cache = _KernelCache(function)
    return kernel


def has_saved_code(kernel: Any) -> bool:
    """Whether code of a kernel is on disk: for some signature, and this processor or another."""
    files = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    return isinstance(files, _CodeFiles) and files.any()


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of a function, on files of our own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CodeFiles(Path(self._cache_path), self._impl.filename_base)

    def save_overload(self, sig: Any, data: Any) -> None:
        # a folder that is full or may not be written costs the next process time, and this one nothing
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _CodeFiles:
    """Files of compiled code of one function.

    Parameters
    ----------
    folder
        Made when first written to.
    base
        Begins the name of each file; differs between functions and versions of Python.
    """

    def __init__(self, folder: Path, base: str) -> None:
        self._folder = folder
        self._base = f"{base}.{digest_sources()[:12]}"

    def _locate(self, key: Any) -> Path:
        return self._folder / f"{self._base}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}"

    def any(self) -> bool:
        """Whether there is any file of the present sources."""
        return any(self._folder.glob(f"{self._base}.*"))

    def load(self, key: Any) -> Any:
        """Read what `save` wrote; None where there is nothing, or nothing whole."""
        try:
            content = self._locate(key).read_bytes()
        except OSError:
            return None
        body = content[DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != content[:DIGEST_BYTES]:
            return None
        found, data = pickle.loads(body)
        return data if found == key else None

    def save(self, key: Any, data: Any) -> None:
        """Write code, replacing what is there."""
        body = dumps((key, data))
        path = self._locate(key)
        fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            fresh.write_bytes(hashlib.sha256(body).digest() + body)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)

    def flush(self) -> None:
        """Remove all files of the present sources."""
        for path in self._folder.glob(f"{self._base}.*"):
            path.unlink(missing_ok=True)


@cache
def digest_sources() -> str:
    """Digest of the sources of all kernels, and of the compiler and its settings."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    settings = [
        getattr(numba.config, name, None)
        for name in ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE")
    ]
    digest.update(repr((numba.__version__, llvmlite.__version__, settings)).encode())
    return digest.hexdigest()
