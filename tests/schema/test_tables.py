import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError

N = 60
Q = ["a", "b", "b"] * (N // 3)
ODD = {
    "periods": pd.period_range("2024-01", periods=N, freq="M"),
    "categorical intervals": pd.cut(np.arange(N), 4),
    "intervals": pd.arrays.IntervalArray.from_breaks(range(N + 1)),
    "time spans": pd.to_timedelta(np.arange(N), unit="h"),
    "lists": [["x", "y"]] * N,
    "structs": [{"x": 1}] * N,
    "lists among others": [["x"], "y", 3] * (N // 3),
    "complex numbers": np.arange(N) * 1j,
    "polars lists": pl.Series([["x"]] * N),
    "polars structs": pl.Series([{"x": 1}] * N),
    "polars time spans": pl.Series(range(N)).cast(pl.Duration),
    "arrow lists": pa.array([["x"]] * N),
}
SCHEMA = pmf.Schema((pmf.Variable("odd", ("x", "y")), pmf.Variable("q", ("a", "b"))))


def make_table(values):
    if isinstance(values, pl.Series):
        return pl.DataFrame({"q": Q, "odd": values})
    if isinstance(values, pa.Array):
        return pa.table({"q": Q, "odd": values})
    return pd.DataFrame({"q": Q, "odd": values})


@pytest.mark.parametrize(
    "door",
    [
        pmf.Schema.infer,
        SCHEMA.encode,
        pmf.count_pairs,
        lambda table: pmf.fit_em(table, rank=1),
        lambda table: pmf.apps.PMFDensity(1).fit(table),
        lambda table: pmf.PMFClassifier(1).fit(table, Q),
        lambda table: pmf.crowd.aggregate(
            {"task": range(N), "worker": table["q"], "odd": Q, "label": table["odd"]}
        ),
    ],
)
@pytest.mark.parametrize("kind", ODD)
def test_tables__columns_that_hold_no_values_are_named_at_every_door(kind, door):
    with pytest.raises(SchemaError, match=r"column '(odd|label)'.*;"):
        door(make_table(ODD[kind]))


@pytest.mark.parametrize("kind", ODD)
def test_tables__such_columns_that_are_not_used_do_no_harm(kind):
    schema = pmf.Schema((pmf.Variable("q", ("a", "b")),))
    assert schema.encode(make_table(ODD[kind]))[:, 0].tolist() == [0, 1, 1] * (N // 3)


@pytest.mark.parametrize(
    "empty", [pd.DataFrame(), pd.DataFrame(index=range(3)), pl.DataFrame(), pa.table({}), {}]
)
@pytest.mark.parametrize(
    "door",
    [
        pmf.Schema.infer,
        pmf.count_pairs,
        pmf.families.fit_traits,
        lambda table: pmf.fit_em(table, rank=1),
    ],
)
def test_tables__without_columns_are_refused(empty, door):
    with pytest.raises(SchemaError, match="no columns"):
        door(empty)


@pytest.mark.parametrize(
    "names",
    [[0, 1], ["a", 1], [2.5, None], pd.MultiIndex.from_tuples([("a", 1), ("b", 1)])],
    ids=["numbers", "mixed", "neither", "levels"],
)
def test_estimators__frames_of_any_names_come_back_with_them(names):
    table = pd.DataFrame({"x": Q, "y": Q}, index=np.arange(N) + 7)
    table.iloc[::4, 1] = None
    table.columns = names
    imputer = pmf.PMFImputer(2).fit(table)
    filled = imputer.transform(table)
    assert filled.columns.equals(table.columns)
    assert filled.index.equals(table.index)
    assert filled.iloc[:, 1].tolist() == Q
    sampled = pmf.apps.PMFDensity(2).fit(table).sample(3)
    assert sampled.columns.equals(table.columns)
    schema = pmf.fit_em(table, rank=1).model.schema
    assert schema.names == tuple(map(str, table.columns))


@pytest.mark.parametrize("is_ordered", [False, True])
def test_imputer__widens_categories_by_the_levels_of_the_fit(is_ordered):
    dtype = pd.CategoricalDtype(["yes", "no"], ordered=is_ordered)
    table = pd.DataFrame({"x": ["yes"] * 20 + ["no"] * 40, "y": ["yes"] * 20 + ["no"] * 40})
    imputer = pmf.PMFImputer(2).fit(table.astype(dtype))
    only = pd.CategoricalDtype(["yes"], ordered=is_ordered)
    filled = imputer.transform(
        pd.DataFrame({"x": pd.Series([None, "yes"], dtype=only), "y": ["no", "yes"]})
    )
    assert filled.x.tolist() == ["no", "yes"]
    assert filled.x.cat.categories.tolist() == ["yes", "no"]
    assert filled.x.cat.ordered == is_ordered


def test_imputer__widens_an_enum_of_polars():
    table = pl.DataFrame({"x": ["yes"] * 20 + ["no"] * 40, "y": ["yes"] * 20 + ["no"] * 40})
    imputer = pmf.PMFImputer(2).fit(table)
    new = pl.DataFrame({"x": pl.Series([None, "yes"], dtype=pl.Enum(["yes"])), "y": ["no", "yes"]})
    filled = imputer.transform(new)
    assert filled["x"].to_list() == ["no", "yes"]
    assert filled.schema["x"] == pl.Enum(["yes", "no"])
