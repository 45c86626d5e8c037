"""Rows of arrays read from their files: the same as Zarr reads, and none of arrays of another kind."""

import json

import numpy as np
import pytest
import zarr

from pmflib.store.array_chunks import KINDS, ChunkedArray
from pmflib.store.zarr_arrays import create_array, open_arrays, read_array_rows, write_arrays

SLICES = [(0, 11), (0, 4), (3, 9), (8, 11), (4, 4), (10, 30)]


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("inner", [(), (3,), (2, 2), (0,)])
def test_read__equals_zarr(tmp_path, kind, inner):
    values = np.random.default_rng(0).integers(0, 2, (11, *inner)).astype(kind)
    group = zarr.create_group(tmp_path / "group")
    array = create_array(group, "a", values.shape, kind, ["x"] * values.ndim, chunk_rows=4)
    array[...] = values
    found = ChunkedArray.find(tmp_path / "group" / "a")
    assert found is not None
    for start, stop in SLICES:
        rows, expected = found.read(start, stop), np.asarray(array[start:stop])
        assert (rows.dtype, rows.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(rows, expected)
        assert rows.flags.writeable


@pytest.mark.parametrize(
    "other",
    [
        {"compressors": None},
        {"chunks": (4, 1)},
        {"chunk_key_encoding": {"name": "v2"}},
        {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    ],
)
def test_find__leaves_arrays_of_other_kinds_to_zarr(tmp_path, other):
    values = np.arange(33, dtype=np.int32).reshape(11, 3)
    options = {"dtype": "int32", "chunks": (4, 3), **other}
    group = zarr.create_group(tmp_path / "group")
    group.create_array("a", shape=values.shape, **options)[...] = values
    assert ChunkedArray.find(tmp_path / "group" / "a") is None
    assert np.array_equal(read_array_rows(open_arrays(tmp_path / "group"), "a", 3, 9), values[3:9])


@pytest.mark.parametrize(
    "damage",
    [
        {"shape": [-1]},
        {"shape": [True]},
        {"shape": "11"},
        {"shape": []},
        {"data_type": "int31"},
        {"codecs": []},
        {"chunk_grid": {}},
        {"zarr_format": 2},
    ],
)
def test_find__knows_no_damaged_metadata(tmp_path, damage):
    write_arrays(tmp_path / "group", {"a": (np.arange(11), ("x",))}, {})
    path = tmp_path / "group" / "a" / "zarr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    assert ChunkedArray.find(path.parent) is None
    path.write_text("[" * 100_000)
    assert ChunkedArray.find(path.parent) is None


def test_read__refuses_chunks_of_another_size_or_content(tmp_path):
    write_arrays(
        tmp_path / "group", {"a": (np.arange(11), ("x",)), "b": (np.arange(5), ("x",))}, {}
    )
    chunk = tmp_path / "group" / "a" / "c" / "0"
    found = ChunkedArray.find(tmp_path / "group" / "a")
    assert found is not None
    whole = chunk.read_bytes()
    for content in (
        (tmp_path / "group" / "b" / "c" / "0").read_bytes(),
        whole[:-1],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        b"",
    ):
        chunk.write_bytes(content)
        with pytest.raises((OSError, RuntimeError, ValueError)):
            found.read(0, 11)
