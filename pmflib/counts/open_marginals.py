"""Marginals as other programs read them: a Zarr group with coordinates, which xarray, zarr-python and dask open.

Counts of pairs are stored by fold, as integers of the upper triangle or as differences to other counts: what fits and
nights need. A reader needs shares of whole tables, under names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, choose_count_type, list_owners, sum_pairs
from pmflib.base.errors import PmfError, StoreError
from pmflib.counts.zarr_tables import StoredTables
from pmflib.schema import Schema
from pmflib.store.array_groups import open_group
from pmflib.store.file_digests import fetch_all, holds
from pmflib.store.objects.local_files import find_local_path
from pmflib.store.zarr_arrays import add_texts, consolidate, create_group, create_open_array

MARGINALS = "marginals"
"""Kind of the artefacts, and attribute ``kind`` of their groups."""
GROUP = "marginals.zarr"
"""Folder of the group within an artefact. In a bucket, files of folders with this ending are objects of their own."""
CHUNK_LEVELS = 512
"""Number of levels along each side of a chunk of pairs: a megabyte of shares before compression."""
LEVEL, VARIABLE = ("level", "co_level"), ("variable", "co_variable")
"""Dimensions of tables of pairs. Both have names of their own, because xarray selects by name."""


def write_marginals(path: Path, tables: StoredTables, attributes: Mapping[str, Any]) -> None:
    """Write the marginals of stored counts, summed over folds.

    Parameters
    ----------
    path
        Folder of the group, which must not exist.
    tables
        The counts; variables whose pairs are not counted are left out.
    attributes
        Attributes of the group, plain JSON types, in addition to ``kind``, ``samples`` and ``weighted``.

    Notes
    -----
    ``pair_probability`` (level, co_level), float32, symmetric: block (j, k) is the joint PMF of two variables among
    the samples that have both, NaN if there are none; a diagonal block has the PMF of the variable on its diagonal.
    ``pair_count`` (level, co_level): number of samples, or float64 sums of weights. ``support`` (variable,
    co_variable): the sum of each block. ``probability`` (level), float64: the PMF of each variable.
    """
    schema, weights = tables.table_schema, tables.weights
    total = tables.add_up(np.flatnonzero(tables.n_rows).tolist())
    unit = 1 if weights is None else 10.0**-weights.decimals
    upper = sum_pairs(total, schema.offsets)
    support: Any = unit * (upper + np.triu(upper, 1).T)
    group = create_group(path, {})
    dtype = choose_count_type(int(total.max(initial=0))) if weights is None else np.float64
    chunk = (_choose_chunk(schema),) * 2
    counts = create_open_array(group, "pair_count", total.shape, dtype, LEVEL, chunk)
    shares = create_open_array(
        group, "pair_probability", total.shape, np.float32, LEVEL, chunk, np.nan
    )
    for rows, table in _mirror(total, chunk[0]):
        counts[rows] = unit * table
        shares[rows] = _normalise(table, rows, unit, support, schema)
    singles, answers = unit * total.diagonal(), support.diagonal()[list_owners(schema.offsets)]
    own = np.divide(singles, answers, where=answers > 0, out=np.full(singles.shape, np.nan))
    for name, values, dims in (
        ("support", support, VARIABLE),
        ("probability", own, LEVEL[:1]),
    ):
        made = create_open_array(group, name, values.shape, values.dtype, dims, values.shape)
        made[...] = values
    levels = [f"{variable.name}={level}" for variable in schema for level in variable.levels]
    for names, texts in ((LEVEL, levels), (VARIABLE, list(schema.names))):
        for name in names:
            add_texts(group, name, texts)
    known = {
        "kind": MARGINALS,
        "samples": int(tables.n_rows.sum()),
        "weighted": weights is not None,
    }
    group.update_attributes(known | dict(attributes))
    consolidate(path)


def open_marginals(path: str | Path) -> Any:
    """Open the marginals that a run has published, as an `xarray.Dataset` that reads what is asked for.

    Parameters
    ----------
    path
        Folder or ``s3://`` URL that `pmf run` and `pmf status` print. Files of a bucket are fetched to the cache of
        this machine.

    Returns
    -------
    The dataset: see `write_marginals`. Levels are named as "film=4".

    Raises
    ------
    PmfError
        If xarray is not installed.
    StoreError
        If there are no marginals.
    """
    try:
        import xarray
    except ImportError:
        raise PmfError(
            "open_marginals gives an xarray.Dataset, and xarray is not installed; pip install xarray, or read the "
            "arrays by zarr.open_group(path)"
        ) from None
    folder = find_local_path(path if isinstance(path, Path) else str(path))
    if holds(folder / GROUP):
        folder = folder / GROUP
    if holds(folder) and open_group(folder).attrs.get("kind") == MARGINALS:
        return xarray.open_dataset(fetch_all(folder), engine="zarr", consolidated=True)
    raise StoreError(f"no marginals at {str(path)!r}; give the path that `pmf status` prints")


def _choose_chunk(schema: Schema) -> int:
    """Choose the number of levels of a chunk: those of whole variables, if all have as many."""
    sizes = schema.cardinalities
    size = int(sizes[0])
    whole = CHUNK_LEVELS // size * size
    return min(schema.n_levels, whole if whole and (sizes == size).all() else CHUNK_LEVELS)


def _mirror(total: IntArray, step: int) -> Iterator[tuple[slice, IntArray]]:
    """Yield consecutive rows of the symmetric table with a given upper triangle."""
    for first in range(0, len(total), step):
        rows = slice(first, min(first + step, len(total)))
        table = total[rows] + total[:, rows].T
        own = np.arange(rows.start, rows.stop)
        table[own - first, own] = total[own, own]
        yield rows, table


def _normalise(
    table: IntArray, rows: slice, unit: float, support: IntArray | FloatArray, schema: Schema
) -> FloatArray:
    """Divide rows of the symmetric table by the support of their pairs, float32; NaN without any."""
    with np.errstate(divide="ignore"):
        scale = np.where(support > 0, unit / support, np.nan)
    owners = list_owners(schema.offsets)
    found: FloatArray = (table * scale[np.ix_(owners[rows], owners)]).astype(np.float32)
    return found
