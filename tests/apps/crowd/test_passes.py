from functools import partial

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps.crowd import AnnotatorModel
from pmflib.apps.crowd.dawid_skene import DawidSkene
from pmflib.apps.crowd.pairs.annotator_model import MAXIMUM_LIKELIHOOD
from pmflib.base import Limits
from pmflib.em import run_em
from tests.apps.crowd.label_logs import CountedLabels, draw_log


class Killed(Exception):
    pass


@pytest.mark.parametrize("annotator_model", [AnnotatorModel(), MAXIMUM_LIKELIHOOD])
def test_dawid_skene__passes_go_on_from_a_checkpoint_to_the_same_bits(tmp_path, annotator_model):
    rng = np.random.default_rng(0)
    log, _ = draw_log(rng, n_tasks=200, n_workers=12, n_classes=3, n_labels=4)
    source = CountedLabels.from_log(pmf.crowd.read_labels(log))
    family = DawidSkene(annotator_model)

    def run(checkpoint=None, on_pass=None):
        return run_em(
            family,
            source,
            partial(family.begin, source),
            limits=Limits(12, 0.0),
            checkpoint=checkpoint,
            on_pass=on_pass,
        )

    def stop(fit):
        if fit.n_passes == 5:
            raise Killed

    whole = run()
    kept = family.open_checkpoint(tmp_path / "state.npz", source, annotator_model)
    with pytest.raises(Killed):
        run(kept, stop)
    source.n_passes = 0
    resumed = run(kept)
    assert source.n_passes == 7
    assert resumed.numbers == whole.numbers
    assert resumed.log_likelihoods == whole.log_likelihoods
    assert resumed.parameters.mass.tobytes() == whole.parameters.mass.tobytes()
    assert resumed.parameters.states.tobytes() == whole.parameters.states.tobytes()
    assert resumed.parameters.pseudo_count == whole.parameters.pseudo_count
