import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.apps.crowd import read_tags
from pmflib.base import SchemaError
from pmflib.ingest import SourceOptions, find_sources
from pmflib.surveys.drafting import draft_schema, list_names
from pmflib.surveys.drafting.schema_edits import ColumnEdit, edit_column
from pmflib.surveys.drafting.table_draft import propose_variables

CELLS = ["a;c", "b", " c ; a ", None, ";", "NA"] * 20
TABLE = {"sex": ["f", "m"] * 60, "likes": CELLS}
CODES = [[1, 0, 1], [0, 1, 0], [1, 0, 1], [-1] * 3, [-1] * 3, [-1] * 3]


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
def test_infer__a_column_is_split_with_the_base_of_those_who_answered(make):
    table = make(TABLE)
    schema = pmf.Schema.infer(table, split={"likes": ";"})
    assert schema.names == ("sex", "likes_a", "likes_b", "likes_c")
    assert schema.columns == ("sex", "likes")
    assert schema.encode(table)[:6, 1:].tolist() == CODES
    assert pmf.fit_em(table, rank=1, schema=schema).model.marginal(["likes_b"])[1] == pytest.approx(
        1 / 3, abs=0.01
    )
    back = pmf.Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert (back, back.digest) == (schema, schema.digest)
    # samples and completed rows have a column for each part
    assert (schema.encode(schema.decode(schema.encode(table))) == schema.encode(table)).all()


def test_encode__an_answer_that_nobody_gave_before_is_named():
    schema = pmf.Schema.infer(TABLE, split={"likes": ";"})
    with pytest.raises(SchemaError, match="column 'likes': 'a;z' is no level; answers"):
        schema.encode({"sex": ["f"], "likes": ["a;z"]})


@pytest.mark.parametrize(
    ("split", "named"),
    [({"likes": "|"}, "'|'"), ({"like": ";"}, "did you mean ['likes']"), ({"likes": ""}, "''")],
)
def test_infer__a_column_that_cannot_be_split(split, named):
    with pytest.raises(SchemaError) as caught:
        pmf.Schema.infer(TABLE, split=split)
    assert named in str(caught.value)


def test_infer__a_part_has_the_name_of_a_column():
    with pytest.raises(SchemaError, match="'likes_a'"):
        pmf.Schema.infer({**TABLE, "likes_a": ["x", "y"] * 60}, split={"likes": ";"})


def test_estimators__cells_with_several_answers_are_read_and_not_written():
    table = pd.DataFrame(TABLE)
    schema = pmf.Schema.infer(table, split={"likes": ";"})
    y = ["x" if text and "a" in text else "y" for text in CELLS]
    features = pmf.Schema(schema.variables)
    assert pmf.PMFClassifier(rank=2, schema=features).fit(table, y).score(table, y) > 0.9
    density = pmf.apps.PMFDensity(rank=1, schema=schema).fit(table)
    assert np.isfinite(density.score_samples(table)).all()
    with pytest.raises(pmf.PmfError, match="'likes'"):
        density.sample(3)
    with pytest.raises(pmf.PmfError, match="'likes'"):
        pmf.PMFImputer(rank=1, schema=schema).fit(table)


def test_draft__parts_are_in_the_place_of_their_column_and_the_flag_is_named(tmp_path):
    lines = ["sex,likes,n", *(f"{'fm'[i % 2]},{CELLS[i] or ''},{i % 3}" for i in range(120))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    sources, config = find_sources(str(tmp_path)), SourceOptions(path="x", layout="wide")
    drafted = draft_schema(sources, config, split={"likes": ";"}, target="likes_c")
    assert drafted.schema.names == ("sex", "likes_a", "likes_b", "likes_c", "n")
    assert drafted.columns["likes_a"].share_missing == 0.5
    assert drafted.columns["likes_a"].why == "'a' in 40 of 60 cells of 'likes' with answers"
    with pytest.raises(SchemaError, match="'likes_d'"):
        draft_schema(sources, config, split={"likes": ";"}, target="likes_d")
    kept = edit_column(drafted, "likes_b", ColumnEdit(is_dropped=True), None)
    assert kept.schema.names == ("sex", "likes_a", "likes_c", "n")
    with pytest.raises(SchemaError, match="'likes_b'"):
        edit_column(drafted, "likes_b", ColumnEdit(role="ordinal"), None)


def test_tags__several_in_a_cell():
    rows = {"task": [1, 1, 2], "worker": ["u", "v", "u"], "label": ["sea; sky", None, "sky"]}
    log = read_tags(rows, split=";")
    assert log.tags.to_pylist() == ["sea", "sky"]
    assert log.given.tolist() == [[0, 0], [0, 1], [2, 1]]
    assert len(log.taggings) == 3
    with pytest.raises(SchemaError, match="split"):
        read_tags(rows, split="|")


def test_list_names__questions_are_shortened_in_notes_on_several():
    asked = "Please state whether you view the following characters favorably or not: Han Solo"
    assert list_names([asked]) == asked
    assert list_names([asked, "age"]) == "Please state whether yo...rably or not: Han Solo, age"


def test_propose_variables__cells_beside_their_indicators_are_left_out():
    cells = ["seed tools", "water", None, "seed"] * 20
    table: dict[str, list[object]] = {
        "needs": [*cells],
        "mood": ["good day", "bad day", "day", "bad"] * 20,
    }
    for answer in ("seed", "tools", "water", "cash"):
        table[f"needs/{answer}"] = [None if c is None else int(answer in c.split()) for c in cells]
    proposals = propose_variables(pa.table(table))
    assert proposals["needs"].variable is None
    assert "needs/seed, needs/tools" in proposals["needs"].note
    assert [name for name, each in proposals.items() if each.variable is None] == ["needs"]
    # an answer without an indicator would be lost
    del table["needs/tools"]
    assert propose_variables(pa.table(table))["needs"].variable is not None
