from typing import Any

import numpy as np
import pytest

from pmflib.crowd.label_log import read_answers
from pmflib.crowd.passes import evaluate_blocks, run_passes
from pmflib.crowd.pipeline.checkpoint import load_fit, save_fit
from pmflib.crowd.votes import add_votes
from pmflib.solvers.crowd.annotator_model import Rule
from tests.crowd.label_logs import draw_log


class Killed(Exception):
    pass


@pytest.mark.parametrize("rule", [Rule(), Rule(strength=0.0, variational=False, votes=False)])
def test_save_fit__passes_go_on_to_the_same_bits(tmp_path, rule):
    rng = np.random.default_rng(0)
    log, _ = draw_log(rng, n_tasks=200, n_workers=12, n_classes=3, n_answers=4)
    blocks = [add_votes(read_answers(log).block, 3)]
    n_passes = 0

    def evaluate(*weights):
        nonlocal n_passes
        n_passes += 1
        return evaluate_blocks(blocks, *weights)

    def run(start=None, on_pass=None):
        limits: dict[str, Any] = {"n_classes": 3, "max_passes": 12, "tol": 0.0}
        return run_passes(evaluate, 12, rule, start=start, on_pass=on_pass, **limits)

    def keep(fit):
        save_fit(tmp_path / "state.npz", fit)
        if len(fit.moved) == 5:
            raise Killed

    whole = run()
    with pytest.raises(Killed):
        run(on_pass=keep)
    n_passes = 0
    resumed = run(load_fit(tmp_path / "state.npz", rule))
    assert n_passes == 7
    assert resumed.moved == whole.moved
    assert resumed.log_likelihoods == whole.log_likelihoods
    assert resumed.annotators.mass.tobytes() == whole.annotators.mass.tobytes()
    assert resumed.annotators.states.tobytes() == whole.annotators.states.tobytes()
    assert resumed.annotators.strength == whole.annotators.strength


def test_load_fit__nothing_and_nonsense(tmp_path):
    assert load_fit(tmp_path / "state.npz", Rule()) is None
    (tmp_path / "state.npz").write_bytes(b"PK nonsense")
    assert load_fit(tmp_path / "state.npz", Rule()) is None
