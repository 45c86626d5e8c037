from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from tests.stored_samples import write_partition

SCHEMA = pmf.Schema.from_cardinalities([2] * 5)


def draw(n_rows=800, seed=0):
    """Two states; those of the second are met twice as often as they should be, and have half the weight."""
    rng = np.random.default_rng(seed)
    state = rng.random(n_rows) < 0.5
    codes = np.where(rng.random((n_rows, 5)) < 0.9, state[:, None], ~state[:, None]).astype(np.int8)
    codes[rng.random(codes.shape) < 0.05] = -1
    return pmf.Codes(codes), np.where(state, 1.0, 2.0) * rng.choice([0.5, 1.5], n_rows)


def shares(model):
    return model.marginal([0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank": "auto"},
        {"rank": 2, "target": 0},
        {"dependence": "tree"},
        {"rank": "auto", "dependence": None},
    ],
)
def test_fit_em__equal_weights_give_the_fit_without_any_bit_for_bit(options):
    codes, _ = draw(300)
    given: dict[str, Any] = {"rank": 2, "schema": SCHEMA, "dependence": "none"} | options
    weighted = pmf.fit_em(codes, weight=np.full(300, 2.5), **given)
    plain = pmf.fit_em(codes, **given)
    np.testing.assert_array_equal(weighted.model.factors, plain.model.factors)
    np.testing.assert_array_equal(weighted.model.prior, plain.model.prior)
    assert weighted.notes == plain.notes
    assert weighted.training == plain.training


def test_fit_em__weights_undo_an_uneven_sample():
    codes, weight = draw(4000)
    weighted = pmf.fit_em(codes, rank=2, weight=weight)
    plain = pmf.fit_em(codes, rank=2)
    assert shares(weighted.model)[0] == pytest.approx(0.9 * 2 / 3 + 0.1 / 3, abs=0.03)
    assert shares(plain.model)[0] == pytest.approx(0.5, abs=0.03)


def test_fit_em__whole_weights_have_the_optimum_of_repeated_rows():
    codes, _ = draw(300)
    weight = np.random.default_rng(1).integers(1, 5, 300)
    start = pmf.fit_em(codes, rank=2, schema=SCHEMA, rng=0).model
    options: dict[str, Any] = {"tol": 1e-13, "max_passes": 3000, "pseudo_count": 0.0}
    weighted = pmf.fit_em(codes, start, weight=weight, **options)
    repeated = pmf.fit_em(np.repeat(codes, weight, axis=0), start, **options)
    np.testing.assert_allclose(weighted.model.factors, repeated.model.factors, atol=1e-6)
    assert weighted.training.per_row == pytest.approx(repeated.training.per_row, rel=1e-10)


def test_fit_em__forests_raise_the_weighted_likelihood_and_are_worth_effective_samples():
    codes, weight = draw(600)
    # two variables of one fact, among those who count for much
    heavy = weight > np.median(weight)
    codes[heavy, 1] = codes[heavy, 0]
    options: dict[str, Any] = {"rank": 2, "schema": SCHEMA, "dependence": "tree"}
    weighted = pmf.fit_em(codes, weight=weight, **options)
    plain = pmf.fit_em(codes, **options)
    gains = weighted.model.log_prob(codes) - plain.model.log_prob(codes)
    assert weight @ gains > 0 > gains.sum()
    mean = np.average(weighted.model.log_prob(codes), weights=weight)
    assert weighted.training.per_row == pytest.approx(mean, rel=1e-7)
    again = pmf.fit_em(codes, weighted.model, weight=weight, tol=1e-3)
    assert weight @ (again.model.log_prob(codes) - plain.model.log_prob(codes)) > 0


def test_fit_em__a_weight_of_a_thousand_million_is_one_person():
    codes = np.random.default_rng(0).integers(0, 2, (200, 4))
    weight = np.ones(200)
    weight[3] = 1e9
    schema = pmf.Schema.from_cardinalities([2] * 4)
    result = pmf.fit_em(codes, rank=1, schema=schema, weight=weight, pseudo_count=0.0)
    assert result.model.factors[codes[3] + [0, 2, 4, 6]].min() > 0.99


def test_fit_em__the_rank_is_chosen_with_weights():
    rng = np.random.default_rng(2)
    state = rng.integers(2, size=(600, 1))
    codes = np.where(rng.random((600, 5)) < 0.9, state, 1 - state).astype(np.int8)
    noise = rng.integers(2, size=(600, 5)).astype(np.int8)
    both = np.concatenate([codes, noise])
    heavy = np.repeat([1e-3, 1.0], 600)
    assert pmf.fit_em(both, rank="auto", weight=heavy).model.rank == 1
    assert pmf.fit_em(both, rank="auto", weight=heavy[::-1]).model.rank == 2


def test_fit__weighted_counts_are_fitted_in_effective_samples():
    codes, weight = draw(4000)
    counts = pmf.count_pairs(codes, SCHEMA, weight=weight)
    result = pmf.fit(counts, 2)
    assert shares(result.model)[0] == pytest.approx(0.9 * 2 / 3 + 0.1 / 3, abs=0.03)
    assert pmf.fits.select_rank(counts).rank == 2
    assert pmf.counts.Marginals.from_counts(counts).support.max() <= counts.n_effective
    assert pmf.inference.diagnose(counts, result.model).median_support <= counts.n_effective


def test_fit_item_responses__weights_raise_the_weighted_likelihood():
    codes, weight = draw(300)
    weighted = pmf.families.fit_item_responses(codes, 1, schema=SCHEMA, weight=weight)
    plain = pmf.families.fit_item_responses(codes, 1, schema=SCHEMA)
    gains = weighted.model.log_prob(codes) - plain.model.log_prob(codes)
    assert weight @ gains > 0
    assert shares(weighted.model)[0] > shares(plain.model)[0]


def test_fit_em__refuses_weights_that_do_not_go_with_the_rest(tmp_path):
    codes, weight = draw(100)
    with pytest.raises(pmf.PmfError, match=r"weight\[4\]"):
        pmf.fit_em(codes, rank=2, weight=np.where(np.arange(100) == 4, 0.0, 1.0))
    with pytest.raises(pmf.PmfError, match="validation"):
        pmf.fit_em(codes, rank=2, weight=weight, validation=codes)
    stored = pmf.em.StoredSamples(write_partition(tmp_path, codes, SCHEMA), SCHEMA)
    with pytest.raises(pmf.PmfError, match="stored"):
        pmf.fit_em(stored, rank=2, weight=np.ones(100))


def test_estimators__take_weights_of_rows():
    codes, weight = draw(600)
    X, y = codes[:, 1:], np.maximum(codes[:, 0], 0)
    heavy = np.where(y == 0, 3.0, 1.0)
    weighted = pmf.PMFClassifier(rank=2).fit(X, y, sample_weight=heavy)
    plain = pmf.PMFClassifier(rank=2).fit(X, y)
    assert weighted.predict_proba(X)[:, 0].mean() > plain.predict_proba(X)[:, 0].mean() + 0.05
    density = pmf.apps.PMFDensity(rank=2, members=1).fit(X, sample_weight=weight)
    assert density.result_.training.n_rows < len(X)
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    gaps[X < 0] = np.nan
    imputer = pmf.PMFImputer(rank=2, draws=3, members=1).fit(gaps, sample_weight=heavy)
    shares = [float((table[y > 0, 0] == 1).mean()) for table in imputer.transform(gaps)]
    assert len(set(shares)) > 1
    assert len(imputer.draw_models_) == 3
    traits = pmf.apps.PMFDensity(rank=20, method="traits", dimensions=0).fit(
        X, sample_weight=weight
    )
    assert traits.result_.training.n_rows < len(X)


def test_fit_em__has_the_weighted_optimum_of_stepmix():
    stepmix = pytest.importorskip("stepmix.stepmix")
    codes, weight = draw(600)
    codes = np.maximum(codes, 0)
    options: dict[str, Any] = {
        "max_iter": 100_000,
        "abs_tol": 0,
        "rel_tol": 1e-15,
        "verbose": 0,
        "progress_bar": 0,
    }
    peer = stepmix.StepMix(2, measurement="binary", random_state=0, **options)
    peer.fit(codes, sample_weight=weight)
    chances = peer.get_parameters()["measurement"]["pis"]
    factors = np.stack([1 - chances.T, chances.T], axis=1).reshape(-1, 2)
    start = pmf.JointPMF(peer.weights_, factors, SCHEMA)
    found = pmf.fit_em(codes, start, weight=weight, pseudo_count=0.0, tol=1e-14).model
    np.testing.assert_allclose(found.prior, start.prior, atol=1e-6)
    np.testing.assert_allclose(found.factors, start.factors, atol=1e-6)
