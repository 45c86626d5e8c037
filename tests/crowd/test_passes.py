from functools import partial

import numpy as np
import pytest

import pmflib as pmf
from pmflib.crowd.e_step import add_votes, evaluate_blocks
from pmflib.crowd.passes import CrowdFit, run_passes, start_from_votes
from pmflib.em.checkpoint import Checkpoint
from pmflib.solvers.crowd.annotator_model import MAXIMUM_LIKELIHOOD, AnnotatorModel
from tests.crowd.label_logs import draw_log


class Killed(Exception):
    pass


@pytest.mark.parametrize("annotator_model", [AnnotatorModel(), MAXIMUM_LIKELIHOOD])
def test_run_passes__go_on_from_a_checkpoint_to_the_same_bits(tmp_path, annotator_model):
    rng = np.random.default_rng(0)
    log, _ = draw_log(rng, n_tasks=200, n_workers=12, n_classes=3, n_labels=4)
    blocks = [add_votes(pmf.crowd.read_labels(log).block, 3)]
    n_passes = 0

    def evaluate(weights):
        nonlocal n_passes
        n_passes += 1
        return evaluate_blocks(blocks, weights)

    def run(checkpoint=None, on_pass=None):
        return run_passes(
            evaluate,
            partial(start_from_votes, evaluate, 12, 3, annotator_model),
            max_passes=12,
            tol=0.0,
            checkpoint=checkpoint,
            on_pass=on_pass,
        )

    def stop(fit):
        if fit.n_passes == 5:
            raise Killed

    whole = run()
    unpack = partial(CrowdFit.from_arrays, annotator_model)
    kept = Checkpoint(tmp_path / "state.npz", "a fit", CrowdFit.to_arrays, unpack)
    with pytest.raises(Killed):
        run(kept, stop)
    n_passes = 0
    resumed = run(kept)
    assert n_passes == 7
    assert resumed.moved == whole.moved
    assert resumed.log_likelihoods == whole.log_likelihoods
    assert resumed.model.mass.tobytes() == whole.model.mass.tobytes()
    assert resumed.model.states.tobytes() == whole.model.states.tobytes()
    assert resumed.model.pseudo_count == whole.model.pseudo_count
