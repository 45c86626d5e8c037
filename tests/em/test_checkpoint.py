import numpy as np

from pmflib.em.checkpoint import load_state, load_table, save_state, save_table
from pmflib.em.loop import EMState


def test_save_table__and_load(tmp_path):
    path = tmp_path / "fold.npz"
    assert load_table(path) is None
    save_table(path, np.arange(4).reshape(2, 2), 7)
    save_table(path, np.arange(9).reshape(3, 3), 8)
    loaded = load_table(path)
    assert loaded is not None
    table, n_rows = loaded
    assert table.tolist() == np.arange(9).reshape(3, 3).tolist()
    assert n_rows == 8
    assert [each.name for each in tmp_path.iterdir()] == ["fold.npz"]


def test_save_table__few_cells_take_little_room(tmp_path):
    table = np.zeros((1000, 1000), np.int64)
    table[3, 999] = 2**40
    save_table(tmp_path / "fold.npz", table, 5)
    assert (tmp_path / "fold.npz").stat().st_size < 10_000
    found = load_table(tmp_path / "fold.npz")
    assert found is not None
    loaded, n_rows = found
    assert loaded.dtype == np.int64
    assert n_rows == 5
    np.testing.assert_array_equal(loaded, table)


def test_save_table__makes_the_folder_that_another_run_removed(tmp_path):
    save_table(tmp_path / "work" / "fold.npz", np.zeros((1, 1), np.int64), 0)
    loaded = load_table(tmp_path / "work" / "fold.npz")
    assert loaded is not None
    assert loaded[1] == 0


def test_save_state__and_load_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "state.npz"
    assert load_state(path) is None
    state = EMState(rng.random(2), rng.random((3, 2)), (0.1, 1 / 3), (-0.1, -1 / 3))
    save_state(path, state)
    loaded = load_state(path)
    assert loaded.factors.tobytes() == state.factors.tobytes()
    assert (loaded.loss_history, loaded.log_likelihoods) == (state.loss_history, (-0.1, -1 / 3))
    assert loaded.best_prior is loaded.best_factors is None
    assert loaded.converged is False
    best = EMState(
        rng.random(2),
        rng.random((3, 2)),
        (0.1,),
        (0.2,),
        (0.3, 0.4),
        rng.random(2),
        rng.random((3, 2)),
        True,
    )
    save_state(path, best)
    loaded = load_state(path)
    assert loaded.best_factors.tobytes() == best.best_factors.tobytes()
    assert (loaded.held_out, loaded.converged) == ((0.3, 0.4), True)
