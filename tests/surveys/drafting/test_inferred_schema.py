"""`pmf.Schema.infer` of tables in memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError, SchemaWarning


def test_infer__draws_up_a_schema_that_encodes_its_table():
    table = {
        "binary": ["m", "f", "f", None],
        "rating": [5, 1, 3, 5],
        "amount": [0.5, 1.5, 2.5, 3.5],
        "kind": pa.array(["a", "b", "a", "a"]).dictionary_encode(),
    }
    schema = pmf.Schema.infer(table, max_levels=3, bins=2)
    assert schema.cardinalities.tolist() == [2, 3, 2, 2]
    assert schema.encode(table).tolist() == [
        [1, 2, 0, 0],
        [0, 0, 0, 1],
        [0, 1, 1, 0],
        [-1, 2, 1, 0],
    ]


@pytest.mark.parametrize("make", [pa.table, pa.record_batch, None])
def test_infer__columns_of_one_name(make):
    columns = [["a", "b"], ["c", "d"]]
    if make is None:
        table = pd.DataFrame(np.array(columns).T, columns=["x", "x"])
    else:
        table = make(list(map(pa.array, columns)), names=["x", "x"])
    for read in (pmf.Schema.infer, pmf.Schema((pmf.Variable("x", ("a", "b")),)).encode):
        with pytest.raises(SchemaError, match="'x'"):
            read(table)


def test_infer__columns_that_cannot_be_variables():
    with pytest.raises(SchemaError, match="'a'"):
        pmf.Schema.infer({"a": [None, ""]})
    table = {"id": list(range(50)), "b": ["x", "y"] * 25}
    with pytest.warns(pmf.errors.SchemaWarning, match="'id'"):
        assert pmf.Schema.infer(table).names == ("b",)


def test_infer__order_and_unused_levels_of_categoricals_stay():
    frame = pd.DataFrame(
        {
            "size": pd.Categorical(["b", "a"], categories=["b", "c", "a"], ordered=True),
            "colour": pd.Categorical(["red", "blue"], categories=["red", "green", "blue"]),
            "down": pd.Categorical([1, 2], categories=[3, 2, 1], ordered=True),
            "text": pd.Series(["low", "high"]).astype("category"),
        }
    )
    schema = pmf.Schema.infer(frame)
    assert schema["size"].levels == ("b", "c", "a")
    assert schema["size"].values == (1.0, 2.0, 3.0)
    assert (schema["colour"].levels, schema["colour"].role) == (("red", "green", "blue"), "nominal")
    assert schema["down"].levels == ("3", "2", "1")
    assert schema["text"].levels == ("low", "high")
    assert schema.encode(frame).tolist() == [[0, 0, 2, 0], [2, 2, 1, 1]]


def test_infer__levels_of_a_polars_enum_stay():
    polars = pytest.importorskip("polars")
    kinds = polars.Enum(["b", "a", "c"])
    frame = polars.DataFrame({"x": polars.Series(["a", "b"]).cast(kinds), "y": ["u", "v"]})
    assert pmf.Schema.infer(frame)["x"].levels == ("b", "a", "c")
    assert pmf.Schema.infer({"x": frame["x"]})["x"].levels == ("b", "a", "c")
    with pytest.raises(SchemaError, match="LazyFrame"):
        pmf.Schema.infer(frame.lazy())


def test_infer__words_among_numbers_are_missing_with_a_warning():
    table = {"stars": [*map(str, [1, 2, 3, 4, 5] * 60), "five"], "n": ["a", "b", "c"] * 100 + ["a"]}
    with pytest.warns(SchemaWarning, match="'stars'.*'five'"):
        schema = pmf.Schema.infer(table)
    assert schema["stars"].values == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert schema.encode(table)[-1].tolist() == [-1, 0]


def test_infer__one_row_warns():
    with pytest.warns(SchemaWarning, match="one row"):
        pmf.Schema.infer({"a": ["x"]})
