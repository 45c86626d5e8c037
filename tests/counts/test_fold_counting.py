from typing import Any

import numpy as np
import pytest
import zarr

from pmflib.counts import CountsWriter, PairCounts
from pmflib.counts.stored_pairs import load_table, save_table
from tests.pipelines import make_schema


def test_save_table__and_load(tmp_path):
    path = tmp_path / "fold.npz"
    assert load_table(path) is None
    save_table(path, np.arange(4).reshape(2, 2))
    save_table(path, np.arange(9).reshape(3, 3))
    assert load_table(path).tolist() == np.arange(9).reshape(3, 3).tolist()
    assert [each.name for each in tmp_path.iterdir()] == ["fold.npz"]


def test_save_table__few_cells_take_little_room(tmp_path):
    table = np.zeros((1000, 1000), np.int64)
    table[3, 999] = 2**40
    save_table(tmp_path / "fold.npz", table)
    assert (tmp_path / "fold.npz").stat().st_size < 10_000
    loaded = load_table(tmp_path / "fold.npz")
    assert loaded.dtype == np.int64
    np.testing.assert_array_equal(loaded, table)


def test_save_table__dense_cells_take_a_byte_or_less(tmp_path):
    table = np.random.default_rng(0).integers(0, 250, (300, 300))
    save_table(tmp_path / "fold.npz", table)
    assert (tmp_path / "fold.npz").stat().st_size < 1.1 * table.size
    np.testing.assert_array_equal(load_table(tmp_path / "fold.npz"), table)


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [
        ((100, 0, 127), np.uint8),
        ((0, 100, 3), np.uint8),
        ((160, 200, 250), np.uint8),
        ((200, 7, 300), np.uint16),
        # folds that are much larger than those before
        ((3, 260, 1 << 40), np.int64),
        ((1 << 62, 1, 2), np.int64),
        # an empty fold after one that needed wider integers
        ((3, 300, 0), np.uint16),
    ],
)
def test_counts_writer__smallest_integers_that_hold_the_tables(tmp_path, largest, dtype):
    schema = make_schema(2, 3)
    tables = np.triu(np.arange(25).reshape(5, 5) % 3) * np.ones((3, 1, 1), np.int64)
    tables[:, 0, 4] = largest
    tables[tables[:, 0, 4] == 0] = 0
    writer = CountsWriter(tmp_path / "pairs", schema, 3)
    for fold, table in enumerate(tables):
        writer.write(fold, table, 7)
    writer.close()
    group: Any = zarr.open_group(tmp_path / "pairs", mode="r")
    assert group["counts"].dtype == dtype
    assert "narrow" not in group
    found = PairCounts.load(tmp_path / "pairs").tables
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, tables)
