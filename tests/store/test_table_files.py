import csv

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pmflib.base import ConfigError, guard_cell, restore_cell
from pmflib.store import draft_file, join_files, read_file, write_file


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for index, rows in enumerate(([3, 1, 2], [2, 1])):
        table = pa.table({"row": rows, "a.label": [f"r{index},{row}" for row in rows]})
        pq.write_table(table, folder / f"part-{index:05}.parquet")
    return folder


def test_join_files__refuses_another_suffix(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"a\.xlsx"):
        join_files(folder, tmp_path / "a.xlsx", "row")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_join_files__all_rows_in_order(tmp_path, suffix):
    labels = tmp_path / "labels"
    labels.mkdir()
    for index, tasks in enumerate((["t3", "t1"], ["t2"], [])):
        shares = pa.array([0.5] * len(tasks), pa.float64())
        table = pa.table({"task": pa.array(tasks, pa.string()), "confidence": shares})
        pq.write_table(table, labels / f"part-{index:05}.parquet")
    file = tmp_path / f"found{suffix}"
    file.write_text("an older one")
    join_files(labels, file, "task", in_all=True)
    read = pq.read_table if suffix == ".parquet" else pa.csv.read_csv
    assert read(file)["task"].to_pylist() == ["t1", "t2", "t3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "labels"]


def test_draft_file__an_error_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "a.json"
    with draft_file(path) as draft:
        draft.write_text("first")
        assert not path.exists()
    with pytest.raises(UnicodeEncodeError), draft_file(path) as draft:
        draft.write_text("second \ud800", "utf-8")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.json", "first")]


RUN = ("=1+1", "+cmd", "-cmd|' /C calc'!A0", "@sum(1)", "\t=1", "\r=1", "\n=1", "=", "-")
"""Texts that a spreadsheet would run, or might."""
KEPT = ("-1", "+2.5", "-1e-3", "-.5", "1", "a=b", "", "it's", "'quoted'", "'", "a@b", "é")
"""Texts that it shows as they are, or as the numbers that they are."""


@pytest.mark.parametrize("text", RUN)
def test_guard_cell__no_text_is_run(text):
    assert guard_cell(text) == f"'{text}"
    for once in (text, f"'{text}", f"''{text}"):
        assert restore_cell(guard_cell(once)) == once


@pytest.mark.parametrize("text", KEPT)
def test_guard_cell__others_stay(text):
    assert guard_cell(text) == text
    assert restore_cell(text) == text


def test_guard_cell__an_apostrophe_before_a_number_stays():
    assert restore_cell(guard_cell("'-1")) == "'-1"


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_write_file__formulas_are_texts_in_csv_alone_and_are_read_back(
    tmp_path, suffix, dictionary
):
    texts = pa.array([*RUN, *KEPT, None, "'=1", "'-1", "''@"])
    table = pa.table(
        {
            "=id": texts.dictionary_encode() if dictionary else texts,
            "-1": pa.array([-1.5] * len(texts)),
            "plain": pa.array(["x"] * len(texts)),
        }
    )
    path = tmp_path / f"scores{suffix}"
    # batches are written as tables are
    assert write_file(path, table.schema, table.to_batches(max_chunksize=7)) == len(texts)
    back = read_file(path)
    assert back.column_names == table.column_names
    assert back["=id"].to_pylist() == [
        *RUN,
        *KEPT,
        "" if suffix == ".csv" else None,
        "'=1",
        "'-1",
        "''@",
    ]
    assert back["-1"].to_pylist() == table["-1"].to_pylist()
    if suffix == ".csv":
        with path.open(newline="") as stream:
            cells = [cell for row in csv.reader(stream) for cell in row]
        assert not [cell for cell in cells if cell[:1] in "=+-@\t\r\n" and guard_cell(cell) != cell]
        assert "-1.5" in cells
