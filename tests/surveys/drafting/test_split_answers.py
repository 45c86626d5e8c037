"""Cells with several answers, from the draft to nights and scores."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from pmflib.schema import Schema

RNG = np.random.default_rng(4)
LIKES = np.array(["jazz", "pop", "rock"])


def write_answers(path, n_rows, *more):
    old = RNG.random(n_rows) < 0.5
    chances = np.where(old[:, None], [0.8, 0.1, 0.3], [0.1, 0.8, 0.3])
    cells = [";".join(LIKES[row]) for row in RNG.random((n_rows, 3)) < chances]
    rows = [f"{'old' if a else 'young'},{cell}" for a, cell in zip(old, cells, strict=True)]
    path.write_text("\n".join(["age,likes", *rows, *more]) + "\n")


def test_split__from_the_draft_to_a_night_with_an_unknown_answer_and_scores(call, tmp_path):
    (tmp_path / "data").mkdir()
    write_answers(tmp_path / "data" / "a.csv", 600)
    code, out, _ = call("infer", "data", "--split", "likes=;", "--rank", "2")
    assert code == 0
    assert Schema.load(tmp_path / "schema.json").names == (
        "age",
        *("likes_jazz", "likes_pop", "likes_rock"),
    )
    code, *_ = call("run", "pipeline.toml")
    assert code == 0
    code, out, _ = call("query", "pipeline.toml", "P(likes_jazz=yes | age=old)", "--json")
    assert code == 0
    # of those who gave an answer
    assert json.loads(out)["value"] == pytest.approx(0.8 / (1 - 0.2 * 0.9 * 0.7), abs=0.06)
    write_answers(tmp_path / "data" / "b.csv", 300, "old,jazz;polka")
    code, *_ = call("run", "pipeline.toml")
    assert code == 0
    code, *_ = call("quarantine", "pipeline.toml", "--output", "rejected.parquet")
    assert code == 0
    (row,) = pq.read_table(tmp_path / "rejected.parquet").to_pylist()
    named = ("b.csv", "unknown_level", "likes", "old,jazz;polka")
    assert tuple(row[each] for each in ("file", "reason", "column", "raw")) == named
    (tmp_path / "new.csv").write_text("age,likes\nold,jazz;polka\nyoung,pop\n,\n")
    given = ("--data", "new.csv", "--output", "scores.parquet", "--target", "likes_pop")
    code, *_ = call("score", "pipeline.toml", *given)
    assert code == 0
    found = pq.read_table(tmp_path / "scores.parquet")
    # scores are given for all; an unknown answer counts as missing in all parts
    assert found["observed"].to_pylist() == [1, 4, 0]
    assert found["likes_pop.label"].to_pylist() == ["no", "yes", "yes"]


@pytest.mark.parametrize("text", ["likes", "=;", "likes="])
def test_split__another_form(text, call, tmp_path):
    write_answers(tmp_path / "a.csv", 20)
    code, _, err = call("infer", "a.csv", "--split", text)
    assert code == 2
    assert "--split" in err
