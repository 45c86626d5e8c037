"""Many nights of the benchmarks: healthy ones pass, accidents do not."""

import numpy as np
import pytest

from benchmarks.pipeline.accidents import GENERATORS, PLANS, Home, run_nights, shift_ratings
from benchmarks.pipeline.healthy_nights import check_log, check_nights
from benchmarks.pipeline.simulated_nights import make_rating_log, make_returning_log, make_survey
from benchmarks.pipeline.young_accidents import (
    HEALTHY,
    add_bots,
    deliver_well,
    overwrite_night,
    run_young,
    zero_earlier,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("make", [make_rating_log, make_survey], ids=["ratings", "survey"])
def test_healthy_nights__none_of_a_hundred_is_stopped(make):
    generator, rng = make(0), np.random.default_rng(0)
    nights = (generator.draw(rng) for _ in range(101))
    judged = list(check_nights(generator.schema, generator.layout, nights, 0))
    assert len(judged) == 100
    reached = [{finding.action for finding in findings} for findings in judged]
    assert not [each for each in reached if "stop" in each]
    assert sum("warn" in each for each in reached) <= 3


def test_healthy_nights__of_a_log_that_grows_none_of_a_hundred_is_stopped():
    log, rng = make_returning_log(10), np.random.default_rng(0)
    judged = list(check_log(log.schema, (log.draw(rng) for _ in range(101))))
    assert len(judged) == 100
    reached = [{finding.action for finding in findings} for findings in judged]
    assert not [each for each in reached if "stop" in each]
    # nights of a campaign are larger, and that is warned of
    assert sum("warn" in each for each in reached) <= 10


@pytest.mark.parametrize("pipeline", PLANS)
def test_accidents__every_one_is_held_back_or_warned_of(pipeline, tmp_path):
    outcomes = run_nights(tmp_path / pipeline, pipeline, 0)
    assert [each for each in outcomes if not each.is_right] == []
    assert {each.night for each in outcomes if each.accident} == set(PLANS[pipeline][1])


@pytest.mark.parametrize(
    ("pipeline", "accidents"),
    [
        ("survey", [deliver_well, shift_ratings, add_bots]),
        ("returning", [deliver_well, overwrite_night, zero_earlier]),
    ],
)
def test_young_accidents__are_held_back_after_two_nights(pipeline, accidents, tmp_path):
    home = Home(tmp_path / pipeline, GENERATORS[pipeline](0), np.random.default_rng([0, 4]))
    outcomes = list(run_young(home, pipeline, 2, accidents))
    assert [each.accident for each in outcomes] == [each.__name__ for each in accidents]
    held = {each.accident for each in outcomes if each.code == 6 and each.held}
    assert held == {each.__name__ for each in accidents if each not in HEALTHY}
