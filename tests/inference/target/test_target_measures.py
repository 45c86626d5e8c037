import math

import numpy as np
import pytest

from pmflib.model import TargetSums, score_target

PMF = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])


def test_score_target__accuracy_and_log_loss_with_errors():
    truths = np.array([0, 0, -1, 0], np.int8)
    measures = score_target(PMF, truths).measure()
    losses = -np.log([0.7, 0.2, 0.9])
    assert (measures["judged"], measures["truth_missing"]) == (3, 1)
    assert measures["accuracy"] == pytest.approx(2 / 3)
    assert measures["accuracy_error"] == pytest.approx(math.sqrt(2 / 9 / 3))
    assert measures["log_loss"] == pytest.approx(losses.mean())
    assert measures["log_loss_error"] == pytest.approx(losses.std(ddof=1) / math.sqrt(3))


@pytest.mark.parametrize("n_rows", [0, 2])
def test_score_target__no_truth_is_known(n_rows):
    sums = score_target(PMF[:n_rows], np.full(n_rows, -1, np.int8))
    assert sums.measure() == {"judged": 0, "truth_missing": n_rows}


def test_score_target__one_row_has_no_error_of_its_log_loss():
    measures = score_target(PMF[:1], np.array([1], np.int8)).measure()
    assert measures["accuracy"] == 0
    assert "log_loss_error" not in measures


def test_merge__is_all_rows_at_once():
    truths = np.array([0, 1, 1, -1], np.int8)
    parts = [score_target(PMF[:2], truths[:2]), score_target(PMF[2:], truths[2:])]
    assert TargetSums.merge(parts).measure() == pytest.approx(score_target(PMF, truths).measure())
    assert TargetSums.merge([]) == TargetSums()
