import numpy as np

import pmflib as pmf
from pmflib_tasks.target.target_report import MAJORITY, MODEL, compare_predictions

VARIABLE = pmf.Variable("class", ("no", "yes"))


def predict(truth, chance):
    return np.stack([np.where(truth == level, chance, 1 - chance) for level in (0, 1)], axis=1)


def test_compare_predictions__go_by_two_standard_errors():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 100)
    even = np.full((100, 2), 0.5)
    good = compare_predictions(VARIABLE, truth, {MODEL: predict(truth, 0.9), MAJORITY: even})
    assert "'class' better" in good.verdict[0]
    bad = compare_predictions(
        VARIABLE, truth, {MODEL: predict(truth, rng.uniform(0.1, 0.3, 100)), MAJORITY: even}
    )
    assert "'class' worse" in bad.verdict[0]
    unsure = compare_predictions(
        VARIABLE, truth, {MODEL: predict(truth, rng.uniform(0.3, 0.7, 100)), MAJORITY: even}
    )
    assert "no better and no worse" in unsure.verdict[0]
    one = compare_predictions(VARIABLE, truth[:1], {MODEL: even[:1], MAJORITY: even[:1]})
    assert one.scores[MODEL]["log_loss"].error is None


def test_compare_predictions__many_levels_have_no_confusion_matrix():
    variable = pmf.Variable("place", tuple(map(str, range(60))))
    even = np.full((4, 60), 1 / 60)
    found = compare_predictions(variable, np.arange(4), {MODEL: even, MAJORITY: even})
    assert found.confusion is None
    assert found.levels is None
