from typing import Any, cast

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import MemoryPlanError, PmfError
from pmflib.inference.planning import bound_sample_size, sample_size
from pmflib.model import planted_factors
from tests.inference.errors.test_standard_errors import draw_fit, plant


def make_coins(n_variables, share=0.3):
    schema = pmf.Schema.from_cardinalities([2] * n_variables)
    return pmf.JointPMF(np.ones(1), np.tile([[share], [1 - share]], (n_variables, 1)), schema)


@pytest.mark.parametrize("n_variables", [1, 3])
def test_sample_size__a_share_takes_its_variance_over_the_squared_error(n_variables):
    found = sample_size(make_coins(n_variables), 0.02)
    assert found.n_rows == pytest.approx(0.3 * 0.7 / 0.02**2, rel=0.03)
    assert found.find_error(found.n_rows) == pytest.approx(0.02, rel=0.01)


def test_sample_size__gaps_take_rows_in_proportion():
    whole, half = (sample_size(make_coins(3), 0.05, observed=p).n_rows for p in (1.0, 0.5))
    assert half == pytest.approx(2 * whole, rel=0.05)
    # one variable of three is rarely asked
    rare = sample_size(make_coins(3), 0.05, observed=np.array([1.0, 1.0, 0.1]), of="factors")
    assert rare.n_rows == pytest.approx(whole * (1 + 1 + 10) / 3, rel=0.06)


@pytest.mark.parametrize("of", ["answers", "factors"])
def test_sample_size__fits_have_the_error_that_is_foretold(of):
    truth = plant([3, 3, 2, 3], 2, seed=3, concentration=0.3)
    n_rows = sample_size(truth, 0.03, observed=0.9, of=of).n_rows
    squares = []
    for seed in range(12):
        model = draw_fit(truth, n_rows, seed=seed)[1]
        if of == "factors":
            squares.append(np.mean((model.factors - truth.factors) ** 2))
            continue
        total, mass = 0.0, 0.0
        for rows in map(truth.schema.rows_of, range(4)):
            # squared errors of P(others | each level), by the share of the level
            share = truth.factors[rows] @ truth.prior
            tables = [
                (each.factors * each.prior)
                @ each.factors[rows].T
                / (each.factors[rows] @ each.prior)
                for each in (model, truth)
            ]
            off = np.delete((tables[0] - tables[1]) ** 2 * share, rows, axis=0)
            total, mass = total + off.sum(), mass + share.sum() * len(off)
        squares.append(total / mass)
    assert 1 / 1.5 < np.mean(squares) / 0.03**2 < 1.5


def test_sample_size__what_no_rows_determine_is_left_out():
    # two states of one variable are one
    prior, factors = planted_factors([3], 2, np.random.default_rng(0))
    model = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities([3]))
    with pytest.raises(PmfError, match="determined"):
        sample_size(model, 0.02, of="factors")
    shares = factors @ prior
    expected = np.mean(shares * (1 - shares)) / 0.02**2
    assert sample_size(model, 0.02).n_rows == pytest.approx(expected, rel=0.05)


def test_sample_size__refusals():
    model = make_coins(2)
    for accuracy in (0, 1, -0.1):
        with pytest.raises(PmfError, match="accuracy"):
            sample_size(model, accuracy)
    with pytest.raises(PmfError, match="observed"):
        sample_size(model, 0.02, observed=1.5)
    with pytest.raises(PmfError, match="observed"):
        sample_size(model, 0.02, observed=0.0)
    with pytest.raises(PmfError, match="of is"):
        sample_size(model, 0.02, of=cast(Any, "means"))
    wide = pmf.JointPMF(
        np.full(2, 0.5), np.full((3000, 2), 0.5), pmf.Schema.from_cardinalities([2] * 1500)
    )
    with pytest.raises(MemoryPlanError, match="entries"):
        sample_size(wide, 0.02)


def test_bound_sample_size__rates_of_the_theorems():
    one = bound_sample_size(10, 4, 3, 0.02)
    assert bound_sample_size(10, 4, 3, 0.01) == pytest.approx(4 * one, abs=4)
    assert bound_sample_size(10, 4, 3, 0.02, observed=0.5) == pytest.approx(2 * one, abs=2)
    pairs = [bound_sample_size(10, 4, 3, 0.02, observed=p, learnt_from="pairs") for p in (1, 0.5)]
    assert pairs[1] == pytest.approx(4 * pairs[0], abs=4)
    with pytest.raises(PmfError, match="rank"):
        bound_sample_size(10, 4, 0, 0.02)
    with pytest.raises(PmfError, match="observed"):
        bound_sample_size(10, 4, 3, 0.02, observed=0)
    for failure in (0, 1):
        with pytest.raises(PmfError, match="failure"):
            bound_sample_size(10, 4, 3, 0.02, failure=failure)
