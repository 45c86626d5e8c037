"""The variables of waves, and wide tables from long ones."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.families.panels import Waves, infer_schema

LONG = pd.DataFrame(
    {
        "id": ["b", "a", "b", "c"],
        "year": [2021, 2020, 2019, 2021],
        "smokes": ["yes", "no", None, "no"],
        "age": [3, 2, 2, 1],
    }
)


def test_spread_waves__has_a_row_per_person_and_gaps_for_missed_waves():
    wide, waves = pmf.families.spread_waves(LONG, "id", "year")
    assert waves == [
        ["smokes_2019", "age_2019"],
        ["smokes_2020", "age_2020"],
        ["smokes_2021", "age_2021"],
    ]
    assert wide.column_names == ["id", *waves[0], *waves[1], *waves[2]]
    rows = {row.pop("id"): row for row in wide.to_pylist()}
    assert list(rows) == ["b", "a", "c"]
    assert rows["b"]["smokes_2019"] is None
    assert rows["b"]["age_2019"] == 2
    assert rows["b"]["smokes_2021"] == "yes"
    assert rows["b"]["age_2020"] is None
    # every answer of the long table has a place
    n_answers = sum(value is not None for row in rows.values() for value in row.values())
    assert n_answers == LONG[["smokes", "age"]].notna().sum().sum()


def test_spread_waves__takes_the_named_variables_of_any_kind_of_table():
    wide, waves = pmf.families.spread_waves(LONG.to_dict("list"), "id", "year", ["age"])
    assert waves == [["age_2019"], ["age_2020"], ["age_2021"]]
    assert wide.column_names == ["id", "age_2019", "age_2020", "age_2021"]


def test_spread_waves__keeps_the_order_of_categories():
    kinds = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    long = pd.DataFrame({"id": [1, 1, 2], "wave": [0, 1, 1], "x": ["high", "low", "mid"]})
    wide, waves = pmf.families.spread_waves(long.astype({"x": kinds}), "id", "wave")
    schema = infer_schema(wide, waves)
    assert [variable.levels for variable in schema] == [("low", "mid", "high")] * 2


def test_spread_waves__categorical_waves_come_in_the_order_of_their_categories():
    kinds = pd.CategoricalDtype(["pre", "post", "later"], ordered=True)
    long = pd.DataFrame({"id": [1, 1, 2], "wave": ["post", "pre", "post"], "x": ["a", "b", "c"]})
    wide, waves = pmf.families.spread_waves(
        long.astype({"wave": kinds, "id": "category"}), "id", "wave"
    )
    assert waves == [["x_pre"], ["x_post"]]
    assert wide["x_post"].to_pylist() == ["a", "c"]


@pytest.mark.parametrize(
    "table",
    [
        {"id_1": [1, 2], "wave": [1, 1], "id": ["a", "b"]},
        {"id_1": [1, 1], "wave": ["2", "1_2"], "a": ["a", "b"], "a_1": ["x", "y"]},
    ],
)
def test_spread_waves__refuses_columns_that_would_have_one_name(table):
    with pytest.raises(SchemaError, match="which is another column; rename one"):
        pmf.families.spread_waves(table, "id_1", "wave")


def test_spread_waves__refuses_waves_that_are_not_a_number():
    table = pa.table({"id": [1, 2], "wave": pa.array([1.0, float("nan")]), "x": ["a", "b"]})
    with pytest.raises(SchemaError, match="row 1 has no 'wave'"):
        pmf.families.spread_waves(table, "id", "wave")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"year": [2021, 2020, 2021, 2021]},
            "row 2: id b has another row for year 2021|row 0: id b",
        ),
        ({"year": [2021, None, 2019, 2021]}, "row 1 has no 'year'"),
        ({"id": ["b", "a", None, "c"]}, "row 2 has no 'id'"),
    ],
)
def test_spread_waves__refuses_rows_that_have_no_place_of_their_own(change, message):
    with pytest.raises(SchemaError, match=message):
        pmf.families.spread_waves(LONG.assign(**change), "id", "year")


def test_spread_waves__names_an_absent_column():
    with pytest.raises(SchemaError, match="column is 'wave'; pass one of"):
        pmf.families.spread_waves(LONG, "id", "wave")


def test_infer_schema__has_the_levels_of_all_waves_in_each():
    wide = {
        "a1": ["x", "y", "x"],
        "a2": ["z", "x", None],
        "b2": ["k", "l", "k"],
        "sex": ["f", "m", "f"],
    }
    schema = infer_schema(wide, [["a1", None], ["a2", "b2"]])
    assert schema.names == ("a1", "a2", "b2")
    assert schema["a1"].levels == schema["a2"].levels == ("x", "y", "z")


def test_infer_schema__of_codes_has_the_largest_of_all_waves():
    codes = np.array([[0, 2, 1, 0], [1, -1, -1, 0]])
    assert infer_schema(codes, 2).cardinalities.tolist() == [2, 3, 2, 3]
    assert infer_schema(np.full((1, 2), -1), 2).cardinalities.tolist() == [1, 1]
    with pytest.raises(SchemaError, match="pass codes"):
        infer_schema(np.zeros((2, 2)), 2)


def test_find__places_every_variable():
    schema = pmf.Schema.from_cardinalities([2, 3, 2, 3])
    waves = Waves.find(schema, 2)
    assert waves.names == (("v0", "v1"), ("v2", "v3"))
    places = waves.find_places(schema)
    assert [each.tolist() for each in places] == [[0, 0, 1, 1], [0, 1, 0, 1]]
    mixed = Waves.find(schema, [["v2", "v1"], ["v0", None], [None, "v3"]])
    assert mixed.first_positions.tolist() == [2, 1]
    assert [each.tolist() for each in mixed.find_places(schema)] == [[1, 0, 0, 2], [0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("waves", "message"),
    [
        (3, "a number of waves that divides it"),
        (0, "a number of waves that divides it"),
        ([["v0"], ["v2"]], "'?v1'?.* in no wave"),
        ([["v0", "v1"], ["v0", "v3"]], "more than one place"),
        ([["v0", "v1"], ["v2"]], "equally many"),
        (["v0", "v1"], "equally many"),
        ([["v0", "v1", None], ["v2", "v3", None]], "question 2 of waves has no column"),
        ([["v0", "v1"], ["v3", "v2"]], "give both the same ones"),
    ],
)
def test_find__refuses_waves_that_do_not_fit(waves, message):
    with pytest.raises(pmf.PmfError, match=message):
        Waves.find(pmf.Schema.from_cardinalities([2, 3, 2, 3]), waves)
