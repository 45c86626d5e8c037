"""A file of SPSS through the commands: drafted, fitted, and back with codes, labels and missing codes."""

import json

import numpy as np
import pyarrow as pa
import pyreadstat
import pytest
import readstat_arrow

from tests.factories import run_command

LABELS = {
    "tax": {1: "disagree", 2: "neither", 3: "agree", 8: "don't know", 9: "no answer"},
    "region": {10: "north", 20: "south", 30: "west"},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder of a pipeline that has run on 600 persons of a file of SPSS."""
    home = tmp_path_factory.mktemp("spss")
    draw = np.random.default_rng(5)
    kind = draw.integers(0, 2, 600)
    tax = np.where(draw.random(600) < 0.8, 1 + 2 * kind, 2).astype(float)
    tax[::7], tax[1::50] = 9, 8
    columns = {
        "id": 5000.0 + np.arange(600),
        "tax": tax,
        "region": 10.0 * (1 + (kind + draw.integers(0, 2, 600))),
        "sex": np.where(draw.random(600) < 0.3 + 0.4 * kind, "m", "f"),
    }
    metadata = readstat_arrow.Metadata(
        value_labels={
            name: [{"value": code, "label": label} for code, label in labels.items()]
            for name, labels in LABELS.items()
        },
        variable_labels={"tax": "Taxes are too high", "id": "Number of the interview"},
        missing_values={"tax": {"values": [8, 9]}},
        measures={"tax": "ordinal", "region": "nominal"},
    )
    readstat_arrow.write_sav(home / "survey.sav", pa.table(columns), metadata)
    run_command(home, "infer", "survey.sav", "--sample", "id", "--output", ".")
    run_command(home, "run", "pipeline.toml")
    return home


@pytest.mark.parametrize("suffix", [".sav", ".zsav", ".dta"])
def test_impute__codes_labels_and_missing_codes_are_those_of_the_source(home, suffix):
    run_command(home, "impute", "pipeline.toml", "--draws", "2", "--output", f"filled{suffix}")
    parse = pyreadstat.read_dta if suffix == ".dta" else pyreadstat.read_sav
    source, known = pyreadstat.read_sav(home / "survey.sav", user_missing=True)
    filled, about = parse(home / f"filled{suffix}", user_missing=True)
    assert filled.columns.tolist() == ["sample", "row", "draw", "tax", "region", "sex"]
    first = filled[filled["draw"] == 1].set_index("sample").sort_index()
    assert first.index.tolist() == source["id"].tolist()
    for name in ("tax", "region", "sex"):
        given = source.set_index("id")[name]
        kept = ~given.isin([8, 9])
        assert (first.loc[kept, name] == given[kept]).all()
    assert set(filled["tax"]) == {1, 2, 3}
    assert about.variable_value_labels == LABELS
    assert about.column_names_to_labels["tax"] == "Taxes are too high"
    assert about.column_names_to_labels["sample"] == "Number of the interview"
    if suffix != ".dta":
        assert about.missing_ranges["tax"] == known.missing_ranges["tax"]
        assert about.variable_measure["tax"] == "ordinal"
    # the output is a source like the first
    report = run_command(home, "check", f"filled{suffix}", "--schema", "schema.json", "--json")
    assert json.loads(report)["files"][0]["rows_encoded"] == 1200


def test_score__predicted_codes_have_the_labels_of_the_source(home):
    run_command(
        home,
        "score",
        "pipeline.toml",
        "--target",
        "tax",
        "--keep",
        "region",
        "--output",
        "scores.sav",
    )
    frame, about = pyreadstat.read_sav(home / "scores.sav")
    assert about.variable_value_labels == {"region": LABELS["region"], "tax.label": LABELS["tax"]}
    assert about.column_names_to_labels["tax.label"] == "Taxes are too high (predicted)"
    assert set(frame["tax.label"]) <= {1, 2, 3}
    assert sorted(frame["sample"]) == [5000 + row for row in range(600)]
    assert not frame["log_prob"].isna().any()


def test_score__model_alone_and_columns_that_are_no_variables(home):
    (model,) = (home / "store" / "model").glob("*/model")
    words = ["score", "--model", str(model), "--data", "survey.sav", "--keep", "id,tax,sex"]
    run_command(home, *words, "--output", "alone.dta")
    frame, about = pyreadstat.read_dta(home / "alone.dta")
    assert frame["id"].tolist() == [5000 + row for row in range(600)]
    assert about.variable_value_labels == {"tax": LABELS["tax"]}
    assert about.column_names_to_labels["id"] == "Number of the interview"


def test_erase__finds_identifiers_that_are_numbers_in_an_output(home):
    run_command(home, "score", "pipeline.toml", "--output", "erased.sav")
    words = ["erase", "pipeline.toml", "--find", "--sample", "5017", "--json"]
    (found,) = [
        each
        for each in json.loads(run_command(home, *words))
        if each["location"].endswith("erased.sav")
    ]
    assert found["text"].startswith("5017")
    assert pyreadstat.read_sav(home / "erased.sav")[0]["sample"][found["row"] - 1] == 5017
    run_command(home, "erase", "pipeline.toml", "--sample", "5017")
    run_command(home, "score", "pipeline.toml", "--output", "erased.sav")
    left = pyreadstat.read_sav(home / "erased.sav")[0]["sample"]
    assert sorted(left) == [5000 + row for row in range(600) if row != 17]
