import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from pmflib.model import count_confusion, describe_bins, measure_all, sum_bins


def draw(n_rows, n_levels, seed=0):
    rng = np.random.default_rng(seed)
    pmf = rng.dirichlet(np.ones(n_levels), n_rows).round(2)
    pmf /= pmf.sum(axis=1, keepdims=True)
    truth = np.array([rng.choice(n_levels, p=p) for p in pmf])
    return pmf, truth


def test_measure_all__equals_scikit_learn():
    pmf, truth = draw(300, 3)
    found = measure_all(pmf, truth)
    assert found["accuracy"].value == np.mean(pmf.argmax(axis=1) == truth)
    chances = np.clip(pmf, 1e-300, 1)
    expected = -np.log(chances[np.arange(300), truth]).mean()
    assert found["log_loss"].value == pytest.approx(expected)
    positive = pmf[np.arange(300), truth] > 0
    assert measure_all(pmf[positive], truth[positive])["log_loss"].value == pytest.approx(
        log_loss(truth[positive], pmf[positive])
    )
    assert found["auc"].value == pytest.approx(roc_auc_score(truth, pmf, multi_class="ovr"))
    assert found["brier"].value == pytest.approx(((pmf - np.eye(3)[truth]) ** 2).sum(axis=1).mean())
    for each in found.values():
        assert abs(each.influences.mean()) < 1e-12


def test_measure_all__errors_are_those_of_many_draws():
    draws = [measure_all(*draw(200, 3, seed)) for seed in range(300)]
    for key in ("accuracy", "log_loss", "auc", "brier"):
        spread = np.std([each[key].value for each in draws])
        assert np.mean([each[key].error for each in draws]) == pytest.approx(spread, rel=0.12), key


def test_measure_all__difference_to_itself_is_none():
    pmf, truth = draw(50, 4)
    first, second = measure_all(pmf, truth), measure_all(pmf.copy(), truth)
    assert all(first[key].less(second[key]) == (0, 0) for key in first)


def test_measure_all__whole_weights_have_the_values_of_rows_again():
    pmf, truth = draw(200, 3, 5)
    often = np.random.default_rng(6).integers(1, 5, 200)
    weighted = measure_all(pmf, truth, often.astype(np.float64) / 2)
    again = measure_all(np.repeat(pmf, often, axis=0), np.repeat(truth, often))
    for key, each in weighted.items():
        assert each.value == pytest.approx(again[key].value, abs=1e-12), key
        assert abs(each.influences.mean()) < 1e-12
    # a weighted mean is less sure than one of as many rows alike
    assert weighted["brier"].error > measure_all(pmf, truth)["brier"].error


def test_measure_all__one_level_and_one_row():
    one_level = measure_all(np.ones((5, 1)), np.zeros(5, int))
    assert one_level["accuracy"].value == 1
    assert np.isnan(one_level["auc"].value)
    one_row = measure_all(np.array([[0.25, 0.75]]), np.array([0]))
    assert one_row["log_loss"].value == pytest.approx(np.log(4))
    assert np.isnan(one_row["log_loss"].error)


def test_measure_all__calibration_error_by_hand():
    pmf = np.array([[0.9, 0.1]] * 4 + [[0.35, 0.65]] * 2)
    truth = np.array([0, 0, 1, 1, 1, 1])
    # .9 against 2 of 4, .65 against 2 of 2
    expected = (4 * 0.4 + 2 * 0.35) / 6
    assert measure_all(pmf, truth)["calibration_error"].value == pytest.approx(expected)
    first, second = describe_bins(sum_bins(pmf, truth))
    assert (first["from"], first["rows"], first["accuracy"]) == (0.6, 2, 1.0)
    assert (second["to"], second["rows"], second["accuracy"]) == (1.0, 4, 0.5)
    assert count_confusion(pmf, truth).tolist() == [[2, 0], [2, 2]]
