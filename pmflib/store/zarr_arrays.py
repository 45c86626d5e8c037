"""Named arrays in Zarr v3 groups, with dimension names and attributes, and detection of damage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pmflib.base.errors import StoreError
from pmflib.base.json_files import read_json
from pmflib.base.machine import find_memory_limit
from pmflib.base.texts import suggest_file
from pmflib.store.file_digests import check_files, fetch_all, fetch_files, find_artefact, read_list
from pmflib.store.objects.local_files import find_cache

if TYPE_CHECKING:
    # Zarr takes longer to load than all of pmflib: it is loaded where a group is first opened
    import zarr

Array = npt.NDArray[Any]

CHUNK_BYTES = 4 << 20
"""Size of a chunk before compression, bytes."""
CODECS = ("bytes", "zstd")
"""Codecs of `create_array`; no other is decompressed."""
MOST_EXPANSION, FREE_BYTES = 100, 64 << 20
"""Limits of arrays of parameters, which hardly compress: see `check_expansion`."""
FRAME_HEADER = 14
"""Maximum bytes of a Zstandard frame up to its content size (RFC 8878, section 3.1.1.1)."""


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


def read_array_rows(group: zarr.Group, name: str, start: int = 0, stop: int | None = None) -> Array:
    """Read consecutive rows of an array that `create_array` made; all of them by default.

    Raises
    ------
    StoreError
        If a chunk is lost, for which Zarr would return zeros.
    """
    from zarr.storage import LocalStore

    assert isinstance(group.store, LocalStore)
    folder = group.store.root / group.path / name
    artefact = find_artefact(folder)
    if artefact is None or find_cache(artefact) is None:
        return _read_rows(group, folder, start, stop, lambda keys: _find_lost(folder, keys))
    prefix = folder.relative_to(artefact).as_posix()
    while True:
        seen: dict[str, tuple[int, int]] = {}

        def fetch(keys: Iterable[str], seen: dict[str, tuple[int, int]] = seen) -> str:
            published, requested = read_list(artefact), []
            for key in keys:
                if f"{prefix}/{key}" not in published:
                    return key
                requested.append(key)
            fetch_files(artefact, [f"{prefix}/{key}" for key in requested])
            seen |= {key: _identify(folder / key) for key in requested}
            return _find_lost(folder, requested)

        fetch_files(artefact, [f"{prefix}/zarr.json"])
        try:
            rows = _read_rows(group, folder, start, stop, fetch)
        except Exception:
            if not _has_changed(folder, seen):
                raise
            continue
        # chunks that another process drops from the cache meanwhile would be read as zeros
        if not _has_changed(folder, seen):
            return rows


def _read_rows(
    group: zarr.Group,
    folder: Path,
    start: int,
    stop: int | None,
    find_lost: Callable[[Iterable[str]], str],
) -> Array:
    import zarr

    name = folder.name
    array = group[name]
    if not isinstance(array, zarr.Array):
        raise StoreError(f"{name!r} of {str(group.store_path)!r} is no array; rebuild the artefact")
    stop = array.shape[0] if stop is None else stop
    rest = (0,) * (array.ndim - 1)
    if array.size and start < stop:
        positions = range(start // array.chunks[0], -(-stop // array.chunks[0]))
        # lazily, as damaged metadata may imply any number of chunks
        keys = (array.metadata.encode_chunk_key((position, *rest)) for position in positions)
        if lost := find_lost(keys):
            raise StoreError(
                f"chunk {lost} of array {name!r} of {str(group.store_path)!r} is lost; rebuild the artefact"
            )
        for position in positions:
            key = array.metadata.encode_chunk_key((position, *rest))
            _check_chunk(array, folder / key)
    return np.asarray(array[start:stop])


def _check_chunk(array: Any, path: Path) -> None:
    """Check before decompression that a chunk has the size that the metadata of its array state.

    Raises
    ------
    ValueError
        If it has another size, or was written by another codec.
    """
    codecs = [each["name"] for each in array.metadata.to_dict()["codecs"]]
    if tuple(codecs) != CODECS:
        raise ValueError(f"codecs {codecs}; only {list(CODECS)} are read")
    with path.open("rb") as stream:
        stated = _read_content_size(stream.read(FRAME_HEADER))
    expected = math.prod(array.chunks) * array.dtype.itemsize
    if stated != expected:
        raise ValueError(f"chunk {path.name} of {stated} bytes, and the array needs {expected}")


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


def _identify(path: Path) -> tuple[int, int]:
    """Inode and time of a file, to detect its replacement; zeros if it does not exist."""
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_ino, state.st_mtime_ns


def _has_changed(folder: Path, seen: Mapping[str, tuple[int, int]]) -> bool:
    return any(_identify(folder / key) != state for key, state in seen.items())


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
        requested = sorted(group.array_keys()) if names is None else names
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
            if path.name == "zarr.json" and "shape" in (content := read_json(path)):
                stated += math.prod(content["shape"]) * np.dtype(content["data_type"]).itemsize
    if stated > max(FREE_BYTES, MOST_EXPANSION * stored):
        raise StoreError(
            f"arrays of {folder.name!r} state {stated:,} bytes in files of {stored:,}; the limit is {MOST_EXPANSION} "
            f"times the files, or {FREE_BYTES:,}: ask the sender for the model as it was saved"
        )


@contextmanager
def refuse_damage(path: Path) -> Iterator[None]:
    """Translate Zarr's errors on missing or damaged arrays to `StoreError`.

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


def open_group(path: Path, mode: Literal["r", "a"] = "r") -> zarr.Group:
    """Open a group for reading ("r") or, for its only writer, appending ("a").

    Metadata of artefacts are checked here, chunks by their own checksums when they are read.

    Raises
    ------
    StoreError
        If there is no Zarr group at the path, or its metadata have changed since they were published.
    """
    import zarr

    check_files(path, "zarr.json")
    with refuse_damage(path), suppress(FileNotFoundError):
        return zarr.open_group(path, mode=mode)
    # raised here, as Zarr's error cannot be pickled, even as context
    raise StoreError(
        f"no Zarr group at {str(path)!r}; run the stage that writes it{suggest_file(path)}"
    )
