import numpy as np

from pmflib.store import load_arrays, save_arrays


def test_save_arrays__replaces_the_file_before(tmp_path):
    path = tmp_path / "state.npz"
    assert load_arrays(path) is None
    save_arrays(path, {"a": np.arange(3), "b": np.array(1 / 3)})
    save_arrays(path, {"a": np.arange(4)})
    arrays = load_arrays(path)
    assert list(arrays) == ["a"]
    assert arrays["a"].tolist() == [0, 1, 2, 3]
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]


def test_load_arrays__damaged_file_is_no_checkpoint(tmp_path):
    path = tmp_path / "state.npz"
    save_arrays(path, {"a": np.arange(100)})
    path.write_bytes(path.read_bytes()[:-40])
    assert load_arrays(path) is None
