"""Columns of raw files that are no variables, beside the predictions for their rows."""

import random
import sys

import pyarrow.csv
import pytest


@pytest.fixture
def pmf(monkeypatch, capsys):
    """Exit code and standard error of a command."""
    from flows.cli import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pmf", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, capsys.readouterr().err

    return call


def test_score__keeps_columns_of_the_rows_that_fit(pmf, tmp_path):
    draw = random.Random(0)
    lines = ["person_id;town;bought"]
    for number in range(400):
        town = draw.choice(["Köln", "Ulm"])
        lines.append(f"Zoë {number};{town};{draw.choice(['yes', 'no'])}")
    (tmp_path / "sold.csv").write_bytes("\n".join(lines).encode("latin-1"))
    work = tmp_path / "work"
    assert pmf("infer", tmp_path / "sold.csv", "--rank", "2", "--output", work)[0] == 0
    assert pmf("run", work / "pipeline.toml")[0] == 0
    new = tmp_path / "new"
    new.mkdir()
    # one row is ragged, and one has a town that is not known: neither is scored
    rows = ["person_id;town;bought", "Ann;Ulm;yes", "Bob;Ulm", "Cem;Paris;no", "Dörte;Köln;"]
    (new / "a.csv").write_bytes("\n".join(rows).encode("latin-1"))
    (new / "b.csv").write_bytes("\n".join([rows[0], "Eva;Ulm;no"]).encode("latin-1"))
    out = tmp_path / "scores.csv"
    words = ["score", work / "pipeline.toml", "--data", new, "--target", "bought", "--output", out]
    assert pmf(*words, "--keep", "person_id,town")[0] == 0
    table = pyarrow.csv.read_csv(out)
    assert table["person_id"].to_pylist() == ["Ann", "Dörte", "Eva"]
    assert table["town"].to_pylist() == ["Ulm", "Köln", "Ulm"]
    assert table["row"].to_pylist() == [1, 4, 1]
    code, err = pmf(*words, "--keep", "persn_id")
    assert (code, "did you mean ['person_id']" in err) == (3, True)
