"""What differs between the records of two runs: files, options, versions, rows, scores, schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pmflib.schema import Schema


@dataclass(frozen=True)
class ValueChange:
    """One value of two runs.

    Parameters
    ----------
    name
        What it is; parts of a nested name are joined by dots.
    first, second
        Its values, plain JSON types; None where a run has none.
    """

    name: str
    first: Any
    second: Any


@dataclass(frozen=True)
class FileChanges:
    """Raw files of two runs, by name.

    Parameters
    ----------
    added, removed
        Files that only the second, or only the first run read: name, digest, bytes.
    changed
        Files with other content: name, and digest and bytes in either run.
    n_same
        Number of files with the same content.
    """

    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    n_same: int


@dataclass(frozen=True)
class SchemaChanges:
    """Variables and levels of two schemas.

    Parameters
    ----------
    added, removed
        Names of variables that only the second, or only the first schema has.
    changed
        Shared variables with other levels: name, levels added, levels removed, and whether the order, the values, the
        edges or what means missing has changed.
    """

    added: list[str]
    removed: list[str]
    changed: list[dict[str, Any]]


def compare_files(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> FileChanges:
    """Compare the raw files of two runs, each with name, digest and bytes."""
    before, after = ({file["name"]: dict(file) for file in files} for files in (first, second))
    shared = [name for name in after if name in before]
    other = [name for name in shared if after[name]["digest"] != before[name]["digest"]]
    return FileChanges(
        [after[name] for name in after if name not in before],
        [before[name] for name in before if name not in after],
        [
            {
                "name": name,
                **{
                    f"{key}_{which}": files[name].get(key)
                    for which, files in (("first", before), ("second", after))
                    for key in ("digest", "bytes")
                },
            }
            for name in other
        ],
        len(shared) - len(other),
    )


def compare_values(
    first: Mapping[str, Any], second: Mapping[str, Any], *, only_changed: bool = True
) -> list[ValueChange]:
    """Compare two nested mappings of plain JSON types.

    Parameters
    ----------
    first, second
        The mappings.
    only_changed
        Whether to leave out what is equal.

    Returns
    -------
    A change per leaf, in the order of the second mapping; then what only the first has.
    """
    before, after = flatten(first), flatten(second)
    return [
        ValueChange(name, before.get(name), after.get(name))
        for name in dict.fromkeys((*after, *before))
        if not only_changed or before.get(name) != after.get(name)
    ]


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Leaves of a nested mapping by their names, joined by dots; lists are leaves."""
    leaves: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{name}.")
        else:
            leaves[name] = value
    return leaves


def compare_schemas(first: Schema, second: Schema) -> SchemaChanges:
    """Compare the variables and levels of two schemas."""
    changed = []
    for variable in second:
        if variable.name not in first or first[variable.name] == variable:
            continue
        before = first[variable.name]
        changed.append(
            {
                "variable": variable.name,
                "levels_added": [x for x in variable.levels if x not in before.levels],
                "levels_removed": [x for x in before.levels if x not in variable.levels],
                "order_changed": _share(before.levels, variable.levels)
                != _share(variable.levels, before.levels),
                "values_changed": before.values != variable.values,
                "edges_changed": before.edges != variable.edges,
                "missing_changed": before.missing != variable.missing,
                "other_changed": before.other != variable.other,
            }
        )
    return SchemaChanges(
        [name for name in second.names if name not in first],
        [name for name in first.names if name not in second],
        changed,
    )


def _share(levels: Sequence[str], others: Sequence[str]) -> list[str]:
    """Levels that others have too, in order."""
    known = set(others)
    return [level for level in levels if level in known]
