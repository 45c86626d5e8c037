import csv
from types import SimpleNamespace

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import restore_cell
from pmflib.fits import COLUMNS


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    table = {
        "=a": rng.choice(["=1+1", "no"], 200),
        "b": rng.choice(["x", "y", "z,é"], 200),
    }
    levels = {"=a": ("=1+1", "no"), "b": ("x", "y", "z,é")}
    schema = pmf.Schema(tuple(pmf.Variable(name, each) for name, each in levels.items()))
    return pmf.fit_em(table, rank=2, schema=schema)


def make_errors(model):
    def spread(values):
        return SimpleNamespace(errors=values / 10, lower=values * 0.9, upper=values * 1.1)

    return {"prior": spread(model.prior), "factors": spread(model.factors)}


def test_to_frame__has_every_parameter_once(result):
    frame, model = result.to_frame(), result.model
    assert list(frame.columns) == list(COLUMNS)
    shares = frame[frame.parameter == "share"]
    assert shares.value.tolist() == model.prior.tolist()
    levels = frame[frame.parameter == "probability"].pivot(
        index=["variable", "level"], columns="state", values="value"
    )
    for variable in model.schema:
        for code, level in enumerate(variable.levels):
            expected = model.factor(variable.name)[code]
            assert levels.loc[(variable.name, str(level))].tolist() == expected.tolist()
    assert frame[["error", "lower", "upper"]].isna().all().all()


def test_to_frame__errors_stand_beside_their_parameters(result):
    frame = result.to_frame(make_errors(result.model))
    np.testing.assert_allclose(frame.error, frame.value / 10)
    np.testing.assert_allclose(frame.lower, frame.value * 0.9)
    other = pmf.fit_em(np.zeros((5, 2), int), rank=1).model
    with pytest.raises(pmf.PmfError, match="errors"):
        result.to_frame(make_errors(other))


def test_to_csv__is_read_back_to_the_same_bits(result, tmp_path):
    result.to_csv(tmp_path / "fit.csv")
    with (tmp_path / "fit.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    frame = result.to_frame()
    assert [float(row["value"]) for row in rows] == frame.value.tolist()
    # a spreadsheet would run them
    assert "'=1+1" in {row["level"] for row in rows}
    assert [restore_cell(row["level"]) for row in rows] == frame.level.tolist()
    assert {row["error"] for row in rows} == {""}


def test_to_excel__has_parameters_profiles_and_statistics(result, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    result.to_excel(tmp_path / "fit.xlsx", make_errors(result.model))
    book = openpyxl.load_workbook(tmp_path / "fit.xlsx")
    assert book.sheetnames == ["parameters", "profiles", "fit"]
    rows = list(book["parameters"].values)
    frame = result.to_frame(make_errors(result.model))
    assert rows[0] == COLUMNS
    assert [row[4] for row in rows[1:]] == pytest.approx(frame.value.tolist(), abs=1e-15)
    # a level of the data is never a formula
    assert {cell.data_type for cell in book["parameters"]["D"][3:]} == {"s"}
    found = dict(book["fit"].values)
    assert found["BIC"] == pytest.approx(result.training.bic)
    assert found["free parameters"] == result.training.n_parameters


def test_to_excel__names_the_extra_where_openpyxl_is_not_installed(result, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(pmf.PmfError, match=r"pmflib\[excel\]"):
        result.to_excel(tmp_path / "fit.xlsx")
