import json
import pickle
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

import pmflib as pmf
from pmflib.base import StoreError

ROWS = {
    "a": ["x", "y", None, "x"] * 20,
    "b": [1, 2, 1, None] * 20,
    "c": [True, False, True, None] * 20,
    "d": [0.25 * number for number in range(80)],
}


def make_categorical(rows):
    return pd.DataFrame(rows).astype({"a": "category", "b": "Int64", "c": "boolean"})


def make_polars(rows):
    return pl.DataFrame(rows).with_columns(pl.col("a").cast(pl.Enum(["x", "y", "z"])))


def make_array(rows):
    pairs = zip(rows["b"], rows["d"], strict=True)
    return np.array([[np.nan if x is None else float(x) for x in pair] for pair in pairs])


MAKERS = [pd.DataFrame, make_categorical, make_polars, pa.table, make_array]


def as_lists(table):
    if isinstance(table, np.ndarray):
        return [repr(row) for row in table.tolist()]
    if isinstance(table, pa.Table):
        return table.to_pydict()
    return {str(name): [repr(value) for value in table[name]] for name in table.columns}


@pytest.mark.parametrize("make", MAKERS)
def test_load__imputer_fills_the_same(make, tmp_path):
    table = make(ROWS)
    imputer = pmf.PMFImputer(rank=2, strategy="draw", random_state=4).fit(table)
    imputer.save(tmp_path / "imputer")
    loaded = pmf.PMFImputer.load(tmp_path / "imputer")
    assert loaded.get_params() == imputer.get_params()
    assert as_lists(loaded.transform(table)) == as_lists(imputer.transform(table))
    copied = pickle.loads(pickle.dumps(imputer))
    assert as_lists(copied.transform(table)) == as_lists(imputer.transform(table))


def test_load__imputer_with_draws_fills_the_same(tmp_path):
    table = pd.DataFrame(ROWS)
    imputer = pmf.PMFImputer(rank=2, draws=3, members=2).fit(table)
    imputer.save(tmp_path / "imputer")
    loaded = pmf.PMFImputer.load(tmp_path / "imputer")
    assert len(loaded.transform(table)) == 3
    for one, other in zip(loaded.transform(table), imputer.transform(table), strict=True):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("make", MAKERS)
def test_load__density_draws_the_same(make, tmp_path):
    table = make(ROWS)
    density = pmf.apps.PMFDensity(rank=2).fit(table)
    density.save(tmp_path / "density")
    loaded = pmf.apps.PMFDensity.load(tmp_path / "density")
    np.testing.assert_array_equal(loaded.score_samples(table), density.score_samples(table))
    drawn, again = density.sample(30), loaded.sample(30)
    assert type(drawn) is type(again)
    assert as_lists(again) == as_lists(drawn)
    if isinstance(drawn, pd.DataFrame):
        assert (again.dtypes == drawn.dtypes).all()
    elif not isinstance(drawn, np.ndarray):
        assert again.schema == drawn.schema


@pytest.mark.parametrize("classes", [["no", "yes"], [0, 1], [True, False]])
def test_load__classifier_with_a_schema(classes, tmp_path):
    schema = pmf.Schema(
        (pmf.Variable("a", ("x", "y")), pmf.Variable("d", ("few", "many"), edges=(10.0,)))
    )
    table, y = pd.DataFrame(ROWS), np.array(classes * 40)
    model = pmf.PMFClassifier(rank=2, schema=schema).fit(table, y)
    model.save(tmp_path / "model")
    loaded = pmf.PMFClassifier.load(tmp_path / "model")
    assert loaded.schema == schema
    assert loaded.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_)
    # the same folder is a model for everything else
    assert pmf.JointPMF.load(tmp_path / "model").schema == model.model_.schema


def test_load__transformer(tmp_path):
    table = pd.DataFrame(ROWS)
    transformer = pmf.apps.PMFTransformer(rank=2).fit(table)
    transformer.save(tmp_path / "states")
    loaded = pmf.apps.PMFTransformer.load(tmp_path / "states")
    np.testing.assert_array_equal(loaded.transform(table), transformer.transform(table))


def test_load__what_is_none_of_the_class(tmp_path):
    imputer = pmf.PMFImputer(rank=2).fit(pd.DataFrame(ROWS))
    imputer.save(tmp_path / "imputer")
    with pytest.raises(StoreError, match="PMFImputer"):
        pmf.apps.PMFDensity.load(tmp_path / "imputer")
    imputer.model_.save(tmp_path / "bare")
    with pytest.raises(StoreError, match="JointPMF"):
        pmf.PMFImputer.load(tmp_path / "bare")
    with pytest.raises(StoreError):
        pmf.PMFImputer.load(tmp_path / "absent")
    path = tmp_path / "imputer" / "zarr.json"
    content = json.loads(path.read_text())
    del content["attributes"]["estimator"]["values"]
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError):
        pmf.PMFImputer.load(tmp_path / "imputer")


def test_save__what_json_cannot_hold(tmp_path):
    with pytest.raises(NotFittedError):
        pmf.PMFImputer().save(tmp_path / "nothing")
    table = pd.DataFrame(ROWS)
    state = np.random.RandomState(0)
    with pytest.raises(pmf.PmfError, match="random_state"):
        pmf.PMFImputer(rank=2, random_state=state).fit(table).save(tmp_path / "state")
    days = pd.DataFrame({"day": [date(2020, 1, 1), date(2020, 1, 2)] * 20})
    imputer = pmf.PMFImputer(rank=1).fit(days)
    with pytest.raises(pmf.PmfError, match="level"):
        imputer.save(tmp_path / "days")
    assert not list(tmp_path.iterdir())
