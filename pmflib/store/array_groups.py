"""Reading named arrays of Zarr v3 groups, with detection of damage: those that `pmflib.store.zarr_arrays` writes.

Zarr is not used: importing it takes as long as all other imports of a short command, and it takes several milliseconds
to open an array, of which a dataset of many small partitions has hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.base.errors import StoreError
from pmflib.base.json_files import read_json
from pmflib.base.machine import find_memory_limit
from pmflib.base.texts import suggest_file
from pmflib.store.file_digests import check_files, fetch_all, fetch_files, find_artefact, read_list
from pmflib.store.objects.local_files import find_cache

Array = npt.NDArray[Any]

METADATA = "zarr.json"
CODECS = ("bytes", "zstd")
"""Codecs of `pmflib.store.zarr_arrays.create_array`; no other is decompressed."""
CHUNK_KEYS = {"name": "default", "configuration": {"separator": "/"}}
"""Names of the files of chunks: "c/0/0" below the folder of the array."""
MOST_EXPANSION, FREE_BYTES = 100, 64 << 20
"""Limits of arrays of parameters, which hardly compress: see `check_expansion`."""
FRAME_HEADER = 14
"""Maximum bytes of a Zstandard frame up to its content size (RFC 8878, section 3.1.1.1)."""


@dataclass(frozen=True)
class ArrayGroup:
    """An open group.

    Parameters
    ----------
    folder
        Its folder.
    attrs
        Its attributes, plain JSON types.
    """

    folder: Path
    attrs: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        """Whether the group has an array of this name."""
        return (self.folder / name / METADATA).is_file()

    def list_arrays(self) -> list[str]:
        """Return the names of the arrays, sorted."""
        return sorted(path.parent.name for path in self.folder.glob(f"*/{METADATA}"))


def open_group(path: Path) -> ArrayGroup:
    """Open a group for reading.

    Metadata of artefacts are checked here, chunks by their own checksums when they are read.

    Raises
    ------
    StoreError
        If there is no Zarr group at the path, it is damaged, or its metadata have changed since they were published.
    """
    check_files(path, METADATA)
    with refuse_damage(path):
        try:
            found = read_json(path / METADATA)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(
                f"no Zarr group at {str(path)!r}; run the stage that writes it{suggest_file(path)}"
            ) from None
        attributes = found.get("attributes", {})
        if (found["zarr_format"], found["node_type"]) != (3, "group"):
            raise ValueError("it is no Zarr v3 group")
        if not isinstance(attributes, dict):
            raise TypeError("attributes are no table")
        return ArrayGroup(path, attributes)


@dataclass(frozen=True)
class _Layout:
    """Shape and type of an array, and the shape of its chunks, each of which has all columns."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: tuple[int, ...]

    @classmethod
    def read(cls, folder: Path) -> _Layout:
        """Read the metadata of an array.

        Raises
        ------
        ValueError
            If it has another layout than `pmflib.store.zarr_arrays.create_array` gives.
        """
        found = read_json(folder / METADATA)
        if found["node_type"] != "array":
            raise ValueError(f"{folder.name!r} is no array")
        shape = tuple(found["shape"])
        chunk = tuple(found["chunk_grid"]["configuration"]["chunk_shape"])
        dtype = np.dtype(found["data_type"]).newbyteorder("<")
        codecs = [each["name"] for each in found["codecs"]]
        if tuple(codecs) != CODECS:
            raise ValueError(f"codecs {codecs}; only {list(CODECS)} are read")
        if found["codecs"][0].get("configuration", {}).get("endian", "little") != "little":
            raise ValueError(f"{folder.name!r} is not little-endian")
        if found["chunk_key_encoding"] != CHUNK_KEYS or dtype.kind not in "biuf":
            raise ValueError(f"{folder.name!r} has another type or other chunks than are written")
        if not shape or not all(type(n) is int and n >= 0 for n in (*shape, *chunk)):
            raise ValueError(f"shape {shape} in chunks of {chunk}")
        # raises an error if their lengths differ
        columns = zip(shape[1:], chunk[1:], strict=True)
        if chunk[0] < 1 or any(max(1, n) != size for n, size in columns):
            raise ValueError(f"shape {shape} in chunks of {chunk}")
        return cls(shape, dtype, chunk)

    def name_chunk(self, position: int) -> str:
        """Name of the file of a chunk, relative to the folder of the array."""
        return "/".join(["c", str(position), *("0" for _ in self.chunk[1:])])

    def read_chunk(self, path: Path) -> Array:
        """Read a chunk, after checking that it has the size that the metadata state.

        Raises
        ------
        ValueError
            If it has another size.
        OSError
            If it cannot be read or decompressed, or its checksum is wrong.
        """
        content = path.read_bytes()
        expected = math.prod(self.chunk) * self.dtype.itemsize
        if (stated := _read_content_size(content[:FRAME_HEADER])) != expected:
            raise ValueError(f"chunk {path.name} of {stated} bytes, and the array needs {expected}")
        values = pa.decompress(content, decompressed_size=expected, codec="zstd")
        return np.frombuffer(values, self.dtype).reshape(self.chunk)


def read_array_rows(group: ArrayGroup, name: str, start: int = 0, stop: int | None = None) -> Array:
    """Read consecutive rows of an array that `create_array` made; all of them by default.

    Raises
    ------
    StoreError
        If a chunk is lost.
    """
    folder = group.folder / name
    artefact = find_artefact(folder)
    if artefact is None or find_cache(artefact) is None:
        return _read_rows(folder, start, stop, lambda keys: _find_lost(folder, keys))
    prefix = folder.relative_to(artefact).as_posix()

    def fetch(keys: Iterable[str]) -> str:
        published, requested = read_list(artefact), []
        for key in keys:
            if f"{prefix}/{key}" not in published:
                return key
            requested.append(f"{prefix}/{key}")
        fetch_files(artefact, requested)
        return ""

    while True:
        fetch_files(artefact, [f"{prefix}/{METADATA}"])
        try:
            return _read_rows(folder, start, stop, fetch)
        except FileNotFoundError:
            # files that another process drops from the cache meanwhile are fetched again
            continue


def _read_rows(
    folder: Path, start: int, stop: int | None, find_lost: Callable[[Iterable[str]], str]
) -> Array:
    layout = _Layout.read(folder)
    n_rows, *rest = layout.shape
    last = n_rows if stop is None else stop
    step = layout.chunk[0]
    positions = range(start // step, -(-last // step) if math.prod(layout.shape) else 0)
    # lazily, as damaged metadata may imply any number of chunks
    if lost := find_lost(map(layout.name_chunk, positions)):
        raise StoreError(
            f"chunk {lost} of array {folder.name!r} of {str(folder.parent)!r} is lost; rebuild the artefact"
        )
    last = min(last, n_rows)
    found = np.empty((max(0, last - start), *rest), layout.dtype)
    for position in positions:
        first = position * step
        rows = slice(max(start, first), min(last, first + step))
        chunk = layout.read_chunk(folder / layout.name_chunk(position))
        found[rows.start - start : rows.stop - start] = chunk[
            rows.start - first : rows.stop - first
        ]
    return found


def _read_content_size(header: bytes) -> int | None:
    """Read the content size of a Zstandard frame; None if it states none.

    References
    ----------
    Collet, Kucherawy (2021), "Zstandard compression and the application/zstd media type", RFC 8878, section 3.1.1.1.
    """
    if len(header) < 5 or header[:4] != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = header[4]
    is_single, size_flag = bool(descriptor & 0x20), descriptor >> 6
    n_bytes = (1 if is_single else 0, 2, 4, 8)[size_flag]
    start = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    field = header[start : start + n_bytes]
    if not n_bytes or len(field) < n_bytes:
        return None
    return int.from_bytes(field, "little") + (256 if size_flag == 1 else 0)


def _find_lost(folder: Path, keys: Iterable[str]) -> str:
    """First key whose file is missing; "" if there is none."""
    return next((key for key in keys if not (folder / key).is_file()), "")


def read_arrays(
    path: Path, names: Sequence[str] | None = None, *, kind: str | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a group: arrays by name (all of them unless named), and attributes.

    Parameters
    ----------
    path
        Folder of the group.
    names
        Arrays to read; None reads all.
    kind
        Required attribute ``kind`` of the group; None allows any.

    Raises
    ------
    StoreError
        If the group is missing, damaged or of another kind, or an array is missing.
    """
    with refuse_damage(path):
        group = open_group(path)
        attributes = dict(group.attrs)
        if kind is not None and attributes.get("kind") != kind:
            raise StoreError(f"{str(path)!r} holds {attributes.get('kind')!r}, not {kind!r}")
        requested = group.list_arrays() if names is None else names
        fetch_all(path, requested)
        return {name: read_array_rows(group, name) for name in requested}, attributes


def check_expansion(folder: Path) -> None:
    """Check before decompression that the arrays of parameters in and below a folder can have their stated sizes.

    Raises
    ------
    StoreError
        If they take more than ``FREE_BYTES``, and more than ``MOST_EXPANSION`` times the bytes of their files.
    """
    fetch_all(folder)
    stated = stored = 0
    with refuse_damage(folder):
        for path in folder.rglob("*"):
            stored += path.stat().st_size if path.is_file() else 0
            if path.name == METADATA and "shape" in (content := read_json(path)):
                stated += math.prod(content["shape"]) * np.dtype(content["data_type"]).itemsize
    if stated > max(FREE_BYTES, MOST_EXPANSION * stored):
        raise StoreError(
            f"arrays of {folder.name!r} state {stated:,} bytes in files of {stored:,}; the limit is {MOST_EXPANSION} "
            f"times the files, or {FREE_BYTES:,}: ask the sender for the model as it was saved"
        )


@contextmanager
def refuse_damage(path: Path) -> Iterator[None]:
    """Translate errors on missing or damaged arrays to `StoreError`.

    Damaged metadata may contain anything: unknown types, impossibly large shapes, endless nesting.
    """
    try:
        yield
    except StoreError:
        raise
    except (
        LookupError,
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        MemoryError,
        RuntimeError,
        # from odd metadata, if the caller turns warnings into errors
        UserWarning,
    ) as error:
        if _is_exhausted(error):
            raise
        raise StoreError(
            f"arrays of {path.name!r} cannot be read ({error!s:.200}); rebuild the artefact"
        ) from error


def _is_exhausted(error: Exception) -> bool:
    """Whether the machine ran out of memory or threads, although the array could fit: nothing is damaged then."""
    if not isinstance(error, MemoryError):
        return "can't start new thread" in str(error)
    # NumPy's error has the requested shape
    shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", np.dtype(np.uint8))
    return math.prod(shape) * int(dtype.itemsize) <= find_memory_limit()
