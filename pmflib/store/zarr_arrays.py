"""Writing named arrays in Zarr v3 groups, with dimension names and attributes.

`pmflib.store.array_groups` reads them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pmflib.base.errors import StoreError
from pmflib.base.texts import suggest_file
from pmflib.store.array_groups import METADATA, Array, refuse_damage
from pmflib.store.file_digests import check_files

if TYPE_CHECKING:
    # Zarr takes longer to load than all of pmflib: it is loaded where a group is written
    import zarr

CHUNK_BYTES = 4 << 20
"""Size of a chunk before compression, bytes."""


def write_arrays(
    path: Path,
    arrays: Mapping[str, tuple[Array, Sequence[str]]],
    attributes: Mapping[str, Any],
) -> None:
    """Write a new group.

    Parameters
    ----------
    path
        Folder of the group, which must not exist.
    arrays
        Arrays and the names of their dimensions, by name.
    attributes
        Attributes of the group, plain JSON types.
    """
    add_arrays(create_group(path, attributes), arrays)


def add_arrays(group: zarr.Group, arrays: Mapping[str, tuple[Array, Sequence[str]]]) -> None:
    """Write new arrays to a group: see `write_arrays`."""
    for name, (values, dims) in arrays.items():
        created = create_array(group, name, values.shape, values.dtype, dims)
        if values.size:
            created[...] = values


def create_group(path: Path, attributes: Mapping[str, Any]) -> zarr.Group:
    """Create a group with attributes, plain JSON types; the folder must not exist."""
    import zarr

    with suppress(zarr.errors.ContainsGroupError):
        return zarr.create_group(path, attributes=dict(attributes))
    # raised here, without Zarr's error as context
    raise StoreError(f"{str(path)!r} exists already; remove it first, or write to another folder")


def set_attributes(group: zarr.Group, attributes: Mapping[str, Any]) -> None:
    """Set attributes of a group, plain JSON types, without indentation."""
    import zarr

    with zarr.config.set({"json_indent": None}):
        group.update_attributes(dict(attributes))


def create_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    dims: Sequence[str],
    *,
    chunk_rows: int | None = None,
) -> Any:
    """Create an empty array in a group, chunked along its first dimension.

    Parameters
    ----------
    group
        An open group.
    name, shape, dtype, dims
        Name, shape, type and dimension names of the new array.
    chunk_rows
        Length of a chunk along the first dimension; by default as many rows as ``CHUNK_BYTES`` hold.

    Returns
    -------
    The Zarr array.
    """
    from zarr.codecs import ZstdCodec

    dtype = np.dtype(dtype)
    row_bytes = max(1, int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize)
    if chunk_rows is None:
        chunk_rows = min(max(shape[0], 1), CHUNK_BYTES // row_bytes)
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(max(1, chunk_rows), *(max(1, n) for n in shape[1:])),
        # level 1 was both the smallest and the fastest for codes; the checksum detects damage
        compressors=ZstdCodec(level=1, checksum=True),
        fill_value=0,
        dimension_names=tuple(dims),
        # write chunks of zeros, too, so that missing chunks are detected as lost: see `read_array_rows`
        config={"write_empty_chunks": True},
    )


def create_open_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    dims: Sequence[str],
    chunk: tuple[int, ...],
    fill_value: float = 0,
) -> Any:
    """Create an array for readers of any library: chunked in all dimensions, without chunks of the fill value alone.

    Parameters
    ----------
    group, name, shape, dtype, dims
        As for `create_array`.
    chunk
        Shape of a chunk.
    fill_value
        Value of the cells that are not written.
    """
    from zarr.codecs import ZstdCodec

    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=tuple(max(1, n) for n in chunk),
        compressors=ZstdCodec(level=1, checksum=True),
        fill_value=fill_value,
        dimension_names=tuple(dims),
    )


def add_texts(group: zarr.Group, name: str, texts: Sequence[str]) -> None:
    """Write an array of texts as the coordinate of the dimension of this name."""
    group.create_array(
        name, shape=(len(texts),), dtype=str, chunks=(max(1, len(texts)),), dimension_names=(name,)
    )[...] = np.array(texts, dtype=np.dtypes.StringDType())


def consolidate(path: Path) -> None:
    """Copy the metadata of the arrays of a complete group to its own, so that a reader needs one request for all."""
    import zarr

    with warnings.catch_warnings():
        # its specification is not final; all readers of Zarr 3 that know no copies ignore it
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
        zarr.consolidate_metadata(path)


def open_zarr(path: Path, mode: Literal["r", "a"]) -> zarr.Group:
    """Open a group by Zarr: for its only writer to append ("a"), or to read arrays of any layout ("r").

    Raises
    ------
    StoreError
        If there is no Zarr group at the path, or its metadata have changed since they were published.
    """
    import zarr

    check_files(path, METADATA)
    with refuse_damage(path), suppress(FileNotFoundError):
        return zarr.open_group(path, mode=mode)
    # raised here, as Zarr's error cannot be pickled, even as context
    raise StoreError(
        f"no Zarr group at {str(path)!r}; run the stage that writes it{suggest_file(path)}"
    )
