import math
import re

import pytest

from pmflib.core.comparison import PairedGain
from pmflib_tasks.scoring.comparison import choose_model


@pytest.mark.parametrize(
    ("gain", "error", "chosen", "reason"),
    [
        (0.03, 0.01, "traits", r"^continuous traits: .* 0\.0300 \+- 0\.0100 nats more .*\(500 ans"),
        (0.01, 0.01, "classes", r"^latent classes: .*more probable .*not above one standard error"),
        (
            -0.03,
            0.01,
            "classes",
            r"^latent classes: .* 0\.0300 \+- 0\.0100 nats less probable than",
        ),
    ],
)
def test_choose_model__by_one_standard_error(gain, error, chosen, reason):
    found = choose_model(PairedGain(gain, error, 500, 100))
    assert found.chosen == chosen
    assert re.search(reason, found.reason)
    assert found.to_json()["standard_error"] == error


def test_choose_model__fewer_than_two_samples_decide_nothing():
    for samples in (0, 1):
        found = choose_model(PairedGain(1.0, math.inf, samples, samples))
        assert found.chosen == "classes"
        assert "fewer than two" in found.reason
        assert found.to_json()["standard_error"] is None
