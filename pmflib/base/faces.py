"""Faces: the names that a package has for others, each imported when it is first used.

The ``__init__.pyi`` of a package imports them from the modules that define them, for type checkers; `make_face` reads
the same lines.

>>> from pmflib import counts
>>> counts.Marginals.__name__
'Marginals'
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pmflib.base.hooks import find_offers


def make_face(
    package: str, homes: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, which import its names on first use.

    Parameters
    ----------
    package
        Name of the package. If it has ``__all__``, only these names are listed by ``dir``.
    homes
        Module of each name; by default, as the package's ``__init__.pyi`` imports them.
    """

    def list_names() -> dict[str, str]:
        return {**(read_stub(package) if homes is None else homes)}

    def load(name: str) -> Any:
        known = {} if name.startswith("__") else list_names()
        if name not in known:
            from pmflib.base.texts import suggest

            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{suggest(name, known)}"
            )
        value = getattr(importlib.import_module(known[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_all() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*own, *own.get("__all__", list_names())})

    return load, list_all


def read_stub(package: str) -> dict[str, str]:
    """Return the module of each name that the ``__init__.pyi`` of a package imports."""
    path = Path(sys.modules[package].__path__[0], "__init__.pyi")
    line = r"^from (\S+) import (?:\(\s*)?(\w+) as \2\b"
    found = re.findall(line, path.read_text("utf-8"), flags=re.M)
    return {name: module for module, name in found}


def list_homes(wing: str) -> dict[str, str]:
    """Return the module of each public name of a wing: what its features offer under the hook ``"face"``.

    The hook is a table of public names, each ``"module:name"`` with the same name.
    """
    places = find_offers("face").places
    found = {name: place.partition(":")[0] for name, place in places.items()}
    return {name: home for name, home in sorted(found.items()) if home.startswith(f"{wing}.")}
