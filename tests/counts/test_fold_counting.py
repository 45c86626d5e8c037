import numpy as np

from pmflib.counts.stored_pairs import load_table, save_table


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
