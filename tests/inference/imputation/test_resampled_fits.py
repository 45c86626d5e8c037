import numpy as np
import pytest

import pmflib as pmf
from pmflib.families.forests import TreePMF
from pmflib.inference.imputation import fit_resampled, resampled_fits
from tests.stored_samples import write_partition

SCHEMA = pmf.Schema.from_cardinalities([2] * 6)


@pytest.fixture(scope="module")
def codes():
    rng = np.random.default_rng(0)
    side = rng.integers(2, size=(800, 1))
    codes = np.where(rng.random((800, 6)) < 0.8, side, 1 - side).astype(np.int8)
    codes[rng.random(codes.shape) < 0.2] = -1
    return codes


def test_fit_resampled__marginals_vary_as_those_of_samples_do(codes):
    model = pmf.fit_em(codes, rank=2, schema=SCHEMA, pseudo_count=0.3, start="random").model
    refits = fit_resampled(model, codes, 60, 3)
    found = np.array([refit.marginal(["v0"])[1] for refit in refits])
    n_seen = (codes[:, 0] >= 0).sum()
    error = np.sqrt(model.marginal(["v0"]).prod() / n_seen)
    # the others of a row say something of a gap, so that it is a little less; an error of 60 draws is 9 % of it
    assert 0.7 < found.std(ddof=1) / error < 1.25
    assert abs(found.mean() - model.marginal(["v0"])[1]) < 4 * error / np.sqrt(60) + 0.01
    assert [refit.origin["resampled"] for refit in refits] == list(range(60))
    again = fit_resampled(model, codes, 2, 3)
    for one, other in zip(refits, again, strict=False):
        np.testing.assert_array_equal(one.factors, other.factors)


@pytest.mark.parametrize("dependence", ["none", "auto"])
def test_fit_resampled__marginals_of_a_stack_vary_as_those_of_samples_do(codes, dependence):
    model = pmf.fit_em(codes, schema=SCHEMA, effort="quick", dependence=dependence).model
    refits = fit_resampled(model, codes, 40, 3)
    found = np.array([refit.marginal(["v0"])[1] for refit in refits])
    error = np.sqrt(model.marginal(["v0"]).prod() / (codes[:, 0] >= 0).sum())
    # an error of 40 draws is 11 % of the spread
    assert 0.65 < found.std(ddof=1) / error < 1.3
    assert abs(found.mean() - model.marginal(["v0"])[1]) < 4 * error / np.sqrt(40) + 0.01
    assert {(refit.kind, refit.rank) for refit in refits} == {(model.kind, model.rank)}


@pytest.mark.parametrize("dependence", ["none", "tree"])
def test_fit_resampled__of_an_average_each_is_of_one_fit(codes, dependence):
    options = {"rank": 2, "members": 3, "dependence": dependence, "schema": SCHEMA}
    average = pmf.fit_em(codes, **options).model
    assert average.rank == 6
    refits = fit_resampled(average, codes, 4)
    assert [refit.rank for refit in refits] == [2] * 4
    assert all(isinstance(refit, TreePMF) == (dependence == "tree") for refit in refits)
    assert not any("final" in refit.origin for refit in refits)
    for refit in refits:
        np.testing.assert_allclose(refit.marginal(["v1"]), average.marginal(["v1"]), atol=0.12)


def test_fit_resampled__traits_keep_their_settings(codes):
    model = pmf.families.fit_traits(
        codes, SCHEMA, dimensions=1, n_states=20, passes=3, shrinkage=0.5
    ).model
    refits = fit_resampled(model, codes, 2)
    for refit in refits:
        settings = {name: refit.origin[name] for name in ("dimensions", "shrinkage", "passes")}
        assert settings == {"dimensions": 1, "shrinkage": 0.5, "passes": 3}
        assert refit.rank == 20
    assert not np.array_equal(refits[0].factors, refits[1].factors)


@pytest.fixture
def stored(codes, tmp_path):
    return pmf.em.StoredSamples(write_partition(tmp_path, codes, SCHEMA, block_rows=50), SCHEMA)


def test_fit_resampled__stored_samples_as_in_memory(codes, stored):
    model = pmf.fit_em(stored, rank=2, pseudo_count=0.3, start="random").model
    by_store = fit_resampled(model, stored, 2, 1)
    in_memory = fit_resampled(model, stored.read_codes(), 2, 1)
    for one, other in zip(by_store, in_memory, strict=True):
        np.testing.assert_array_equal(one.factors, other.factors)


def test_fit_resampled__folds_of_many_stored_samples(codes, stored, monkeypatch):
    monkeypatch.setattr(resampled_fits, "MEMORY_CELLS", 0)
    model = pmf.fit_em(stored, rank=2, pseudo_count=0.3, start="random").model
    refits = fit_resampled(model, stored, 6, 1)
    shares = {float(refit.marginal(["v0"])[1]) for refit in refits}
    assert len(shares) > 1
    # every refit is to whole folds: its marginal is about that of the folds drawn
    assert max(shares) - min(shares) < 0.2
    again = fit_resampled(model, stored, 6, 1)
    assert {float(refit.marginal(["v0"])[1]) for refit in again} == shares


def test_fit_resampled__mistakes(codes):
    model = pmf.fit_em(codes, rank=1, schema=SCHEMA).model
    with pytest.raises(pmf.PmfError, match="draws"):
        fit_resampled(model, codes, 0)
    with pytest.raises(pmf.PmfError, match="samples"):
        fit_resampled(model, codes[:0], 2)
