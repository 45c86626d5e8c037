"""Files of rows scored by a model alone: every row is scored or in quarantine, and the bytes are always the same."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import pmflib.model.score_parts as score_parts
from pmflib import score_file
from pmflib.errors import ConfigError, SchemaError, SourceError
from pmflib.model import JointPMF, file_scoring
from pmflib.model.reference_scores import ReferenceScores
from pmflib.model.score_parts import list_pieces
from pmflib.schema import Schema, Variable
from tests.model.test_row_scores import draw
from tests.reference import make_model

SIZES = (3, 2, 4)
SCHEMA = Schema(
    (
        Variable("town", ("Köln", "Ulm", "Bonn")),
        Variable("smokes", ("no", "yes")),
        Variable("rating", ("1", "2", "3", "5"), (1.0, 2.0, 3.0, 5.0)),
    )
)
MODEL = JointPMF(*make_model(np.random.default_rng(0), SIZES, 2), SCHEMA)
REFERENCE = ReferenceScores.draw(MODEL)


@pytest.fixture
def codes():
    return draw(MODEL, 1000, 0.2)


def write_log(path, codes, *, groups=None):
    """A log in the format of its suffix, with a column that is no variable."""
    table = SCHEMA.decode(codes).append_column(
        "who", pa.array([f"p{n}" for n in range(len(codes))])
    )
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=groups)
    else:
        pyarrow.csv.write_csv(table, path)
    return path


def read_bytes(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix == ".parquet"
    }


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_score_file__every_row_with_its_origin(suffix, codes, tmp_path):
    log = write_log(tmp_path / f"log.{suffix}", codes)
    account = score_file(
        MODEL,
        log,
        tmp_path / "scores.parquet",
        reference=REFERENCE,
        targets=["rating"],
        keep=["who", "town"],
    )
    table = pq.read_table(tmp_path / "scores.parquet")
    assert (account["rows_in"], account["samples"], account["rows_quarantined"]) == (1000, 1000, 0)
    assert table["row"].to_pylist() == list(range(1, 1001))
    assert set(table["file"].to_pylist()) == {log.name}
    assert table["who"].to_pylist() == [f"p{n}" for n in range(1000)]
    expected = MODEL.score(codes, ["rating"], reference=REFERENCE)
    for name in expected.column_names:
        assert table[name].to_pylist() == expected[name].to_pylist(), name
    assert table["town"].to_pylist() == SCHEMA.decode(codes)["town"].to_pylist()
    metadata = table.schema.metadata
    assert metadata[b"pmf.schema"].decode() == SCHEMA.digest
    assert metadata[b"pmf.reference"].endswith(b"samples drawn from the model")
    assert account["measures"]["rating"]["judged"] == (codes[:, 2] >= 0).sum()


def test_score_file__rows_that_do_not_fit(codes, tmp_path):
    log = write_log(tmp_path / "log.csv", codes)
    lines = log.read_bytes().split(b"\n")
    lines[5] = b'"Paris","no","1","x"'
    lines[9] = b'"Ulm","no"'
    lines[12] = b'"Ulm\xff","no","1","x"'
    log.write_bytes(b"\n".join(lines))
    account = score_file(MODEL, log, tmp_path / "out.csv", reference=REFERENCE, encoding="utf-8")
    assert account["reasons"] == {"ragged": 1, "undecodable": 1, "unknown_level": 1}
    assert (account["rows_in"], account["samples"], account["rows_quarantined"]) == (1000, 997, 3)
    rejected = pq.read_table(account["quarantine"])
    assert rejected["row"].to_pylist() == [5, 9, 12]
    table = pyarrow.csv.read_csv(tmp_path / "out.csv")
    assert sorted(table["row"].to_pylist()) == [n for n in range(1, 1001) if n not in (5, 9, 12)]


def test_score_file__same_bytes_for_any_number_of_threads_and_workers(
    codes, tmp_path, monkeypatch, thread_client
):
    # small parts, so that there are many
    monkeypatch.setattr(score_parts, "PART_ROWS", 150)
    monkeypatch.setattr("pmflib.ingest.readers.PARQUET_CELLS", 300)
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.parquet", codes, groups=70)
    write_log(tmp_path / "log" / "b.parquet", codes[:200])
    write_log(tmp_path / "log" / "c.csv", codes[:300])
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(file_scoring, "count_processors", lambda n=threads: n)
        out = tmp_path / f"out{threads}"
        account = score_file(MODEL, tmp_path / "log", out, reference=REFERENCE)
        assert (account["samples"], account["parts"]) == (1500, len(read_bytes(out)))
        found.append(read_bytes(out))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 8
    whole = pa.concat_tables(pq.read_table(tmp_path / "out1" / name) for name in found[0])
    assert whole["row"].to_pylist() == [*range(1, 1001), *range(1, 201), *range(1, 301)]
    monkeypatch.setattr(file_scoring, "map_items", with_client(thread_client))
    score_file(MODEL, tmp_path / "log", tmp_path / "out", reference=REFERENCE)
    assert read_bytes(tmp_path / "out") == found[0]


def with_client(client):
    from pmflib.running.item_maps import map_items

    return lambda _, *words, **options: map_items(client, *words, **options)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_score_file__goes_on_where_it_stopped(suffix, codes, tmp_path, monkeypatch):
    monkeypatch.setattr(score_parts, "PART_ROWS", 150)
    monkeypatch.setattr("pmflib.ingest.readers.PARQUET_CELLS", 300)
    monkeypatch.setattr("pmflib.ingest.csv_feed.CSV_BYTES", 2000)
    codes[codes[:, 0] == 2, 0] = -1
    log = write_log(tmp_path / f"log.{suffix}", codes)
    if suffix == "csv":
        log.write_bytes(log.read_bytes().replace(b'"p7', b'"p"7'))
    whole = score_file(MODEL, log, tmp_path / "whole", reference=REFERENCE)
    write = score_parts._write_part
    for stop in range(4):
        out, n_written = tmp_path / f"out{stop}", 0

        def fail(piece, job, number, batches, stop=stop):
            nonlocal n_written
            if n_written == stop:
                next(batches)
                raise KeyboardInterrupt
            n_written += 1
            return write(piece, job, number, batches)

        monkeypatch.setattr(score_parts, "_write_part", fail)
        with pytest.raises(KeyboardInterrupt):
            score_file(MODEL, log, out, reference=REFERENCE)
        monkeypatch.setattr(score_parts, "_write_part", write)
        before = read_bytes(out)
        assert len([name for name in before if "/" not in name]) == stop
        again = score_file(MODEL, log, out, reference=REFERENCE)
        assert read_bytes(out) == read_bytes(tmp_path / "whole")
        assert again | {"output": "", "quarantine": ""} == whole | {"output": "", "quarantine": ""}


def test_score_file__done_once(codes, tmp_path, monkeypatch):
    log = write_log(tmp_path / "log.csv", codes)
    for name in ("folder", "one.parquet", "one.csv"):
        account = score_file(MODEL, log, tmp_path / name, reference=REFERENCE)
        with monkeypatch.context() as patch:
            patch.setattr(file_scoring, "score_sources", None)
            assert score_file(MODEL, log, tmp_path / name, reference=REFERENCE) == account
    assert not list(tmp_path.glob(".*.parts"))
    # other rows: a file is made again, and a folder is not touched
    write_log(log, codes[:10])
    assert score_file(MODEL, log, tmp_path / "one.csv", reference=REFERENCE)["samples"] == 10
    with pytest.raises(ConfigError, match="holds something else"):
        score_file(MODEL, log, tmp_path / "folder", reference=REFERENCE)


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_score_file__rows_that_are_sorted_into_samples(layout, codes, tmp_path):
    log = tmp_path / "log.csv"
    if layout == "wide":
        write_log(log, codes)
        reading: dict[str, Any] = {"sample": "who"}
    else:
        table = SCHEMA.decode(codes).to_pydict()
        lines = [
            f"p{row},{name},{level}"
            for name, column in table.items()
            for row, level in enumerate(column)
            if level is not None
        ]
        log.write_text("\n".join(["who,what,answer", *lines, "p1,unheard,1"]))
        reading = {"layout": "long", "sample": "who", "variable": "what", "value": "answer"}
    account = score_file(MODEL, log, tmp_path / "out.parquet", reference=REFERENCE, **reading)
    assert account["rows_in"] == account["rows_encoded"] + account["rows_quarantined"]
    table = pq.read_table(tmp_path / "out.parquet").sort_by("sample")
    own = np.array([int(name[1:]) for name in table["sample"].to_pylist()])
    assert len(own) == (1000 if layout == "wide" else np.count_nonzero((codes >= 0).any(axis=1)))
    np.testing.assert_allclose(table["log_prob"], MODEL.log_prob(codes)[own], rtol=1e-12)
    if layout == "long":
        assert pq.read_table(account["quarantine"])["reason"].to_pylist() == ["unknown_variable"]
    assert not list(tmp_path.glob(".*.parts"))


def test_score_file__answers_that_are_left_out_are_in_the_account(tmp_path):
    schema = replace(SCHEMA, left_out=("unheard",))
    model = JointPMF(MODEL.prior, MODEL.factors, schema)
    name, level = SCHEMA.names[0], SCHEMA[0].levels[0]
    lines = ["who,what,answer", f"p1,{name},{level}", "p1,unheard,1", "p2,unknown,1"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    reading: dict[str, Any] = {
        "layout": "long",
        "sample": "who",
        "variable": "what",
        "value": "answer",
    }
    account = score_file(model, tmp_path / "log.csv", tmp_path / "out", **reading)
    found = [account[f"rows_{key}"] for key in ("in", "encoded", "left_out", "quarantined")]
    assert found == [3, 1, 1, 1]


def test_score_file__file_that_changes_meanwhile(codes, tmp_path, monkeypatch):
    log = write_log(tmp_path / "log.csv", codes)
    score = score_parts.score_piece

    def change(piece, job):
        found = score(piece, job)
        write_log(log, codes[:500])
        return found

    monkeypatch.setattr(score_parts, "score_piece", change)
    with pytest.raises(SourceError, match="changed while it was read"):
        score_file(MODEL, log, tmp_path / "out.parquet", reference=REFERENCE)
    assert not (tmp_path / "out.parquet").exists()


def test_score_file__refuses_what_does_not_fit(codes, tmp_path):
    (tmp_path / "other.csv").write_text("town,smoke,rating\nUlm,no,1\n")
    with pytest.raises(SchemaError, match=r"did you mean \['smoke'\]"):
        score_file(MODEL, tmp_path / "other.csv", tmp_path / "out", reference=REFERENCE)
    with pytest.raises(SourceError, match="matches no file"):
        score_file(MODEL, tmp_path / "none.csv", tmp_path / "out", reference=REFERENCE)


def test_score_file__empty_files(tmp_path):
    nothing = np.empty((0, 3), np.int8)
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.csv", nothing)
    write_log(tmp_path / "log" / "b.parquet", nothing)
    account = score_file(MODEL, tmp_path / "log", tmp_path / "out", reference=REFERENCE)
    assert (account["rows_in"], account["samples"], account["parts"]) == (0, 0, 2)
    assert pq.read_table(tmp_path / "out").num_rows == 0
    assert json.loads((tmp_path / "out" / "_scores.json").read_text())["account"] == account


def test_list_pieces__row_groups_together(codes, tmp_path, monkeypatch):
    from pmflib.config import make_source
    from pmflib.ingest.sources import find_sources

    monkeypatch.setattr(score_parts, "PART_ROWS", 250)
    log = write_log(tmp_path / "log.parquet", codes, groups=100)
    (source,) = find_sources(str(log))
    pieces = list_pieces(source, 3, make_source({"path": str(log), "layout": "wide"}))
    expected = [range(0, 3), range(3, 6), range(6, 9), range(9, 10)]
    assert [piece.groups for piece in pieces] == expected
    assert [piece.name for piece in pieces] == [f"part-00003-0000{n}" for n in (0, 3, 6, 9)]


@pytest.mark.parametrize("damage", ["head", "middle"])
def test_score_file__file_that_cannot_be_read(damage, codes, tmp_path):
    (tmp_path / "log").mkdir()
    for name in ("a", "b", "c"):
        write_log(tmp_path / "log" / f"{name}.parquet", codes, groups=100)
    broken = bytearray((tmp_path / "log" / "b.parquet").read_bytes())
    if damage == "head":
        broken[-8:] = b"no more!"
    else:
        broken[len(broken) // 3 : len(broken) // 2] = bytes(len(broken) // 2 - len(broken) // 3)
    (tmp_path / "log" / "b.parquet").write_bytes(broken)
    with pytest.raises(SourceError, match=r"b\.parquet"):
        score_file(MODEL, tmp_path / "log", tmp_path / "out", reference=REFERENCE)
    more: dict[str, Any] = {"reference": REFERENCE, "on_unreadable_file": "skip"}
    found = score_file(MODEL, tmp_path / "log", tmp_path / "o", **more)
    assert list(found["files_skipped"]) == ["b.parquet"]
    assert found["samples"] == 2000
    table = pq.read_table(tmp_path / "o")
    assert set(table["file"].to_pylist()) == {"a.parquet", "c.parquet"}
