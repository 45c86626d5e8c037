import numpy as np
import pandas as pd
import pytest

import pmflib as pmf
from pmflib.base import SchemaError, SourceError
from pmflib.surveys.margins import read_margins

SEX = {"f": 0.6, "m": 0.4}


@pytest.mark.parametrize(("scale", "total"), [(1, None), (100, None), (5000, 5000), (20, 20)])
def test_read_margins__takes_shares_per_cent_and_totals(scale, total):
    schema, (margin,) = read_margins({"sex": {each: scale * x for each, x in SEX.items()}})
    assert schema["sex"].levels == ("f", "m")
    np.testing.assert_allclose(margin.shares, [0.6, 0.4], rtol=1e-14)
    assert margin.total == (None if total is None else pytest.approx(total))


def test_read_margins__takes_rounded_shares():
    margin = read_margins({"x": {"a": 0.333, "b": 0.333, "c": 0.333}})[1][0]
    np.testing.assert_allclose(margin.shares, 1 / 3)


def test_read_margins__of_two_variables_leaves_empty_cells_out():
    table = {("f", "n"): 10, ("m", "s"): 30}
    schema, (margin,) = read_margins({("sex", "region"): table})
    assert schema.names == ("sex", "region")
    assert margin.shares.tolist() == [[0.25, 0], [0, 0.75]]
    assert margin.name_cell(3) == "sex=m, region=s"
    series = pd.Series(table)
    assert read_margins({("sex", "region"): series})[1][0].shares.tolist() == margin.shares.tolist()


def test_read_margins__reads_files(tmp_path):
    (tmp_path / "sex.csv").write_text("\ufeffsex,people\nm,40\nf,60\n", "utf-8")
    (tmp_path / "both.csv").write_text("sex,age,people\nm,1,10\nf,1,20\n\nf,2,70\n")
    schema = pmf.Schema.infer({"age": [1, 2], "sex": ["f", "m"]})
    found = read_margins([tmp_path / "sex.csv", str(tmp_path / "both.csv")], schema)[1]
    assert found[0].positions == (1,)
    assert found[0].shares.tolist() == [0.6, 0.4]
    assert found[1].positions == (1, 0)
    assert found[1].shares.tolist() == [[0.2, 0.7], [0.1, 0]]
    assert read_margins(tmp_path / "sex.csv", schema)[1][0].shares.tolist() == [0.6, 0.4]


def test_read_margins__one_level():
    assert read_margins({"x": {"a": 1}})[1][0].shares.tolist() == [1.0]


@pytest.mark.parametrize(
    ("margins", "kind", "words"),
    [
        ({"sex": {"f": -0.1, "m": 1.1}}, pmf.PmfError, ["sex", "f", "-0.1"]),
        ({"sex": {"f": float("nan"), "m": 1}}, pmf.PmfError, ["sex", "f", "nan"]),
        ({"sex": {"f": float("inf"), "m": 1}}, pmf.PmfError, ["sex", "f", "inf"]),
        ({"sex": {"f": "half", "m": 0.5}}, pmf.PmfError, ["sex", "f", "half"]),
        ({"sex": {"f": None, "m": 0.5}}, pmf.PmfError, ["sex", "f", "None"]),
        ({"sex": {"f": 0, "m": 0}}, pmf.PmfError, ["sex", "0"]),
        ({"sex": {"f": 0.5, "m": 0.4}}, pmf.PmfError, ["sex", "0.9"]),
        ({"sex": {"f": 0.1, "m": 0.1}}, pmf.PmfError, ["sex", "0.2"]),
        ({"sex": {"f": 48, "m": 48}}, pmf.PmfError, ["sex", "96"]),
        ({"sex": {"f": 1}}, SchemaError, ["sex", "m"]),
        ({"sex": {"f": 0.5, "n": 0.5}}, SchemaError, ["sex", "n"]),
        ({"sex": {"f": 0.5, "m": 0.2, " f": 0.3}}, SchemaError, ["sex", "f", "twice"]),
        ({"sax": SEX}, SchemaError, ["sax", "sex"]),
        ({"sex": SEX, ("sex",): SEX}, SchemaError, ["sex", "twice"]),
        ({"sex": {"f": 60, "m": 41}, "age": {"1": 500, "2": 501}}, pmf.PmfError, None),
        (
            {"sex": {"f": 600, "m": 400}, "age": {"1": 500, "2": 600}},
            pmf.PmfError,
            ["1,000", "1,1"],
        ),
        ({("sex", "age", "b"): {("f", "1", "x"): 1}}, pmf.PmfError, ["sex"]),
        ({("sex", "sex"): {("f", "f"): 1}}, pmf.PmfError, ["sex"]),
        ({("sex", "age"): {"f": 1}}, pmf.PmfError, ["sex x age", "f"]),
        ({"sex": 3}, pmf.PmfError, ["sex"]),
        ({}, pmf.PmfError, ["margins"]),
        (3, pmf.PmfError, ["margins"]),
    ],
)
def test_read_margins__refuses(margins, kind, words):
    schema = pmf.Schema.infer({"age": [1, 2], "sex": ["f", "m"]})
    with pytest.raises(kind) as found:
        read_margins(margins, schema)
    for word in words or ["sex"]:
        assert word in str(found.value)


@pytest.mark.parametrize("text", ["", "sex\n", "sex,n\nf,1,2\n", "sex,n\nf\n"])
def test_read_margins__refuses_files(tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(pmf.PmfError):
        read_margins(tmp_path / "bad.csv")
    with pytest.raises(SourceError, match=r"none\.csv"):
        read_margins(tmp_path / "none.csv")
