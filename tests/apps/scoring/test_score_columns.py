"""Columns of raw files that are no variables, beside the predictions for their rows."""

import json
import random

import pyarrow.csv
import pyarrow.parquet


def test_score__keeps_columns_of_the_rows_that_fit(call, tmp_path):
    draw = random.Random(0)
    lines = ["person_id;town;bought"]
    for number in range(400):
        town = draw.choice(["Köln", "Ulm"])
        lines.append(f"Zoë {number};{town};{draw.choice(['yes', 'no'])}")
    (tmp_path / "sold.csv").write_bytes("\n".join(lines).encode("latin-1"))
    work = tmp_path / "work"
    assert call("infer", tmp_path / "sold.csv", "--rank", "2", "--output", work)[0] == 0
    assert call("run", work / "pipeline.toml")[0] == 0
    new = tmp_path / "new"
    new.mkdir()
    # one row is ragged, and not scored; one has a town that is not known, which counts as missing
    rows = ["person_id;town;bought", "Ann;Ulm;yes", "Bob;Ulm", "Cem;Paris;no", "Dörte;Köln;"]
    (new / "a.csv").write_bytes("\n".join(rows).encode("latin-1"))
    (new / "b.csv").write_bytes("\n".join([rows[0], "Eva;Ulm;no"]).encode("latin-1"))
    out = tmp_path / "scores.csv"
    words = ["score", work / "pipeline.toml", "--data", new, "--target", "bought", "--output", out]
    assert call(*words, "--keep", "person_id,town")[0] == 0
    table = pyarrow.csv.read_csv(out)
    assert table["person_id"].to_pylist() == ["Ann", "Cem", "Dörte", "Eva"]
    assert table["town"].to_pylist() == ["Ulm", "", "Köln", "Ulm"]
    assert table["row"].to_pylist() == [1, 3, 4, 1]
    code, _, err = call(*words, "--keep", "persn_id")
    assert (code, "'persn_id'" in err) == (3, True)


def test_score__new_samples_that_are_sorted_keep_what_is_understood(call, tmp_path):
    draw = random.Random(0)
    lines = ["person,town,bought"]
    for number in range(400):
        lines.append(f"p{number},{draw.choice(['Bonn', 'Ulm'])},{draw.choice(['yes', 'no'])}")
    (tmp_path / "sold.csv").write_text("\n".join(lines))
    work = tmp_path / "work"
    words = ["infer", tmp_path / "sold.csv", "--sample", "person", "--rank", "2"]
    assert call(*words, "--output", work)[0] == 0
    assert call("run", work / "pipeline.toml")[0] == 0
    new, out = tmp_path / "new.csv", tmp_path / "scores.parquet"
    rows = ["person,town,bought", "a,Ulm,yes.", "b,Paris,no.", "c,Paris,no.", "d,Ulm,yes.", "e,Ulm"]
    new.write_text("\n".join(rows))
    words = ["score", work / "pipeline.toml", "--data", new, "--target", "bought", "--output", out]
    code, printed, _ = call(*words, "--json")
    assert code == 0
    found, table = json.loads(printed), pyarrow.parquet.read_table(out)
    assert sorted(table["sample"].to_pylist()) == ["a", "b", "c", "d"]
    assert (found["rows_in"], found["rows_encoded"], found["rows_quarantined"]) == (5, 4, 1)
    assert found["unknown_levels"] == {
        "bought": {"cells": 4, "values": {"yes.": 2, "no.": 2}, "more_values": 0},
        "town": {"cells": 2, "values": {"Paris": 2}, "more_values": 0},
    }
    assert found["measures"] == {"bought": {"judged": 0, "truth_missing": 4}}
    out.unlink()
    new.write_text("\n".join(rows).replace("Ulm", "Rom"))
    code, _, err = call(*words)
    assert (code, "'town'" in err) == (3, True)
    assert not out.exists()
