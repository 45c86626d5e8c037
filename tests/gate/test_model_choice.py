import math

import pytest

from pmflib.base import PairedGain
from pmflib_tasks.gate import choose_model


@pytest.mark.parametrize(
    ("gain", "error", "chosen"),
    [(0.03, 0.01, "traits"), (0.01, 0.01, "classes"), (-0.03, 0.01, "classes")],
)
def test_choose_model__by_one_standard_error(gain, error, chosen):
    found = choose_model(PairedGain(gain, error, 500, 100))
    assert found.chosen == chosen
    assert found.to_json()["standard_error"] == error


def test_choose_model__fewer_than_two_samples_decide_nothing():
    for samples in (0, 1):
        found = choose_model(PairedGain(1.0, math.inf, samples, samples))
        assert found.chosen == "classes"
        assert found.to_json()["standard_error"] is None
