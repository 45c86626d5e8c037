import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import pmflib as pmf


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    work = rng.integers(0, 3, 300)
    other = np.where(rng.random(300) < 0.9, work, rng.integers(0, 3, 300))
    X = pd.DataFrame(
        {
            "work": pd.Categorical.from_codes(work, ["shop", "farm", "office"]),
            "likes": np.array(["a", "b", "c"], object)[other],
            "urban": pd.array(work == 2, dtype="boolean"),
            "nothing": None,
        }
    )
    X.loc[::7, "likes"] = None
    X.loc[::5, "urban"] = pd.NA
    X.loc[::11, "work"] = None
    return X, np.array(["no", "maybe", "yes"])[work]


@pytest.mark.parametrize("make", [lambda x: x, pl.from_pandas], ids=["pandas", "polars"])
def test_fit__frames_with_missing_values(people, make):
    X, y = people
    with pytest.warns(pmf.errors.SchemaWarning, match="nothing"):
        model = pmf.PMFClassifier(rank=3).fit(make(X), y)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.score(make(X), y) > 0.95
    probabilities = model.predict_proba(make(X))
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert model.model_.schema.names == ("work", "likes", "urban", "target")


def test_predict__row_with_nothing_observed_gets_the_shares(people):
    X, y = people
    with pytest.warns(pmf.errors.SchemaWarning):
        model = pmf.PMFClassifier(rank=3).fit(X, y)
    nothing = X.iloc[:1].copy()
    nothing[:] = None
    (found,) = model.predict_proba(nothing)
    np.testing.assert_allclose(found, [np.mean(y == each) for each in model.classes_], atol=0.08)


def test_fit__rank_chosen_by_default():
    X, y = load_iris(return_X_y=True, as_frame=True)
    train = X.sample(n=100, random_state=0).index
    fitted = pmf.PMFClassifier().fit(X.loc[train], y.loc[train])
    assert fitted.score(X.drop(index=train), y.drop(index=train)) > 0.9


def test_fit__predictions_are_averaged_and_saved(tmp_path):
    """The class is the parity of two columns or follows a third, so that no single rung is the best everywhere."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(900, 5))
    y = np.where(rng.random(900) < 0.5, X[:, 0] ^ X[:, 1], X[:, 2])
    model = pmf.PMFClassifier(random_state=1).fit(X[:600], y[:600])
    found = model.predict_proba(X[600:])
    pool = model.pool_
    assert pool is not None
    assert sum(each.weight for each in pool.rungs) == pytest.approx(1)
    assert any(each.kind == "target" for each in pool.rungs)
    losses = {}
    for name, chances in (("pool", found), ("counted", np.tile(np.mean(y[:600]), (300, 2)))):
        losses[name] = -np.log(chances[np.arange(300), y[600:]]).mean()
    # the entropy of a class that one of two columns decides, a quarter of the rows the wrong way
    assert losses["pool"] < 0.62 < losses["counted"]
    model.save(tmp_path / "model")
    loaded = pmf.PMFClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X[600:]), found)
    again = pmf.PMFClassifier(random_state=1).fit(X[:600], y[:600])
    np.testing.assert_array_equal(again.predict_proba(X[600:]), found)
    assert "averaged for the target" in str(model.result_.summary())


def test_fit__bins_of_continuous_columns():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = pmf.PMFClassifier(rank=4, bins=4).fit(X, y)
    assert {each.role for each in list(model.model_.schema)[:-1]} == {"continuous"}
    assert {each.cardinality for each in list(model.model_.schema)[:-1]} == {4}
    assert model.score(X, y) > 0.93


@pytest.mark.parametrize(
    "classes",
    [[0, 1], [False, True], [-1.0, 2.0], ["a", " a"], ["1", "x"]],
    ids=["integers", "booleans", "floats", "alike", "texts"],
)
def test_predict__classes_as_they_were_given(classes):
    X = np.array([["u", "v"], ["w", "v"]] * 30, object)
    y = np.array(classes * 30)
    found = pmf.PMFClassifier(rank=2).fit(X, y).predict(X)
    assert found.dtype == y.dtype
    np.testing.assert_array_equal(found, y)


def test_predict__one_class():
    X = np.array([["u"], ["w"]] * 10, object)
    model = pmf.PMFClassifier().fit(X, ["only"] * 20)
    assert model.predict(X).tolist() == ["only"] * 20
    np.testing.assert_allclose(model.predict_proba(X), 1)


def test_predict__no_column_can_be_a_variable():
    X = pd.DataFrame({"id": [f"p{number}" for number in range(60)]})
    y = np.array([0, 1, 1] * 20)
    with pytest.warns(pmf.errors.SchemaWarning, match="id"):
        model = pmf.PMFClassifier().fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[0], [1 / 3, 2 / 3], atol=0.05)


def test_fit__column_that_is_named_target():
    X = pd.DataFrame({"target": ["u", "w"] * 30})
    model = pmf.PMFClassifier(rank=2).fit(X, [0, 1] * 30)
    assert model.model_.schema.names == ("target", "target_")
    assert model.score(X, [0, 1] * 30) == 1


def test_fit__missing_class_is_refused():
    X = np.array([["u"], ["w"]], object)
    with pytest.raises(ValueError, match="y contains NaN"):
        pmf.PMFClassifier().fit(X, np.array(["a", None], object))


def test_pipeline__imputer_and_search_over_ranks(people):
    X, y = people
    X = X.drop(columns="nothing")
    texts = ColumnTransformer(
        [("filled", pmf.PMFImputer(rank=2), ["work", "likes"]), ("kept", "passthrough", ["urban"])],
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipeline = make_pipeline(texts, pmf.PMFClassifier(rank=3))
    search = GridSearchCV(pipeline, {"pmfclassifier__rank": [1, 3]}, cv=2, scoring="neg_log_loss")
    search.fit(X, y)
    assert search.best_params_ == {"pmfclassifier__rank": 3}
    assert search.best_score_ > -0.4
    out = search.best_estimator_[:-1].get_feature_names_out()
    assert out.tolist() == ["work", "likes", "urban"]


def test_pipeline__latent_states_as_features(people):
    X, y = people
    X = X.drop(columns="nothing")
    pipeline = make_pipeline(
        FunctionTransformer(), pmf.apps.PMFTransformer(rank=4), LogisticRegression()
    )
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.8


def test_fit__as_many_classes_as_rows_are_refused_at_once():
    X = pd.DataFrame({"a": ["x", "y"] * 100, "b": ["u", "u", "v", "v"] * 50})
    with (
        pytest.warns(UserWarning, match="unique classes"),
        pytest.raises(ValueError, match="200 classes"),
    ):
        pmf.PMFClassifier().fit(X, [f"label {n}" for n in range(200)])


@pytest.mark.parametrize(("n_rows", "is_compared"), [(400, True), (150, False)])
def test_fit__says_that_boosting_predicts_better_where_one_state_cannot(n_rows, is_compared):
    X = np.random.default_rng(0).integers(0, 2, (n_rows, 3))
    found = pmf.PMFClassifier(rank=1).fit(X, X[:, 0] ^ X[:, 1])
    first = found.result_.notes[0]
    assert first.startswith("boosting predicts 'target' better") == is_compared
    assert found.result_.trial is not None


def draw_interval(n_rows, seed):
    """A class that depends on a narrow interval of the first of two numbers, and the numbers."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.random((n_rows, 2)), columns=["inside", "noise"])
    X.loc[::9, "inside"] = np.nan
    chance = np.where((X["inside"] > 0.45) & (X["inside"] < 0.55), 0.95, 0.05)
    return X, (rng.random(n_rows) < chance).astype(int)


def test_fit__cuts_by_the_class_where_quantiles_miss_its_interval(tmp_path):
    X, y = draw_interval(1500, 0)
    model = pmf.PMFClassifier(rank=2, bins=3).fit(X, y)
    inside, noise, _ = model.model_.schema
    # the last rows of the interval may share their bin with their neighbours: labels are random
    assert all(np.abs(np.array(inside.edges) - end).min() < 0.02 for end in (0.45, 0.55))
    assert noise.cardinality == 3
    test, truth = draw_interval(1000, 1)
    # no bin of a third of the rows has a majority of the rarer class
    assert model.score(test, truth) > 1 - truth.mean() + 0.04
    model.save(tmp_path / "model")
    again = pmf.PMFClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))


def test_fit__numbers_that_say_nothing_and_a_given_schema_keep_their_cuts():
    X, y = draw_interval(600, 2)
    alone = pmf.PMFClassifier(rank=2, bins=3).fit(X[["noise"]], y)
    assert alone.model_.schema[0].cardinality == 3
    given = pmf.Schema.infer(X)
    model = pmf.PMFClassifier(rank=2, schema=given).fit(X, y)
    assert model.model_.schema.variables[:2] == given.variables
