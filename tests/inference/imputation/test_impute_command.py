"""`pmf impute`: samples of a pipeline, and rows of wide files, filled once for each draw."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from pmflib.store import hold_output
from tests.factories import run_command
from tests.pipelines import as_wide, draw_codes, make_schema

SIZES = (3, 2, 4, 3)
CONFIG = """
[source]
path = "data"
layout = "wide"
[store]
folds = 4
[model]
rank = 2
[em]
max_passes = 5
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder of a pipeline that has run on 1,000 rows, of which none holds v3."""
    home = tmp_path_factory.mktemp("pipeline")
    (home / "data").mkdir()
    codes = draw_codes(1000, SIZES)
    codes[:, 3] = -1
    (home / "data" / "old.csv").write_text(as_wide(codes))
    make_schema(*SIZES).save(home / "schema.json")
    (home / "pipeline.toml").write_text(CONFIG)
    run_command(home, "run", "pipeline.toml")
    (home / "new.csv").write_text(as_wide(draw_codes(200, SIZES, seed=4)))
    return home


def read_codes(table):
    levels = [table[f"v{position}"].to_pylist() for position in range(4)]
    return np.array([[-1 if v is None else int(v) for v in column] for column in levels]).T


def test_impute__fills_every_row_once_for_each_draw(home):
    words = ["impute", "pipeline.toml", "--data", "new.csv", "--draws", "3", "--json"]
    found = json.loads(run_command(home, *words, "--output", "filled.parquet"))
    assert (found["samples"], found["draws"], found["left_missing"]) == (200, 3, ["v3"])
    table = pq.read_table(home / "filled.parquet")
    assert table.column_names == ["file", "row", "draw", "v0", "v1", "v2", "v3"]
    given = draw_codes(200, SIZES, seed=4)
    drawn = []
    for draw in (1, 2, 3):
        codes = read_codes(table.filter(np.array(table["draw"]) == draw))
        assert (codes[given >= 0] == given[given >= 0]).all()
        assert (codes[:, :3] >= 0).all()
        # of what no sample holds nothing is made up
        np.testing.assert_array_equal(codes[:, 3], given[:, 3])
        drawn.append(codes)
    assert not np.array_equal(drawn[0], drawn[1])


def test_impute__same_bytes_with_other_workers(home):
    parts = []
    for workers in (1, 3):
        name = f"workers{workers}.toml"
        own = f'{CONFIG}\n[cluster]\nworkers = {workers}\n[store]\npath = "store{workers}"\n'
        own = own.replace("[store]\nfolds = 4\n", "", 1) + "folds = 4\n"
        (home / name).write_text(own)
        run_command(home, "run", name)
        run_command(home, "impute", name, "--draws", "2", "--output", f"out{workers}.parquet")
        parts.append(pq.read_table(home / f"out{workers}.parquet"))
    assert parts[0].num_rows == 2000
    assert parts[0].equals(parts[1])


def test_impute__other_seeds_and_draws_of_one_model(home):
    words = ["impute", "pipeline.toml", "--data", "new.csv", "--output"]
    tables = []
    for name, options in (("a", []), ("b", []), ("c", ["--seed", "5"])):
        run_command(home, *words, f"{name}.parquet", *options)
        tables.append((home / f"{name}.parquet").read_bytes())
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_impute__mistakes(home):
    with hold_output(home / "held.parquet"):
        words = ["impute", "pipeline.toml", "--data", "new.csv", "--output", "held.parquet"]
        assert "held.parquet" in run_command(home, *words, code=2)
    assert not (home / "held.parquet").exists()
    (home / "notes").mkdir()
    (home / "notes" / "mine.txt").write_text("x")
    assert "notes" in run_command(home, "impute", "pipeline.toml", "--output", "notes", code=2)
    assert "draws" in run_command(home, "impute", "pipeline.toml", "--draws", "0", code=2)
