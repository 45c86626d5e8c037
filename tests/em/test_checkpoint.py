import numpy as np

from pmflib.em.checkpoint import load_state, save_state
from pmflib.em.joint_pmf_em import EMState
from pmflib.solvers.numeric.squarem import Acceleration


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
    assert loaded.acceleration is None
    best = EMState(
        rng.random(2),
        rng.random((3, 2)),
        (0.1,),
        (0.2,),
        (0.3, 0.4),
        rng.random(2),
        rng.random((3, 2)),
    )
    save_state(path, best)
    loaded = load_state(path)
    assert loaded.best_factors.tobytes() == best.best_factors.tobytes()
    assert loaded.held_out == (0.3, 0.4)


def test_save_state__keeps_the_acceleration(tmp_path):
    rng = np.random.default_rng(1)
    model = rng.random(2), rng.random((3, 2))
    pending = Acceleration(fallback=model, step_length=1.7, longest=4.0, passes_saved=1 / 3)
    for acceleration in (Acceleration(origin=model), pending):
        save_state(tmp_path / "state.npz", EMState(*model, acceleration=acceleration))
        loaded = load_state(tmp_path / "state.npz").acceleration
        for name in ("origin", "fallback"):
            assert (getattr(loaded, name) is None) == (getattr(acceleration, name) is None)
        found = loaded.fallback or loaded.origin
        assert found[1].tobytes() == model[1].tobytes()
        steps = (acceleration.step_length, acceleration.longest, acceleration.passes_saved)
        assert (loaded.step_length, loaded.longest, loaded.passes_saved) == steps
