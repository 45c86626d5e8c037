"""Files in which a site hands on its counts of pairs: Parquet with the schema, the numbers of rows and a digest."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.arrays import IntArray, list_owners
from pmflib.base.constraints import at_least, check
from pmflib.base.errors import PmfError, SourceError
from pmflib.base.json_files import parse_json
from pmflib.base.weights import WeightSums
from pmflib.counts.folds import FoldedCounts
from pmflib.schema import Schema
from pmflib.store.objects.local_folder import replace_file
from pmflib.surveys.sites.disclosure_control import round_tables

FORMAT = "pmf-site-counts-1"
HEADER = b"pmf.counts"
"""Metadata key of the Parquet file for all that is not a cell, JSON."""
NAMES = ("variable", "level", "co_variable", "co_level")
"""Columns that name the two levels of a cell, beside ``fold`` and ``count``."""


@dataclass(frozen=True, eq=False)
class SiteCounts:
    """Counts of one site, as they stand in its file.

    Parameters
    ----------
    schema, tables, n_rows, weights
        As of `pmflib.PairCounts`.
    minimum
        Rounding base: every cell is 0 or at least this. 1 if counts are exact.
    digest
        SHA-256 of the content; the same content has the same digest, whatever the file is called.
    version
        Version of pmflib that wrote the file.
    """

    schema: Schema
    tables: IntArray
    n_rows: IntArray
    weights: WeightSums | None
    minimum: int
    digest: str
    version: str


def write_site(counts: FoldedCounts, path: Path, *, minimum: int, seed: int | None) -> str:
    """Write the counts of a site; see `pmflib.PairCounts.export`."""
    tables, n_rows = counts.tables, int(counts.n_rows.sum())
    check(at_least(1, "which leaves counts exact", whole=True), minimum=minimum)
    if not np.issubdtype(tables.dtype, np.integer):
        raise PmfError("counts are effective samples; export those that count_pairs has returned")
    if minimum > 1:
        if counts.weights is not None:
            raise PmfError(
                f"minimum is {minimum} and counts are sums of weights, which do not tell the number of rows in a cell; "
                "count without weights, or give minimum=1"
            )
        if n_rows < minimum:
            raise PmfError(f"counts have {n_rows} rows, fewer than minimum={minimum}; export none")
        seed = secrets.randbits(128) if seed is None else seed
        check(at_least(0, whole=True), seed=seed)
        tables = round_tables(tables, counts.schema.offsets, minimum, seed)
    folds, rows, columns = np.nonzero(tables)
    cells = {"fold": pa.array(folds)}
    for name, at in zip(NAMES[::2], (rows, columns), strict=True):
        owners, codes = _name_levels(counts.schema, at)
        cells |= {name: owners, name.replace("variable", "level"): codes}
    cells["count"] = pa.array(tables[folds, rows, columns])
    header = {
        "format": FORMAT,
        "pmflib": version("pmflib"),
        "minimum": minimum,
        "rows": counts.n_rows.tolist(),
        "weights": None if counts.weights is None else counts.weights.to_json(),
        "schema": counts.schema.to_json(),
    }
    header["digest"] = digest_content(header, tables)
    table = pa.table(cells).replace_schema_metadata({HEADER: json.dumps(header)})
    buffer = BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, buffer.getvalue())
    return str(header["digest"])


def digest_content(header: dict[str, Any], tables: IntArray) -> str:
    """Compute the SHA-256 digest of the header, but for its own digest, and of all cells."""
    content = {name: value for name, value in header.items() if name != "digest"}
    total = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    total.update(np.ascontiguousarray(tables, "<i8").tobytes())
    return total.hexdigest()


def read_site(path: Path) -> SiteCounts:
    """Read a file written by `write_site`.

    Raises
    ------
    SourceError
        If the file is missing, truncated, changed or of another kind.
    """
    if not path.is_file():
        raise SourceError(f"counts {str(path)!r} is not a file; name one made by PairCounts.export")
    try:
        cells = pq.read_table(path)
        header = parse_json((cells.schema.metadata or {})[HEADER])
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}, not {FORMAT!r}")
        schema, n_rows = Schema.from_json(header["schema"]), np.array(header["rows"], np.int64)
        tables = np.zeros((len(n_rows), schema.n_levels, schema.n_levels), np.int64)
        at = [_find_levels(schema, *(cells[name] for name in pair)) for pair in _pair_names()]
        tables[cells["fold"].to_numpy(), *at] = cells["count"].to_numpy()
        if tables.min(initial=0) < 0:
            raise ValueError("a count is below 0")
        if digest_content(header, tables) != header["digest"]:
            raise ValueError("its content does not have its digest")
        weights = None if header["weights"] is None else WeightSums.from_json(header["weights"])
        facts = int(header["minimum"]), str(header["digest"]), str(header["pmflib"])
        return SiteCounts(schema, tables, n_rows, weights, *facts)
    except (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise SourceError(
            f"counts {str(path)!r} cannot be used, because it is damaged, changed or no file of counts: {error}; "
            "export the counts again, or copy the file again"
        ) from None


def _pair_names() -> tuple[tuple[str, ...], ...]:
    return NAMES[:2], NAMES[2:]


def _name_levels(schema: Schema, rows: IntArray) -> tuple[pa.Array, pa.Array]:
    """Name the variables and the levels of some rows of stacked tables."""
    owners = list_owners(schema.offsets)
    labels = [label for variable in schema for label in variable.levels]
    known = sorted({*labels})
    places = {label: place for place, label in enumerate(known)}
    codes = np.array([places[label] for label in labels])
    name: Callable[..., pa.Array] = pa.DictionaryArray.from_arrays
    return name(owners[rows], list(schema.names)), name(codes[rows], known)


def _find_levels(schema: Schema, variables: pa.ChunkedArray, levels: pa.ChunkedArray) -> IntArray:
    """Find the rows of stacked tables with some names; the inverse of `_name_levels`."""
    import pyarrow.compute as pc

    labels = [label for variable in schema for label in variable.levels]
    known = pa.array(sorted({*labels}))
    owners = list_owners(schema.offsets).astype(np.int64)

    def find(names: Any, among: pa.Array) -> IntArray:
        found: IntArray = pc.index_in(names.cast(pa.string()), among).fill_null(-1).to_numpy()
        if found.min(initial=0) < 0:
            raise ValueError("a cell has a name that is not in its schema")
        return found.astype(np.int64)

    keys = owners * len(known) + find(pa.array(labels), known)
    order = np.argsort(keys)
    asked = find(variables, pa.array(schema.names)) * len(known) + find(levels, known)
    found: IntArray = order[np.minimum(np.searchsorted(keys, asked, sorter=order), len(keys) - 1)]
    if (keys[found] != asked).any():
        raise ValueError("a cell has a level that its variable lacks")
    return found
