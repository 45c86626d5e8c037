import json
import math

import numpy as np
import pytest

from pmflib.base import (
    Comparison,
    PairedDifference,
    compare_candidates,
    compare_folds,
    compare_samples,
    estimate_gain,
    tabulate_comparison,
)

PSEUDO_COUNTS = [{"pseudo_count": each} for each in (0.1, 1.0, 2.0)]


def test_paired_differences__agree_on_samples_sums_and_folds_of_one_pair():
    rng = np.random.default_rng(0)
    better, worse = rng.normal(size=50), rng.normal(size=50)
    gains = better - worse
    expected = gains.mean(), gains.std(ddof=1) / math.sqrt(50)
    assert compare_samples(better, worse) == pytest.approx(expected)
    assert estimate_gain(np.array([50, gains.sum(), (gains**2).sum()])) == pytest.approx(expected)
    assert compare_folds(better, worse, np.ones(50, int)) == pytest.approx(expected)


def test_compare_folds__equal_folds_give_the_textbook_error():
    better, worse = np.array([3.0, 5.0, 4.0]), np.array([1.0, 1.0, 1.0])
    mean, error = compare_folds(better, worse, np.array([10, 10, 10]))
    each = (better - worse) / 10
    assert mean == pytest.approx(each.mean())
    assert error == pytest.approx(each.std(ddof=1) / np.sqrt(3))
    # a fold that has nothing more to say per pair adds nothing to the error
    assert compare_folds(np.array([1.0, 2.0]), np.zeros(2), np.array([10, 20])).error == 0


def test_is_distinct__by_more_than_one_standard_error():
    assert PairedDifference(0.3, 0.2).is_distinct
    assert not PairedDifference(0.2, 0.2).is_distinct
    assert not PairedDifference(5.0, math.inf).is_distinct


@pytest.mark.parametrize(
    ("losses", "least", "largest"),
    [
        ([(0.0, 0.0), (0.2, 0.3), (0.4, 0.3)], 0.1, 1.0),
        ([(0.0, 0.0), (0.4, 0.3), (0.2, 0.3)], 0.1, 2.0),
        ([(0.0, 0.0), (0.2, 0.1), (0.2, 0.1)], 0.1, 0.1),
        ([(0.2, 0.3), (0.1, 0.2), (0.0, 0.0)], 0.1, 2.0),
        ([(0.2, 0.1), (0.1, 0.2), (0.0, 0.0)], 1.0, 2.0),
    ],
)
def test_compare_candidates__stays_within_one_standard_error(losses, least, largest):
    for rule, expected in (("least", least), ("first", least), ("largest", largest)):
        found = compare_candidates(
            "sample",
            PSEUDO_COUNTS,
            [-loss for loss, _ in losses],
            subtract=lambda best, other: losses[other],
            rule=rule,  # type: ignore[arg-type]
        )
        assert found.chosen.settings["pseudo_count"] == expected
        assert found.best.below_best == 0


def test_compare_candidates__what_is_not_settled_is_not_distinguished():
    found = compare_candidates(
        "pair",
        [{"rank": 1}, {"rank": 2}],
        [-2.0, -1.0],
        subtract=lambda best, other: (0.0, 0.0) if other == best else (1.0, 0.6),
        unconverged=[0.5, 0.0],
        rule="least",
    )
    assert found.chosen.settings == {"rank": 1}


def test_compare_candidates__scores_alone_take_the_first_of_the_best():
    found = compare_candidates(
        "sample", [{"start": each} for each in ("auto", "random")], [-1.0, -1.0]
    )
    assert found.chosen is found.best is found.points[0]
    assert [each.error for each in found.points] == [None, None]


def test_to_json__is_plain_and_reads_back():
    found = compare_candidates("sample", PSEUDO_COUNTS, [-3.0, -1.0, -2.0], chosen=2)
    content = json.loads(json.dumps(found.to_json()))
    assert Comparison.from_json(content) == found
    assert Comparison.from_json(content).to_json() == content
    assert (content["best"], content["chosen"]) == (1, 2)


def test_tabulate_comparison__a_row_for_every_candidate_and_a_mark_at_the_choice():
    found = compare_candidates("sample", PSEUDO_COUNTS, [-3.1234567, -1.0, -2.0])
    table = tabulate_comparison(found)
    assert table.columns == (">pseudo-count", ">score", ">below the best", "")
    assert table.rows[0] == ("0.1", "-3.1235", "2.12", "")
    assert "| 1 | -1.0000 | best | chosen |" in table.to_markdown()


def test_estimate_gain__one_sample_has_no_error():
    assert estimate_gain(np.array([1.0, 0.5, 0.25])) == (0.5, math.inf)
    assert estimate_gain(np.zeros(3)) == (0.0, math.inf)
