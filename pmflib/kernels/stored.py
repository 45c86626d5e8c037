"""Machine code kept on disk, so that the next process does not compile again.

Numba's own cache does not find closures again: its key holds their cells, and those of other compiled functions differ
from process to process; nor does it notice a change in another file. Here a file belongs to one function, shape,
signature, processor, Python, numba, and state of all kernels' sources; it is written under another name and renamed,
and not read unless its digest fits. Where nothing can be written, everything is compiled as ever.
"""

import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba import njit
from numba.core.compiler import CompileResult

DIRECTORY_VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable: directory for machine code, instead of those below."""
_DIGEST_BYTES = 32


def compiled(*shape: int, stored: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Do as ``njit(**options)`` for a function that a factory makes for a shape.

    Parameters
    ----------
    shape
        Arguments of the factory. They become a part of the function's name: two functions of one name in one process,
        one of them from disk, could be taken for each other.
    stored
        Whether to keep the machine code; for functions called from Python.
    options
        Of njit.
    """

    def decorate(function: Any) -> Any:
        function.__qualname__ = "_".join([function.__qualname__, *map(str, shape)])
        dispatcher = njit(**options)(function)
        if stored:
            dispatcher._cache = _Store(f"{function.__module__}.{function.__qualname__}")
        return dispatcher

    return decorate


class _Store:
    """What numba asks for and hands over machine code, one file for each signature."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cache_path = None

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Machine code for a signature, or None."""
        context.refresh()
        try:
            content = self._find_file(signature, context.codegen()).read_bytes()
            digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(payload).digest() != digest:
                return None
            return CompileResult._rebuild(context, *pickle.loads(payload))
        except Exception:
            # nothing there, or not readable, or numba is of another opinion on its own format: compile
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep machine code, if that is possible."""
        if result.library.has_dynamic_globals or result.lifted:
            return
        try:
            payload = pickle.dumps(result._reduce(), protocol=5)
            path = self._find_file(signature, result.library.codegen)
            handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.stem)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(payload).digest() + payload)
            os.replace(draft, path)
        except Exception:
            # a full disk, or no right to write: the next process compiles as this one did
            return

    def flush(self) -> None:
        """Nothing is held in memory."""

    def _find_file(self, signature: Any, codegen: Any) -> Path:
        key = repr((self.name, signature, codegen.magic_tuple(), _describe_sources()))
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        return _find_directory() / f"{self.name.rpartition('.')[2]}-{digest}.kernel"


@lru_cache
def _describe_sources() -> tuple[str, ...]:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest(), sys.version, numba.__version__, llvmlite.__version__, np.__version__


@lru_cache
def _find_directory() -> Path:
    """First directory that can be written to: the one asked for, the package's, or the user's."""
    asked = os.environ.get(DIRECTORY_VARIABLE)
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmflib"
    places = [Path(asked) / "pmflib"] if asked else [Path(__file__).parent / "__pycache__", user]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    raise OSError(f"none of {places} can be written to")
