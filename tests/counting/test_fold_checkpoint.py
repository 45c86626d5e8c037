import numpy as np

from pmflib.counting.fold_checkpoint import load_table, save_table


def test_save_table__and_load(tmp_path):
    path = tmp_path / "fold.npz"
    assert load_table(path) is None
    save_table(path, np.arange(4).reshape(2, 2), 7)
    save_table(path, np.arange(9).reshape(3, 3), 8)
    table, n_rows = load_table(path)
    assert table.tolist() == np.arange(9).reshape(3, 3).tolist()
    assert n_rows == 8
    assert [each.name for each in tmp_path.iterdir()] == ["fold.npz"]


def test_save_table__few_cells_take_little_room(tmp_path):
    table = np.zeros((1000, 1000), np.int64)
    table[3, 999] = 2**40
    save_table(tmp_path / "fold.npz", table, 5)
    assert (tmp_path / "fold.npz").stat().st_size < 10_000
    loaded, n_rows = load_table(tmp_path / "fold.npz")
    assert loaded.dtype == np.int64
    assert n_rows == 5
    np.testing.assert_array_equal(loaded, table)


def test_save_table__makes_the_folder_that_another_run_removed(tmp_path):
    save_table(tmp_path / "work" / "fold.npz", np.zeros((1, 1), np.int64), 0)
    assert load_table(tmp_path / "work" / "fold.npz")[1] == 0
