import numpy as np
import pandas as pd
import pytest

import pmflib as pmf
from pmflib.base import read_weights

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 2, 400)
TABLE = pd.DataFrame(
    {
        f"q{n}": np.where(RNG.random(400) < np.where(CLASSES == 1, 0.85, 0.2), "yes", "no")
        for n in range(4)
    }
)
WEIGHT = pd.Series(np.where(TABLE.q0 == "yes", 1.4, 0.6))


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e-6, 1e-4 / 3, 1.0, 1e9])
def test_weights__only_their_ratios_count(scale):
    found = read_weights(WEIGHT * scale, 400)
    shares = found.units / found.units.sum()
    np.testing.assert_allclose(shares, WEIGHT / WEIGHT.sum(), rtol=1e-5)
    fitted = pmf.fit_em(TABLE, rank=2, weight=WEIGHT * scale, pseudo_count=1.0, max_passes=30)
    chance = fitted.model.marginal(["q0"])[list(fitted.model.schema["q0"].levels).index("yes")]
    truth = WEIGHT[TABLE.q0 == "yes"].sum() / WEIGHT.sum()
    assert chance == pytest.approx(truth, abs=0.01)


def test_weights__of_a_million_rows_that_sum_to_1_keep_their_ratios():
    weight = np.random.default_rng(1).uniform(0.6, 1.4, 1_000_000)
    weight /= weight.sum()
    found = read_weights(weight, weight.size)
    np.testing.assert_allclose(found.units / found.units.sum(), weight, rtol=1e-5)


@pytest.mark.parametrize(("small", "decimals"), [(1e-12, None), (0.004, 2), (0.01234, 4)])
def test_weights__that_rounding_changes_by_more_than_a_thousandth_are_named(small, decimals):
    weight = np.ones(9)
    weight[[0, 3]] = 1e8 / 3, small
    with pytest.raises(pmf.PmfError, match=r"weight\[3\]"):
        read_weights(weight, 9, decimals=decimals)


def fit_classifier(order):
    return pmf.PMFClassifier(2).fit(TABLE, WEIGHT[order] > 1)


def fit_group(order):
    return pmf.families.fit_groups(TABLE, (WEIGHT[order] > 1).astype(str), rank=1)


MODEL = pmf.fit_em(TABLE, rank=2, pseudo_count=1.0, max_passes=30).model


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda order: pmf.fit_em(TABLE, rank=1, weight=WEIGHT[order]), "weight"),
        (
            lambda order: pmf.fit_em(TABLE, rank=1, weight=pmf.surveys.SurveyDesign(WEIGHT[order])),
            "weight",
        ),
        (lambda order: pmf.surveys.SurveyDesign(WEIGHT, stratum=TABLE.q1[order]), "stratum"),
        (lambda order: pmf.count_pairs(TABLE, weight=WEIGHT[order]), "weight"),
        (
            lambda order: pmf.families.fit_traits(TABLE, weight=WEIGHT[order], dimensions=0),
            "weight",
        ),
        (
            lambda order: pmf.apps.PMFDensity(1).fit(TABLE, sample_weight=WEIGHT[order]),
            "sample_weight",
        ),
        (lambda order: fit_classifier(order), "y"),
        (lambda order: fit_group(order), "group"),
        (lambda order: pmf.inference.classify(MODEL, TABLE, weight=WEIGHT[order]), "weight"),
        (lambda order: pmf.inference.distal_outcome(MODEL, TABLE, WEIGHT[order]), "outcome"),
        (
            lambda order: pmf.inference.class_regression(MODEL, TABLE, TABLE[["q1"]].loc[order]),
            "covariates",
        ),
    ],
)
def test_columns__in_another_order_of_the_index_are_refused(call, name):
    call(TABLE.index)
    with pytest.raises(pmf.PmfError, match=name):
        call(TABLE.index[::-1])


def test_columns__of_other_rows_are_taken_by_position():
    weight = WEIGHT.set_axis(np.arange(1000, 1400))
    found = pmf.count_pairs(TABLE, weight=weight).weights
    assert found == pmf.count_pairs(TABLE, weight=WEIGHT).weights
