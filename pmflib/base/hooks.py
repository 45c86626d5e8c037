"""Hooks: what features add to the core, by name, without the core naming a feature.

A feature is a package of a wing, listed in `pmflib.features.FEATURES`; `pmflib.features.ROOMS` has rooms of the core
that offer something to lower ones. Its module ``hooks`` may have a table ``HOOKS``: by hook and name, an object as
``"module:name"``, which is imported when it is first used.

>>> HOOKS = {"readers": {"sav": "pmflib.surveys.statistics_files.statistics_files:READER"}}
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pmflib.base.errors import PmfError


class Offers(Mapping[str, Any]):
    """What features offer under one hook, by name, in the order of the features; loaded when it is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> Any:
        """Load what is offered under a name."""
        module, _, attribute = self.places[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names; nothing is loaded."""
        return iter(self.places)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self.places)


def find_offers(hook: str) -> Offers:
    """Return what the features offer under a hook.

    Parameters
    ----------
    hook
        Name of the hook, such as ``"readers"``; the module that asks for it documents what it calls.

    Returns
    -------
    Objects by name; empty if no feature offers any.

    Raises
    ------
    PmfError
        If two features offer the same name.
    """
    # the table of features is no feature, and tests replace it
    table = importlib.import_module("pmflib.features")
    return _collect(hook, (*table.ROOMS, *table.FEATURES))


@lru_cache
def _collect(hook: str, features: tuple[str, ...]) -> Offers:
    places: dict[str, str] = {}
    for feature in features:
        for name, place in _read_hooks(feature).get(hook, {}).items():
            if name in places:
                raise PmfError(
                    f"{places[name]!r} and {place!r} are both offered as {name!r} of the hook {hook!r}; a name has one "
                    "owner: rename one, or remove a feature from pmflib.features.FEATURES"
                )
            places[name] = place
    return Offers(places)


@lru_cache
def _read_hooks(feature: str) -> Mapping[str, Mapping[str, str]]:
    found = importlib.util.find_spec(feature)
    # looked for as a file: a feature without hooks is not imported, as it may need what is not installed
    folders = () if found is None else found.submodule_search_locations or ()
    if not any((Path(folder) / "hooks.py").is_file() for folder in folders):
        return {}
    hooks: Mapping[str, Mapping[str, str]] = importlib.import_module(f"{feature}.hooks").HOOKS
    return hooks
