"""Tables with a row per answer."""

import numpy as np
import pandas as pd
import pytest

from pmflib.apps.recommending.rating_tables import read_ratings
from pmflib.base import SchemaError

LOG = {
    "user": ["b", "a", "b", "a", "b"],
    "film": [10, 9, 9, 10, 10],
    "stars": [4.5, 3.0, 1.0, 3.0, 1.0],
    "at": [1, 2, 3, 4, 5],
}


def decode(found):
    """Labels by sample and item."""
    codes = found.block.to_codes(found.schema.offsets)
    return {
        (str(found.samples[row]), found.schema.names[item]): found.schema[item].levels[code]
        for row, item in np.argwhere(codes >= 0)
        for code in [codes[row, item]]
    }


@pytest.mark.parametrize("as_table", [dict, pd.DataFrame])
def test_read_ratings__last_answer_to_an_item_counts(as_table):
    found = read_ratings(as_table(LOG))
    # items are sorted as numbers, and all have all levels
    assert found.schema.names == ("9", "10")
    assert [each.values for each in found.schema] == [(1.0, 3.0, 4.5)] * 2
    assert decode(found) == {
        ("a", "9"): "3",
        ("a", "10"): "3",
        ("b", "9"): "1",
        ("b", "10"): "1",
    }


def test_read_ratings__of_other_samples():
    schema = read_ratings(LOG).schema
    found = read_ratings({"u": ["x", "x", "y"], "i": [10, 77, 77], "r": [3, 1, 1]}, schema)
    assert decode(found) == {("x", "10"): "3"}
    assert found.samples.tolist() == ["x", "y"]
    with pytest.raises(SchemaError, match=r"\[2\.0\]"):
        read_ratings({"u": ["x"], "i": [10], "r": [2]}, schema)


def test_read_ratings__without_numbers():
    found = read_ratings({"user": ["a", "b"], "item": ["x", "y"]})
    assert decode(found) == {("a", "x"): "1", ("b", "y"): "1"}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"user": ["a"]}, "sample, item and rating"),
        ({"user": ["a"], "item": [None], "r": [1]}, "'item'"),
        ({"user": ["a"], "item": ["x"], "r": ["good"]}, "'r'"),
        ({"user": ["a"], "item": ["x"], "r": [np.inf]}, "finite"),
    ],
)
def test_read_ratings__refuses(table, said):
    with pytest.raises(SchemaError, match=said):
        read_ratings(table)
