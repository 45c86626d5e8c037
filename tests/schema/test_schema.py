import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib import features
from pmflib.base import SchemaError
from tests.reference import tables_of_codes

SMOKES = pmf.Variable("smokes", ("no", "yes"))
VISITS = pmf.Variable("visits", ("0", "1", "2"), (0.0, 1.0, 2.0))
DOSE = pmf.Variable("dose", ("low", "high"), edges=(5.0,))
SCHEMA = pmf.Schema((SMOKES, VISITS, DOSE))
TABLE = {"smokes": ["no", "", "yes"], "visits": [2, 0, None], "dose": [1.5, 5.0, None]}
CODES = [[0, 2, 0], [-1, 0, 1], [1, -1, -1]]


class Frame:
    """As much of a pandas frame as is asked for."""

    columns = ("smokes", "visits", "dose")

    def __getitem__(self, name):
        return TABLE[name]


@pytest.mark.parametrize(
    "table", [TABLE, pa.table(TABLE), pa.RecordBatch.from_pydict(TABLE), Frame()]
)
def test_encode__every_kind_of_table(table):
    codes = SCHEMA.encode(table)
    assert codes.dtype == np.int8
    assert codes.tolist() == CODES


def test_encode__mixed_and_huge_values_in_one_column():
    table = TABLE | {"smokes": ["no", 1, "yes"]}
    with pytest.raises(SchemaError, match="row 1, column 'smokes': '1'"):
        SCHEMA.encode(table)
    with pytest.raises(SchemaError, match=f"column 'visits': '{2**70}'"):
        SCHEMA.encode(TABLE | {"visits": [2**70, 0, 1]})


def test_encode__absent_columns():
    table = {name: values for name, values in TABLE.items() if name != "visits"}
    with pytest.raises(SchemaError, match="column 'visits'"):
        SCHEMA.encode(table)
    assert SCHEMA.encode(table, optional=["visits"])[:, 1].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("visits", [None, [7, 7, 7], [2, 0, 1]])
def test_encode__hidden_column_is_not_looked_at(visits):
    table = {**TABLE, "visits": visits} if visits else {k: TABLE[k] for k in ("smokes", "dose")}
    codes = SCHEMA.encode(table, hidden="visits")
    assert codes[:, 1].tolist() == [-1, -1, -1]
    assert codes[:, [0, 2]].tolist() == np.array(CODES)[:, [0, 2]].tolist()


def test_encode__hidden_column_of_codes_stays_as_it_was_in_the_array_given():
    codes = pmf.Codes([[0, 99, 1]])
    assert SCHEMA.encode(codes, hidden="visits").tolist() == [[0, -1, 1]]
    assert codes.tolist() == [[0, 99, 1]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"smokes": ["no", "x", "x"]}, r"row 1, column 'smokes': 'x'.*\(2 such rows\)"),
        ({"smokes": [b"no", b"\xff", b""]}, r"row 1, column 'smokes': b'\\xff'"),
        ({"smokes": ["no"]}, "'smokes': 1, 'visits': 3"),
        ({"smokes": [["no"], [], []]}, "column 'smokes'"),
    ],
)
def test_encode__refuses_what_does_not_fit(change, message):
    with pytest.raises(SchemaError, match=message):
        SCHEMA.encode(TABLE | change)


def test_encode__refuses_what_is_no_table():
    with pytest.raises(SchemaError, match="table"):
        SCHEMA.encode([[0, 1]])


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros((2, 2), int), "codes"),
        (np.zeros(3, int), "codes"),
        (np.zeros((2, 3)), "codes"),
        (np.array([[0, 0, 0], [0, 3, 0]]), r"codes\[1, 1\] is 3"),
        (np.array([[-2, 0, 0]]), r"codes\[0, 0\] is -2"),
        (np.full((1, 3), 255, np.uint8), r"codes\[0, 0\] is 255"),
        (np.full((1, 3), 2**64 - 1, np.uint64), r"codes\[0, 0\] is 18446744073709551615"),
    ],
)
def test_check_codes__refuses(codes, message):
    with pytest.raises(SchemaError, match=message):
        SCHEMA.check_codes(codes)


def test_check_codes__gives_the_schemas_dtype():
    assert SCHEMA.check_codes(np.zeros((0, 3), np.int64)).dtype == np.int8
    wide = pmf.Schema.from_cardinalities([128, 2])
    assert wide.code_dtype == np.int16
    assert wide.check_codes(np.array([[127, 1]], np.int64)).tolist() == [[127, 1]]
    assert pmf.Schema.from_cardinalities([127]).code_dtype == np.int8


@given(tables_of_codes())
def test_decode__is_the_inverse_of_encode(case):
    cardinalities, codes = case
    schema = pmf.Schema.from_cardinalities(cardinalities)
    assert np.array_equal(schema.encode(schema.decode(codes)), codes)


TEXTS = st.text(min_size=1, max_size=4).map(str.strip).filter(bool)


@given(st.lists(TEXTS, min_size=1, max_size=6, unique=True), st.data())
def test_encode__is_the_inverse_of_decode_for_any_labels(levels, data):
    variable = pmf.Variable("v", tuple(levels), missing=("",))
    schema = pmf.Schema((variable,))
    values = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(levels)), max_size=8))
    table = pa.table({"v": pa.array(values, pa.string())})
    assert schema.decode(schema.encode(table))["v"].to_pylist() == values


def test_decode__bins_go_by_their_labels():
    table = SCHEMA.decode(np.array([[0, -1, 1]]))
    assert table.to_pydict() == {"smokes": ["no"], "visits": [None], "dose": ["high"]}
    assert SCHEMA.encode(table).tolist() == [[0, -1, 1]]


def test_save__missing_codes_stand_once(tmp_path):
    schema = pmf.Schema(
        (
            pmf.Variable("a", ("x",), missing=("?",)),
            pmf.Variable("b", ("x", "other"), other="other"),
        ),
        missing=("?",),
    )
    schema.save(tmp_path / "s.json", draft={"bins": 8})
    data = json.loads((tmp_path / "s.json").read_text())
    assert data["missing"] == ["?"]
    assert "missing" not in data["variables"][0]
    found = pmf.Schema.load(tmp_path / "s.json")
    assert (found, found.missing, found.digest) == (schema, ("?",), schema.digest)
    data["missing"] = ["?", "-"]
    assert pmf.Schema.from_json(data)["a"].missing == ("?", "-")
    assert pmf.Schema.from_json(data)["b"].missing == schema["b"].missing
    with pytest.raises(SchemaError, match="missing"):
        pmf.Schema.from_json(data | {"missing": 3})


def test_load__gives_back_what_save_wrote(tmp_path):
    schema = pmf.Schema((pmf.Variable("größe", ("klein", "groß")), VISITS))
    schema.save(tmp_path / "schema.json", review=["look at it"])
    assert pmf.Schema.load(tmp_path / "schema.json") == schema
    assert json.loads((tmp_path / "schema.json").read_text("utf-8"))["review"] == ["look at it"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"{",
        b"\xff",
        b"[1]",
        b'{"format": "pmf-schema-9", "variables": []}',
        b'{"format": "pmf-schema-1", "variables": 3}',
        b'{"format": "pmf-schema-1", "variables": ["x"]}',
        b'{"format": "pmf-schema-1", "variables": []}',
    ],
)
def test_load__refuses_what_is_no_schema(tmp_path, content):
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    for read in (path, tmp_path):
        with pytest.raises(SchemaError):
            pmf.Schema.load(read)


def test_digest__is_the_same_for_ever():
    # counts and models on disk are bound to it
    schema = pmf.Schema((pmf.Variable("a", ("x", "y"), missing=("",)),))
    assert schema.digest == "6d5fd5a557188b2c1ab89ebc625fc29d5367522c2a293fce8cfb543eafdcaeb8"


@pytest.mark.parametrize(
    "other",
    [
        pmf.Schema((VISITS, SMOKES, DOSE)),
        pmf.Schema((SMOKES, VISITS)),
        pmf.Schema((pmf.Variable("smokes", ("yes", "no")), VISITS, DOSE)),
        pmf.Schema((SMOKES, pmf.Variable("visits", VISITS.levels, (0.0, 1.0, 3.0)), DOSE)),
        pmf.Schema((SMOKES, VISITS, pmf.Variable("dose", DOSE.levels, edges=(5.5,)))),
        pmf.Schema((pmf.Variable("smokes", SMOKES.levels, missing=("?",)), VISITS, DOSE)),
    ],
)
def test_digest__tells_schemas_apart(other):
    assert other.digest != SCHEMA.digest


def test_position__by_name_and_index():
    variables: tuple[Any, ...] = ("dose", 1, np.int64(0))
    assert [SCHEMA.position(v) for v in variables] == [2, 1, 0]
    assert SCHEMA["visits"] is SCHEMA[1] is VISITS
    assert SCHEMA.rows_of("visits") == slice(2, 5)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (3, "variable 3"),
        (-1, "variable -1"),
        ("vists", "'vists'.*'visits'"),
        ("zzz", "'zzz'"),
    ],
)
def test_position__unknown_variable(variable, message):
    with pytest.raises(SchemaError, match=message):
        SCHEMA.position(variable)


def test_schema__holds_its_variables():
    assert list(SCHEMA) == [SMOKES, VISITS, DOSE]
    assert "dose" in SCHEMA
    assert "doses" not in SCHEMA
    assert SCHEMA.offsets.tolist() == [0, 2, 5, 7]
    assert SCHEMA.offsets.dtype == np.int64
    assert SCHEMA.n_levels == 7


def test_schema__refuses_no_variables_and_equal_names():
    with pytest.raises(SchemaError, match="variable"):
        pmf.Schema.from_cardinalities([])
    with pytest.raises(SchemaError, match="'dose'"):
        pmf.Schema((DOSE, SMOKES, DOSE))
    with pytest.raises(SchemaError, match="'v1'"):
        pmf.Schema.from_cardinalities([1, 0])


def test_without_drafts_schemas_are_inferred_of_codes_alone(monkeypatch):
    monkeypatch.setattr(features, "FEATURES", ())
    assert pmf.Schema.infer(np.array([[0, 1], [1, 0]])).cardinalities.tolist() == [2, 2]
    for table in ({"q": ["a", "b"]}, np.array([["a"], ["b"]])):
        with pytest.raises(SchemaError, match="no feature of this installation infers a schema"):
            pmf.Schema.infer(table)
