"""Sums of the counts of several sites, none of which hands on its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pmflib.base.errors import PmfError, SchemaError
from pmflib.base.texts import abridge_names, list_some
from pmflib.counts.pair_counts import PairCounts
from pmflib.schema import Schema, Variable
from pmflib.surveys.sites.site_files import SiteCounts, read_site


def read_counts(paths: str | Path | Sequence[str | Path]) -> PairCounts:
    """Read the counts that sites have exported, and add them up.

    Parameters
    ----------
    paths
        Files written by `PairCounts.export` or ``pmf counts export``, at least one.

    Returns
    -------
    The sum, by fold. If all were exported with a minimum of 1, it has the bits of the counts of all rows together.

    Raises
    ------
    SourceError
        If a file is missing, truncated or changed.
    SchemaError
        If schemas or numbers of folds differ; the message says in what.
    PmfError
        If there is no file, the same counts are given twice, or units of weights differ.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from pmflib import count_pairs
    >>> rows = {"north": np.array([[0, 1], [1, 1]]), "south": np.array([[0, 0]])}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [f"{folder}/{name}.counts" for name in rows]
    ...     for name, codes in zip(files, rows.values()):
    ...         digest = count_pairs(codes, [2, 2]).export(name)
    ...     read_counts(files)
    PairCounts(3 samples, 2 variables, 4 levels, 16 folds)
    """
    files = [paths] if isinstance(paths, str | Path) else list(paths)
    if not files:
        raise PmfError("paths is empty; pass at least one file of counts")
    return add_sites((str(file), read_site(Path(file))) for file in files)


def add_sites(
    sites: Iterable[tuple[str, SiteCounts]], total: PairCounts | None = None, first: str = ""
) -> PairCounts:
    """Add up the counts of sites.

    Parameters
    ----------
    sites
        Name and counts of each site; at least one without a total.
    total, first
        Counts that they are added to, and their name for messages; None for none.

    Raises
    ------
    SchemaError, PmfError
        As for `read_counts`.
    """
    known: dict[str, str] = {}
    for name, site in sites:
        if twice := known.get(site.digest):
            raise PmfError(
                f"counts {name!r} and {twice!r} are the same, and their rows would count twice; pass one of them"
            )
        known[site.digest] = name
        own = PairCounts(site.schema, site.tables, site.n_rows, site.weights)
        total, first = (own, name) if total is None else (_add(total, own, name, first), first)
    assert total is not None
    return total


def _add(total: PairCounts, own: PairCounts, name: str, first: str) -> PairCounts:
    if differences := list_differences(total.schema, own.schema):
        raise SchemaError(
            f"counts {name!r} have another schema than {first!r}: {list_some(differences, 5, '; ')}. Give all sites "
            "one schema file, and count again"
        )
    try:
        return total + own
    except PmfError as error:
        raise type(error)(f"counts {name!r} cannot be added to {first!r}: {error}") from None


def list_differences(first: Schema, second: Schema) -> list[str]:
    """List in words in what a schema differs from another; empty if codes mean the same in both."""
    if first.digest == second.digest:
        return []
    names, others = first.names, second.names
    found = []
    if lacking := [name for name in names if name not in second]:
        found.append(f"it lacks {abridge_names(lacking)}")
    if more := [name for name in others if name not in first]:
        found.append(f"it also has {abridge_names(more)}")
    if not found and names != others:
        found.append(f"its variables are in the order {abridge_names(others)}")
    for variable in first:
        if variable.name in second:
            found += _list_changes(variable, second[variable.name])
    return found


def _list_changes(first: Variable, second: Variable) -> list[str]:
    """List the fields in which a variable differs from another of the same name."""
    before, after = first.to_json(), second.to_json()
    found = []
    for field in dict.fromkeys((*before, *after)):
        old: Any = before.get(field)
        new: Any = after.get(field)
        if old == new:
            continue
        if field != "levels":
            word = "missing codes" if field == "missing" else field
            found.append(f"{first.name!r} has the {word} {new}, not {old}")
        elif {*old} == {*new}:
            found.append(f"{first.name!r} has its levels in the order {new}, not {old}")
        else:
            lost, more = ([x for x in a if x not in b] for a, b in ((old, new), (new, old)))
            found += [f"{first.name!r} lacks the levels {abridge_names(lost)}"] if lost else []
            found += [f"{first.name!r} also has the levels {abridge_names(more)}"] if more else []
    return found
