"""Rows of an array in chunks along its first dimension, read from their files without Zarr.

Zarr reads any array of its format by tasks and threads of its own, which takes most of a millisecond of processor time
however small the array is; a night opens thousands of small ones. What `pmflib.store.zarr_arrays.create_array` writes
is one kind of array, and takes a tenth of that: metadata that say anything else are left to Zarr.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *("bool", "float32", "float64"),
    )
}
"""Types of arrays by their names in metadata."""
SHAPED = {
    "zarr_format": 3,
    "node_type": "array",
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "storage_transformers": [],
}
"""Metadata of every array that is read here, besides its shape, type, codecs and attributes."""


@dataclass(frozen=True)
class ChunkedArray:
    """An array whose chunks are files.

    Parameters
    ----------
    folder
        Folder of its metadata and chunks.
    shape, dtype
        Its shape and type.
    chunk_rows
        Rows of a chunk, the last one included.
    """

    folder: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int

    @classmethod
    def find(cls, folder: Path) -> ChunkedArray | None:
        """Read the metadata of an array; None where there are none, or others than `create_array` writes."""
        try:
            found = json.loads((folder / "zarr.json").read_bytes())
            return cls._read(folder, found)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    @classmethod
    def _read(cls, folder: Path, found: dict[str, Any]) -> ChunkedArray | None:
        dtype, shape = KINDS[found["data_type"]], tuple(found["shape"])
        own = {"endian": "little"} if dtype.itemsize > 1 else None
        grid = found["chunk_grid"]
        chunks: list[Any] = grid["configuration"]["chunk_shape"]
        first, second = found["codecs"]
        sizes = [*shape, *chunks]
        is_known = (
            all(found[name] == value for name, value in SHAPED.items())
            and grid["name"] == "regular"
            and first.get("name") == "bytes"
            and (first.get("configuration") or None) == own
            and second["name"] == "zstd"
            and shape
            and len(chunks) == len(shape)
            and all(type(size) is int and size >= 0 for size in sizes)
            and chunks[0] >= 1
            and chunks[1:] == [max(1, size) for size in shape[1:]]
        )
        return cls(folder, shape, dtype, chunks[0]) if is_known else None

    def list_keys(self, start: int, stop: int) -> Iterator[str]:
        """Keys of the chunks that hold some rows: their files, from the folder of the array on."""
        if 0 in self.shape or start >= stop:
            return
        rest = "/0" * (len(self.shape) - 1)
        for position in range(start // self.chunk_rows, -(-stop // self.chunk_rows)):
            yield f"c/{position}{rest}"

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read rows from one up to another, of those that there are.

        Raises
        ------
        OSError, RuntimeError, ValueError
            If a chunk is lost or damaged: each has a checksum, and must hold as many rows as the others.
        """
        from numcodecs.zstd import Zstd

        stop = min(stop, self.shape[0])
        start = min(start, stop)
        inner, codec = self.shape[1:], Zstd()
        rows: npt.NDArray[Any] = np.empty((stop - start, *inner), self.dtype)
        for number, key in enumerate(self.list_keys(start, stop), start // self.chunk_rows):
            chunk = np.frombuffer(codec.decode((self.folder / key).read_bytes()), self.dtype)
            first = number * self.chunk_rows
            mine = slice(max(start, first), min(stop, first + self.chunk_rows))
            whole = chunk.reshape(self.chunk_rows, *inner)
            rows[mine.start - start : mine.stop - start] = whole[
                mine.start - first : mine.stop - first
            ]
        return rows
