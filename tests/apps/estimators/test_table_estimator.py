import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import pmflib as pmf
from pmflib.families.forests import TreePMF

CLASSES = [
    pmf.apps.PMFDensity(rank=2, members=1, dependence="tree"),
    pmf.PMFImputer(rank=2, members=1, dependence="tree"),
    pmf.apps.PMFTransformer(rank=2, dependence="tree"),
]


@pytest.fixture(scope="module")
def chain():
    """Columns that follow a hidden side, but the last follows the one before it."""
    rng = np.random.default_rng(0)
    side = rng.integers(0, 2, 1000)
    columns = [np.where(rng.random(1000) < 0.9, side, 1 - side) for _ in range(6)]
    columns[5] = np.where(rng.random(1000) < 0.95, columns[4], 1 - columns[4])
    return pd.DataFrame({f"v{n}": column for n, column in enumerate(columns)})


@pytest.fixture(scope="module")
def ratings():
    """Ratings of 1 to 5, a third missing, that follow one degree."""
    rng = np.random.default_rng(1)
    scores = 3 + rng.normal(size=(400, 1)) * np.linspace(0.8, 1.4, 6) + rng.normal(size=(400, 6))
    table = np.clip(np.round(scores), 1, 5)
    table[rng.random(table.shape) < 0.33] = np.nan
    return pd.DataFrame(table, columns=[f"film {n}" for n in range(6)])


@pytest.fixture(scope="module")
def trait_imputer(ratings):
    return pmf.PMFImputer(rank=60, method="traits", dimensions=0).fit(ratings)


@pytest.mark.parametrize("estimator", CLASSES)
def test_fit__forests_are_those_of_fit_em(estimator, chain):
    fitted = clone(estimator).fit(chain)
    schema = fitted.model_.schema
    expected = pmf.fit_em(chain.to_numpy(), rank=2, schema=schema, dependence="tree", rng=0).model
    assert isinstance(expected, TreePMF)
    assert ("v4", "v5") in [(first, second) for first, second, _ in fitted.model_.edges()]
    np.testing.assert_array_equal(fitted.model_.tables, expected.tables)


def test_score__forest_is_more_probable_than_independence_within_states(chain):
    plain, tree = (
        pmf.apps.PMFDensity(rank=2, members=1, dependence=each).fit(chain[:700])
        for each in ("none", "auto")
    )
    assert tree.score(chain[700:]) > plain.score(chain[700:]) + 0.05


def test_transform__draws_follow_each_other_along_a_forest(chain):
    imputer = clone(CLASSES[1]).set_params(strategy="draw").fit(chain)
    hidden = chain.astype("Int64")
    hidden[["v4", "v5"]] = pd.NA
    filled = imputer.transform(hidden)
    # 95 % of the rows agree; drawn independently within states 82 % would
    assert (filled["v4"] == filled["v5"]).mean() == pytest.approx(0.95, abs=0.02)
    assert (filled["v3"] == chain["v3"]).all()


@pytest.mark.parametrize("rank", [2, "auto"])
def test_fit__classifier_with_a_forest(rank, chain):
    X, y = chain.drop(columns="v5"), chain["v5"]
    classifier = pmf.PMFClassifier(rank, dependence="tree").fit(X[:700], y[:700])
    assert isinstance(classifier.model_, TreePMF)
    assert (classifier.predict(X[700:]) == X["v4"][700:]).mean() > 0.9


def test_load__estimators_with_forests_and_traits(chain, ratings, trait_imputer, tmp_path):
    tree = clone(CLASSES[1]).fit(chain)
    gaps = chain.astype("Int64").mask(np.random.default_rng(2).random(chain.shape) < 0.3)
    for number, (imputer, table) in enumerate([(tree, gaps), (trait_imputer, ratings)]):
        imputer.save(tmp_path / str(number))
        filled = imputer.transform(table)
        assert not filled.isna().any(axis=None)
        for again in (
            pmf.PMFImputer.load(tmp_path / str(number)),
            pickle.loads(pickle.dumps(imputer)),
        ):
            assert again.get_params() == imputer.get_params()
            pd.testing.assert_frame_equal(again.transform(table), filled)


def test_fit__traits_are_those_of_fit_traits(ratings, trait_imputer):
    schema = trait_imputer.model_.schema
    expected = pmf.families.fit_traits(ratings, schema, dimensions=0, n_states=60, rng=0).model
    assert trait_imputer.rank_ == 60
    np.testing.assert_array_equal(trait_imputer.model_.factors, expected.factors)


def test_transform__cells_of_traits_are_folded_in(ratings, trait_imputer):
    model = trait_imputer.model_
    codes = model.schema.encode(ratings)
    filled = clone(trait_imputer).set_params(strategy="mode").fit(ratings).transform(ratings)
    by_mode = model.schema.encode(filled)
    np.testing.assert_array_equal(by_mode, model.complete(codes))
    means = clone(trait_imputer).set_params(strategy="mean").fit(ratings).transform(ratings)
    rows = np.flatnonzero(codes[:, 2] < 0)
    expected = model.expected_value(codes[rows], 2)
    np.testing.assert_allclose(means["film 2"].to_numpy()[rows], expected, atol=1e-9)


def test_transform__scores_on_traits(ratings):
    transformer = pmf.apps.PMFTransformer(rank=30, method="traits", dimensions=1).fit(ratings)
    scores = transformer.transform(ratings)
    model = transformer.model_
    np.testing.assert_array_equal(scores, model.traits(model.schema.encode(ratings)).scores)
    names = transformer.get_feature_names_out().tolist()
    assert names == [f"pmftransformer{n}" for n in range(scores.shape[1])]
    assert abs(np.corrcoef(scores[:, 0], ratings.mean(axis=1))[0, 1]) > 0.9


def test_score_samples__density_of_traits_is_that_of_its_states(ratings):
    density = pmf.apps.PMFDensity(rank=40, method="traits", dimensions=0).fit(ratings)
    model = density.model_
    expected = model.log_prob(model.schema.encode(ratings))
    np.testing.assert_array_equal(density.score_samples(ratings), expected)
    assert set(density.sample(50)["film 0"]) <= {1.0, 2.0, 3.0, 4.0, 5.0}


def test_fit__mistakes(chain):
    with pytest.raises(pmf.PmfError, match="method"):
        pmf.apps.PMFTransformer(method="trait").fit(chain)  # type: ignore[arg-type]
    with pytest.raises(pmf.PmfError, match="dependence"):
        pmf.apps.PMFDensity(method="traits", dependence="tree").fit(chain)
    with pytest.raises(pmf.PmfError, match="dependence"):
        pmf.PMFClassifier(rank=2, dependence="forest").fit(chain[["v0"]], chain["v1"])  # type: ignore[arg-type]
    with pytest.raises(pmf.PmfError, match="dimensions"):
        pmf.PMFImputer(rank=10, method="traits", dimensions=-1).fit(chain)
