import numpy as np
import pytest

from pmflib.base import StoreError
from pmflib.store import (
    create_array,
    open_group,
    open_zarr,
    read_array_rows,
    read_arrays,
    refuse_damage,
    write_arrays,
)


@pytest.fixture
def path(tmp_path):
    arrays = {
        "table": (np.arange(6.0).reshape(2, 3), ("row", "column")),
        "none": (np.empty((0, 3), np.int8), ("row", "column")),
    }
    write_arrays(tmp_path / "group", arrays, {"kind": "test", "units": "nats"})
    return tmp_path / "group"


def test_read_arrays__gives_back_what_was_written(path):
    arrays, attributes = read_arrays(path)
    assert sorted(arrays) == ["none", "table"]
    assert arrays["table"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["none"].shape == (0, 3)
    assert arrays["none"].dtype == np.int8
    assert attributes == {"kind": "test", "units": "nats"}
    assert list(read_arrays(path, ["table"])[0]) == ["table"]


def test_write_arrays__any_reader_finds_the_names_of_dimensions(path):
    found = open_zarr(path, "r")["table"]
    assert found.metadata.dimension_names == ("row", "column")  # type: ignore[union-attr]
    assert found.metadata.zarr_format == 3
    assert found[...].tolist() == [[0, 1, 2], [3, 4, 5]]  # type: ignore[index, union-attr]


def test_write_arrays__equal_content_is_equal_bytes(path, tmp_path):
    from pmflib.store import digest_tree

    arrays, attributes = read_arrays(path)
    again = {name: (values, ("row", "column")) for name, values in reversed(arrays.items())}
    write_arrays(tmp_path / "again", again, attributes)
    assert digest_tree(tmp_path / "again") == digest_tree(path)


def test_create_array__is_chunked_along_its_first_dimension(path):
    group = open_zarr(path, "a")
    small = create_array(group, "small", (10, 3), np.int64, ("row", "column"), chunk_rows=4)
    assert small.chunks == (4, 3)
    large = create_array(group, "large", (10**6, 1000), np.int8, ("row", "column"))
    assert large.chunks == (4194, 1000)
    huge = create_array(group, "huge", (2, 10**7), np.int8, ("row", "column"))
    assert huge.chunks == (1, 10**7)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float64", "bool"])
@pytest.mark.parametrize("n_rows", [1, 3, 4, 9])
def test_read_array_rows__any_rows_of_any_chunks(path, dtype, n_rows):
    values = (np.arange(3 * n_rows).reshape(n_rows, 3) % 5).astype(dtype)
    created = create_array(
        open_zarr(path, "a"), "many", values.shape, values.dtype, ("row", "column"), chunk_rows=4
    )
    created[...] = values
    group = open_group(path)
    assert "many" in group
    assert "few" not in group
    for start in range(n_rows + 1):
        for stop in range(start, n_rows + 1):
            found = read_array_rows(group, "many", start, stop)
            assert found.dtype == values.dtype
            assert np.array_equal(found, values[start:stop])
    # who reads them may change them
    found[...] = 0


def test_read_arrays__refuses_what_is_missing_or_damaged(path, tmp_path):
    with pytest.raises(StoreError, match="nowhere"):
        read_arrays(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="absent"):
        read_arrays(path, ["absent"])
    (path / "table" / "c" / "0" / "0").write_bytes(b"garbage")
    with pytest.raises(StoreError, match="'group'"):
        read_arrays(path)


def test_read_arrays__tells_what_the_group_holds(path):
    assert read_arrays(path, [], kind="test")[1]["kind"] == "test"
    with pytest.raises(StoreError, match="holds 'test', not 'model'"):
        read_arrays(path, [], kind="model")


def test_refuse_damage__memory_that_a_machine_could_have_is_no_damage(tmp_path):
    with pytest.raises(MemoryError), refuse_damage(tmp_path):
        raise MemoryError
    with pytest.raises(RuntimeError), refuse_damage(tmp_path):
        raise RuntimeError("can't start new thread")
    # metadata that were damaged ask for more than there is
    with pytest.raises(StoreError, match=tmp_path.name), refuse_damage(tmp_path):
        np.ones(1 << 60, np.uint8)
