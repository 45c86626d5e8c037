import numpy as np
import pytest

from pmflib.crowd.e_step import evaluate_blocks
from pmflib.crowd.label_log import read_labels
from pmflib.crowd.passes import run_passes, start_from_votes
from pmflib.crowd.pipeline.checkpoint import load_fit, save_fit
from pmflib.crowd.votes import add_votes
from pmflib.solvers.crowd.annotator_model import MAXIMUM_LIKELIHOOD, AnnotatorModel
from tests.crowd.label_logs import draw_log


class Killed(Exception):
    pass


@pytest.mark.parametrize("annotator_model", [AnnotatorModel(), MAXIMUM_LIKELIHOOD])
def test_save_fit__passes_go_on_to_the_same_bits(tmp_path, annotator_model):
    rng = np.random.default_rng(0)
    log, _ = draw_log(rng, n_tasks=200, n_workers=12, n_classes=3, n_labels=4)
    blocks = [add_votes(read_labels(log).block, 3)]
    n_passes = 0

    def evaluate(weights):
        nonlocal n_passes
        n_passes += 1
        return evaluate_blocks(blocks, weights)

    def run(start=None, on_pass=None):
        start = start or start_from_votes(evaluate, 12, 3, annotator_model)
        return run_passes(evaluate, start, max_passes=12, tol=0.0, on_pass=on_pass)

    def keep(fit):
        save_fit(tmp_path / "state.npz", fit)
        if fit.n_passes == 5:
            raise Killed

    whole = run()
    with pytest.raises(Killed):
        run(on_pass=keep)
    n_passes = 0
    resumed = run(load_fit(tmp_path / "state.npz", annotator_model))
    assert n_passes == 7
    assert resumed.moved == whole.moved
    assert resumed.log_likelihoods == whole.log_likelihoods
    assert resumed.model.mass.tobytes() == whole.model.mass.tobytes()
    assert resumed.model.states.tobytes() == whole.model.states.tobytes()
    assert resumed.model.pseudo_count == whole.model.pseudo_count


def test_load_fit__nothing_and_nonsense(tmp_path):
    assert load_fit(tmp_path / "state.npz", AnnotatorModel()) is None
    (tmp_path / "state.npz").write_bytes(b"PK nonsense")
    assert load_fit(tmp_path / "state.npz", AnnotatorModel()) is None
