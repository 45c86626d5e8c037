import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.schema import MISSING, UNDECODABLE, UNKNOWN

RATING = pmf.Variable("rating", ("1", "2", "3", "4", "5"), (1.0, 2.0, 3.0, 4.0, 5.0))
COLOUR = pmf.Variable("colour", ("red", "green", "blue"))
DOSE = pmf.Variable("dose", ("low", "middle", "high"), edges=(0.0, 10.0), missing=("", "NA", "-9"))


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["5", " 3 ", "4.0", "", None, "x"]), [4, 2, 3, MISSING, MISSING, UNKNOWN]),
        (pa.array([b"5", b"\xff", None, b"NA"]), [4, UNDECODABLE, MISSING, MISSING]),
        (pa.array([5, 1, None, 6], pa.int8()), [4, 0, MISSING, UNKNOWN]),
        (pa.array([2**63, 1], pa.uint64()), [UNKNOWN, 0]),
        (pa.array([5.0, 1.5, None, float("nan")]), [4, UNKNOWN, MISSING, MISSING]),
        (pa.array([True, None]), [UNKNOWN, MISSING]),
        (pa.array([None, None]), [MISSING, MISSING]),
        (pa.array([], pa.string()), []),
        (pa.chunked_array([], pa.string()), []),
        (pa.array(["2", None, "1"]).dictionary_encode(), [1, MISSING, 0]),
        (pa.array([2, 1, 2]).dictionary_encode(), [1, 0, 1]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["2", None])), [1, MISSING]),
        (
            pa.chunked_array(
                [pa.array(["1", "2"]).dictionary_encode(), pa.array(["3"]).dictionary_encode()]
            ),
            [0, 1, 2],
        ),
    ],
)
def test_encode_column__every_type_of_column(column, expected):
    codes = RATING.encode_column(column)
    assert codes.dtype == np.int16
    assert codes.tolist() == expected


def test_encode_column__booleans_are_texts_of_their_own():
    flag = pmf.Variable("flag", ("false", "true"))
    assert flag.encode_column(pa.array([True, False, None])).tolist() == [1, 0, MISSING]


def test_encode_column__nested_column_is_refused():
    with pytest.raises(SchemaError, match="column 'rating'"):
        RATING.encode_column(pa.array([[1], [2]]))


def test_encode_column__bins_hold_their_left_edge():
    expected = [0, 1, 1, 2, 2, MISSING, MISSING, MISSING]
    numbers = [-0.5, 0.0, 9.99, 10.0, 1e300, None, float("nan"), -9.0]
    assert DOSE.encode_column(pa.array(numbers)).tolist() == expected
    assert [DOSE.encode_value(number) for number in numbers] == expected


@given(st.floats(allow_nan=False, allow_infinity=True))
def test_encode_column__a_number_and_its_text_fall_in_the_same_bin(number):
    (by_number,) = DOSE.encode_column(pa.array([number]))
    assert by_number == DOSE.encode_value(number) == DOSE.encode_value(repr(number))


@given(st.integers(-(2**63), 2**63 - 1))
def test_encode_column__integers_of_any_size_fall_in_a_bin(number):
    expected = MISSING if number == -9 else int(number >= 0) + int(number >= 10)
    assert DOSE.encode_column(pa.array([number], pa.int64())).tolist() == [expected]


def test_encode_value__infinity_is_in_no_bin():
    assert DOSE.encode_value(float("inf")) == DOSE.encode_value("-inf") == UNKNOWN
    assert DOSE.encode_column(pa.array([float("inf")])).tolist() == [UNKNOWN]


def test_encode_value__a_bin_goes_by_its_label_too():
    assert [DOSE.encode_value(label) for label in ("low", "high", "huge")] == [0, 2, UNKNOWN]


@pytest.mark.parametrize("value", ["5", " 5 ", "5.0", "05", "5e0", 5, 5.0, np.int8(5), b"5"])
def test_encode_value__one_number_is_one_level(value):
    assert RATING.encode_value(value) == 4


def test_encode_value__texts_are_compared_as_texts():
    assert COLOUR.encode_value(" red") == 0
    assert COLOUR.encode_value("Red") == UNKNOWN
    padded = pmf.Variable("zip", ("01", "1"))
    assert [padded.encode_value(text) for text in ("01", "1", 1, "1.0")] == [0, 1, 1, UNKNOWN]


def test_encode_value__missing_codes_win_over_levels_and_bins():
    listed = pmf.Variable("listed", ("1", "2", "99"), missing=("99", "?"))
    assert [listed.encode_value(v) for v in (99, "99.0", "?", "", None)] == [-1, -1, -1, -2, -1]
    assert DOSE.encode_value("-9.0") == MISSING


def test_encode_value__bands_with_an_underscore_are_no_numbers():
    band = pmf.Variable("age", ("18_24", "25_34"))
    assert not band.is_numeric
    assert band.encode_value("1824") == UNKNOWN


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"levels": ()}, "levels"),
        ({"levels": tuple(map(str, range(32_768)))}, "levels"),
        ({"levels": ("a", "b"), "values": (1.0,)}, "values"),
        ({"levels": ("a",), "values": (float("inf"),)}, "value"),
        ({"levels": ("a", "b"), "edges": ()}, "edges"),
        ({"levels": ("a", "b", "c"), "edges": (1.0, 1.0)}, "edges"),
        ({"levels": ("a", "b"), "edges": (float("nan"),)}, "edges"),
        ({"levels": ("a", "b"), "edges": (float("inf"),)}, "edges"),
        ({"levels": ("a", "b", " a")}, "level"),
    ],
)
def test_variable__refuses_what_does_not_fit(arguments, named):
    with pytest.raises(SchemaError, match=f"'v' .*{named}"):
        pmf.Variable("v", **arguments)


@pytest.mark.parametrize("variable", [RATING, COLOUR, DOSE])
def test_from_json__gives_back_what_to_json_wrote(variable):
    assert pmf.Variable.from_json(variable.to_json()) == variable


def test_from_json__numbers_and_booleans_become_texts():
    read = pmf.Variable.from_json({"name": "v", "levels": [1, 2.0, True]})
    assert read.levels == ("1", "2", "true")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("v", "'v'"),
        ({"levels": ["a"]}, "'name'"),
        ({"name": "v"}, "'levels'"),
        ({"name": "v", "levels": "ab"}, "levels"),
        ({"name": "v", "levels": [None]}, "levels"),
        ({"name": "v", "levels": ["a"], "values": "1"}, "values"),
        ({"name": "v", "levels": ["a"], "values": ["x"]}, "values"),
        ({"name": "v", "levels": ["a"], "edges": 3}, "edges"),
        ({"name": "v", "levels": ["a"], "label": "x"}, "'label'"),
    ],
)
def test_from_json__refuses_what_is_no_variable(data, message):
    with pytest.raises(SchemaError, match=message):
        pmf.Variable.from_json(data)


def test_other__unknown_texts_belong_to_it():
    variable = pmf.Variable("v", ("a", "5", "other"), missing=("", "?"), other="other")
    column = pa.array(["a", "b", "?", None, "5", b"x".decode(), "other"])
    assert variable.encode_column(column).tolist() == [0, 2, -1, -1, 1, 2, 2]
    assert variable.encode_value(b"\xff") < -2
    assert pmf.Variable.from_json(variable.to_json()) == variable
    assert "other" not in pmf.Variable("v", ("a",)).to_json()


def test_other__numbers_are_one_level_however_they_are_written():
    variable = pmf.Variable("v", ("1", "5", "other"), other="other")
    assert [variable.encode_value(value) for value in (5, "5.0", 7, "x")] == [1, 1, 2, 2]


@pytest.mark.parametrize("edges", [None, (1.0,)])
def test_other__must_be_a_level_and_no_bin(edges):
    with pytest.raises(SchemaError, match="'rest'"):
        pmf.Variable("v", ("a", "b"), edges=edges, other="rest")
