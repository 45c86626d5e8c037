import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import PseudoCounts
from pmflib.em import Checkpoint, LatentClasses, State, digest_fit
from pmflib.papers import Acceleration

FAMILY = LatentClasses(np.array([0, 3]), PseudoCounts(np.zeros(3)))


def open_checkpoint(folder, fit="a fit"):
    return Checkpoint(folder / "state.npz", fit, FAMILY.pack_state, FAMILY.unpack_state)


def test_checkpoint__is_gone_on_from_by_its_own_fit_alone(tmp_path):
    mine, other = open_checkpoint(tmp_path), open_checkpoint(tmp_path, "another")
    assert mine.load() is None
    mine.save(State((np.ones(1), np.ones((2, 1))), (0.5,)))
    before = mine.path.read_bytes()
    with pytest.raises(pmf.PmfError, match="checkpoint"):
        other.load()
    assert mine.path.read_bytes() == before
    assert mine.load().loss_history == (0.5,)


def test_checkpoint__leaves_alone_what_nobody_answers_for(tmp_path):
    checkpoint = open_checkpoint(tmp_path)
    np.savez(checkpoint.path, prior=np.ones(1))
    assert checkpoint.load() is None
    checkpoint.path.write_bytes(b"PK nonsense")
    assert checkpoint.load() is None


def test_checkpoint__of_an_earlier_version_is_refused(tmp_path):
    def read(arrays):
        return arrays["moved"]

    path = tmp_path / "state.npz"
    Checkpoint(path, "fit", lambda state: {"other": np.array(state)}, read).save(1)
    with pytest.raises(pmf.PmfError, match="moved"):
        Checkpoint(path, "fit", lambda state: {"other": np.array(state)}, read).load()


def test_digest_fit__tells_arrays_from_their_shapes_and_types():
    inputs = [np.zeros(4), np.zeros((2, 2)), np.zeros(4, np.int64), "0", 0, (1, 2), None]
    digests = {digest_fit(each) for each in inputs}
    # a number is its text
    assert len(digests) == len(inputs) - 1
    assert digest_fit("a", "b") != digest_fit("ab")


def test_em_state__is_loaded_to_the_same_bits(tmp_path):
    rng = np.random.default_rng(0)
    checkpoint = open_checkpoint(tmp_path)
    state = State((rng.random(2), rng.random((3, 2))), (0.1, 1 / 3), (-0.1, -1 / 3))
    checkpoint.save(state)
    loaded = checkpoint.load()
    assert loaded.parameters[1].tobytes() == state.parameters[1].tobytes()
    assert (loaded.loss_history, loaded.log_likelihoods) == (state.loss_history, (-0.1, -1 / 3))
    assert loaded.best is None
    assert loaded.acceleration is None
    best = State(
        (rng.random(2), rng.random((3, 2))),
        (0.1,),
        (0.2,),
        (0.3, 0.4),
        (rng.random(2), rng.random((3, 2))),
        best_pass=1,
        numbers={"gap": 2.0},
    )
    checkpoint.save(best)
    loaded = checkpoint.load()
    assert loaded.best[1].tobytes() == best.best[1].tobytes()
    assert loaded.held_out == (0.3, 0.4)
    assert (loaded.best_pass, loaded.numbers) == (1, {"gap": 2.0})


def test_em_state__keeps_the_acceleration(tmp_path):
    rng = np.random.default_rng(1)
    model = rng.random(2), rng.random((3, 2))
    pending = Acceleration(fallback=model, step_length=1.7, longest=4.0, passes_saved=1 / 3)
    for acceleration in (Acceleration(origin=model), pending):
        checkpoint = open_checkpoint(tmp_path)
        checkpoint.save(State(model, acceleration=acceleration))
        loaded = checkpoint.load().acceleration
        for name in ("origin", "fallback"):
            assert (getattr(loaded, name) is None) == (getattr(acceleration, name) is None)
        found = loaded.fallback or loaded.origin
        assert found[1].tobytes() == model[1].tobytes()
        steps = (acceleration.step_length, acceleration.longest, acceleration.passes_saved)
        assert (loaded.step_length, loaded.longest, loaded.passes_saved) == steps
