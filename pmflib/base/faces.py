"""Faces: the public names of a package, each imported when it is first used.

>>> from pmflib import counts
>>> counts.Marginals.__name__
'Marginals'
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pmflib.base.hooks import find_offers


def make_face(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, which import its public names on first use.

    Parameters
    ----------
    package
        Name of the package.
    homes
        Module of each public name.
    """

    def load(name: str) -> Any:
        if name not in homes:
            from pmflib.base.texts import suggest

            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{suggest(name, homes)}"
            )
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *homes})


def list_homes(wing: str) -> dict[str, str]:
    """Return the module of each public name of a wing: what its features offer under the hook ``"face"``.

    The hook is a table of public names, each ``"module:name"`` with the same name.
    """
    places = find_offers("face").places
    found = {name: place.partition(":")[0] for name, place in places.items()}
    return {name: home for name, home in sorted(found.items()) if home.startswith(f"{wing}.")}
