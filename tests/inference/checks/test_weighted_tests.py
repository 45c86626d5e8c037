"""Weights in comparisons of groups, tests of the number of classes, residuals, traits and what a model is worth."""

from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.inference.checks.bivariate_residuals import bivariate_residuals
from pmflib.inference.imputation import fit_resampled

SCHEMA = pmf.Schema.from_cardinalities([2] * 5)


def draw(n_rows=600, seed=0):
    """Two states, of which people of the second have half the weight."""
    rng = np.random.default_rng(seed)
    state = rng.random(n_rows) < 0.5
    codes = np.where(rng.random((n_rows, 5)) < 0.85, state[:, None], ~state[:, None])
    return codes.astype(np.int8), np.where(state, 1.0, 2.0) * rng.choice([0.5, 1.5], n_rows)


def list_statistics(residuals):
    return [each.statistic for each in residuals.pairs]


def test_fit_groups__weights_make_shares_and_likelihoods_those_of_effective_samples():
    codes, weight = draw()
    group = np.where(np.arange(600) % 3 == 0, "a", "b")
    options: dict[str, Any] = {"schema": SCHEMA, "free": ["v0"]}
    plain = pmf.families.fit_groups(codes, group, 2, **options)
    equal = pmf.families.fit_groups(codes, group, 2, weight=np.full(600, 0.3), **options)
    weighted = pmf.families.fit_groups(codes, group, 2, weight=weight, **options)
    for name, fit in plain.fits.items():
        assert equal.fits[name].criteria == fit.criteria
    own = weight * (group == "a")
    expected = np.average(codes[:, 1], weights=own)
    assert weighted.fits["free"].models["a"].marginal([1])[1] == pytest.approx(expected, abs=1e-4)
    kish = weight.sum() ** 2 / (weight**2).sum()
    assert weighted.fits["equal"].criteria.n_rows == pytest.approx(kish, abs=1)
    assert weighted.fits["free"].criteria.n_rows == pytest.approx(kish, abs=1)
    assert all(test.statistic >= 0 for test in weighted.tests.values())


def test_likelihood_ratio_test__has_the_weighted_likelihoods():
    codes, weight = draw(300)
    plain = pmf.inference.likelihood_ratio_test(codes, 1, schema=SCHEMA, draws=2)
    equal = pmf.inference.likelihood_ratio_test(
        codes, 1, schema=SCHEMA, draws=2, weight=np.full(300, 4)
    )
    weighted = pmf.inference.likelihood_ratio_test(codes, 1, schema=SCHEMA, draws=2, weight=weight)
    assert equal == plain
    scaled = weight * round(weight.sum() ** 2 / (weight**2).sum()) / weight.sum()
    shares = np.average(codes, axis=0, weights=weight)
    independent = scaled @ np.log(np.where(codes == 1, shares, 1 - shares)).sum(axis=1)
    assert weighted.log_likelihoods[0] == pytest.approx(independent, rel=1e-7)
    assert weighted.statistic < plain.statistic
    assert weighted.vuong_p < 0.01


def test_bivariate_residuals__of_weighted_samples_are_those_of_the_fit():
    codes, weight = draw()
    fitted = pmf.fit_em(codes, rank=2, schema=SCHEMA, weight=weight)
    found = bivariate_residuals(fitted.model, codes, weight=weight)
    np.testing.assert_allclose(
        list_statistics(found), list_statistics(fitted.residuals), rtol=1e-10
    )
    plain = bivariate_residuals(fitted.model, codes)
    assert not np.allclose(list_statistics(found), list_statistics(plain))
    same = bivariate_residuals(fitted.model, codes, weight=np.full(600, 7.0))
    assert list_statistics(same) == list_statistics(plain)


def test_fit_traits__weights_make_the_states_as_probable_as_people():
    codes, weight = draw()
    options: dict[str, Any] = {"dimensions": 0, "n_states": 40, "passes": 4, "shrinkage": 1.0}
    plain = pmf.families.fit_traits(codes, SCHEMA, **options)
    equal = pmf.families.fit_traits(codes, SCHEMA, weight=np.full(600, 9.0), **options)
    weighted = pmf.families.fit_traits(codes, SCHEMA, weight=weight, **options)
    np.testing.assert_array_equal(equal.model.factors, plain.model.factors)
    np.testing.assert_array_equal(equal.model.prior, plain.model.prior)
    for each, own in ((plain, None), (weighted, weight)):
        shares = np.average(codes[:, 0], weights=own)
        assert each.model.marginal([0])[1] == pytest.approx(shares, abs=0.06)
    chosen = pmf.families.fit_traits(codes, SCHEMA, dimensions=0, n_states=40, weight=weight)
    assert chosen.comparisons


def test_fit_resampled__weighted_rows_are_drawn_with_their_weights():
    codes, weight = draw()
    fitted = pmf.fit_em(codes, rank=2, schema=SCHEMA, weight=weight).model
    block = DenseBlock(codes, weight)
    refits = fit_resampled(fitted, block, 8)
    shares = np.array([each.marginal([0])[1] for each in refits])
    assert shares.mean() == pytest.approx(np.average(codes[:, 0], weights=weight), abs=0.03)
    assert shares.std() > 0.005


def test_weigh_model__is_in_effective_samples():
    codes, weight = draw(1500)
    seen, unseen = slice(0, 1000), slice(1000, None)
    model = pmf.fit_em(codes[seen], rank=2, schema=SCHEMA, weight=weight[seen]).model
    designs = [pmf.surveys.SurveyDesign(weight[rows]) for rows in (seen, unseen)]
    options: dict[str, Any] = dict(zip(("design", "unseen_design"), designs, strict=True))
    found = pmf.answering.weigh_model(model, codes[seen], codes[unseen], **options)
    kish = weight[seen].sum() ** 2 / (weight[seen] ** 2).sum()
    learnt = found.origin["equivalent_samples"]
    assert learnt["n_fitted"] == pytest.approx(round(kish))
    plain = pmf.answering.weigh_model(model, codes[seen], codes[unseen])
    even: dict[str, Any] = {
        name: pmf.surveys.SurveyDesign(np.full(design.n_rows, 3))
        for name, design in options.items()
    }
    same = pmf.answering.weigh_model(model, codes[seen], codes[unseen], **even)
    assert same.origin == plain.origin
    assert learnt != plain.origin["equivalent_samples"]
    with pytest.raises(pmf.PmfError, match="unseen_design"):
        pmf.answering.weigh_model(model, codes[seen], codes[unseen], design=designs[0])
