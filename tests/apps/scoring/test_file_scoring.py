"""Files of rows scored by a model alone: every row is scored or in quarantine, and the bytes are always the same."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.answering import list_chunks
from pmflib.answering.sample_tables import files
from pmflib.answering.sample_tables import parts as score_parts
from pmflib.base import ConfigError, SchemaError, SourceError
from pmflib.model import ReferenceScores
from tests.model.test_row_scores import draw
from tests.reference import make_model

SIZES = (3, 2, 4)
SCHEMA = pmf.Schema(
    (
        pmf.Variable("town", ("Köln", "Ulm", "Bonn")),
        pmf.Variable("smokes", ("no", "yes")),
        pmf.Variable("rating", ("1", "2", "3", "5"), (1.0, 2.0, 3.0, 5.0)),
    )
)
MODEL = pmf.JointPMF(*make_model(np.random.default_rng(0), SIZES, 2), SCHEMA)
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
    account = pmf.apps.score_file(
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
    account = pmf.apps.score_file(
        MODEL, log, tmp_path / "out.csv", reference=REFERENCE, encoding="utf-8"
    )
    assert account["reasons"] == {"ragged": 1, "undecodable": 1}
    assert (account["rows_in"], account["samples"], account["rows_quarantined"]) == (1000, 998, 2)
    rejected = pq.read_table(account["quarantine"])
    assert rejected["row"].to_pylist() == [9, 12]
    table = pyarrow.csv.read_csv(tmp_path / "out.csv")
    assert sorted(table["row"].to_pylist()) == [n for n in range(1, 1001) if n not in (9, 12)]


def test_score_file__unknown_levels_are_missing_and_named(codes, tmp_path, monkeypatch):
    # several parts, read ahead by several threads
    monkeypatch.setattr(score_parts, "PART_ROWS", 150)
    monkeypatch.setattr("pmflib.ingest.csv.byte_stream.CSV_BYTES", 2000)
    texts = SCHEMA.decode(codes).to_pydict()
    expected = codes.copy()
    for row, town in ((3, "Paris"), (4, " Rom "), (700, "Rom"), (900, "Rom")):
        texts["town"][row], expected[row, 0] = town, -1
    # a number that is no level of an ordinal variable is in no bin
    texts["rating"][5], expected[5, 2] = "4", -1
    pyarrow.csv.write_csv(pa.table(texts), tmp_path / "log.csv")
    account = pmf.apps.score_file(
        MODEL, tmp_path / "log.csv", tmp_path / "out", reference=REFERENCE
    )
    assert (account["rows_in"], account["samples"], account["rows_quarantined"]) == (1000, 1000, 0)
    assert account["cells_made_missing"] == {"rating": 1, "town": 4}
    assert account["unknown_levels"] == {
        "rating": {"cells": 1, "values": {"4": 1}, "more_values": 0},
        "town": {"cells": 4, "values": {"Rom": 3, "Paris": 1}, "more_values": 0},
    }
    table = pq.read_table(tmp_path / "out")
    np.testing.assert_allclose(table["log_prob"], MODEL.log_prob(expected), rtol=1e-12)
    assert table["observed"].to_pylist() == (expected >= 0).sum(axis=1).tolist()


@pytest.mark.parametrize("sorting", [{}, {"sample": "who"}])
def test_score_file__target_whose_labels_are_written_otherwise(sorting, codes, tmp_path):
    log = write_log(tmp_path / "log.csv", codes)
    text = log.read_text()
    for level in SCHEMA["smokes"].levels:
        text = text.replace(f',"{level}",', f',"{level}.",')
    log.write_text(text)
    out = tmp_path / "out.parquet"
    account = pmf.apps.score_file(
        MODEL, log, out, reference=REFERENCE, targets=["smokes"], keep=["smokes"], **sorting
    )
    assert (account["rows_in"], account["samples"], account["rows_quarantined"]) == (1000, 1000, 0)
    counts = {f"{level}.": (codes[:, 1] == n).sum() for n, level in enumerate(("no", "yes"))}
    found = account["unknown_levels"]["smokes"]
    assert found == {"cells": sum(counts.values()), "values": counts, "more_values": 0}
    assert list(found["values"].values()) == sorted(counts.values(), reverse=True)
    assert account["measures"]["smokes"] == {"judged": 0, "truth_missing": 1000}
    table = pq.read_table(out)
    assert table["smokes"].null_count == 1000
    if not sorting:
        expected = MODEL.score(np.where([0, 1, 0], -1, codes), ["smokes"], reference=REFERENCE)
        for name in ("smokes.label", "smokes.probability", "log_prob"):
            assert table[name].to_pylist() == expected[name].to_pylist(), name


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_score_file__target_that_is_no_column(suffix, codes, tmp_path):
    log = write_log(tmp_path / "whole.parquet", codes)
    table = pq.read_table(log).drop_columns(["smokes"])
    log = tmp_path / f"log.{suffix}"
    if suffix == "csv":
        pyarrow.csv.write_csv(table, log)
    else:
        pq.write_table(table, log)
    out = tmp_path / "out.parquet"
    account = pmf.apps.score_file(MODEL, log, out, reference=REFERENCE, targets=["smokes"])
    assert account["targets_absent"] == {"smokes": [log.name]}
    assert account["measures"]["smokes"] == {"judged": 0, "truth_missing": 1000}
    expected = MODEL.score(np.where([0, 1, 0], -1, codes), ["smokes"], reference=REFERENCE)
    found = pq.read_table(out)
    for name in ("smokes.label", "smokes.probability", "log_prob"):
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    with pytest.raises(SchemaError, match="'smokes'"):
        pmf.apps.score_file(MODEL, log, tmp_path / "other.parquet", reference=REFERENCE)


@pytest.mark.parametrize("sorting", [{}, {"sample": "who"}])
@pytest.mark.parametrize("output", ["out.csv", "out.parquet", "out"])
def test_score_file__column_that_is_not_understood(output, sorting, codes, tmp_path):
    codes[:900, 0] = -1
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "good.csv", codes)
    bad = write_log(tmp_path / "log" / "later.csv", codes)
    text = bad.read_text().replace('"p', '"q')
    for level in SCHEMA["town"].levels:
        text = text.replace(f'"{level}",', f'"in {level}",')
    bad.write_text(text)
    n_given = (codes[:, 0] >= 0).sum()
    with pytest.raises(SchemaError) as caught:
        pmf.apps.score_file(
            MODEL, tmp_path / "log", tmp_path / output, reference=REFERENCE, **sorting
        )
    said = str(caught.value)
    assert all(each in said for each in ("later.csv", f"{n_given} values", "'town'", "Köln"))
    # nothing that may be taken for scores
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]
    # one that is understood is enough
    bad.write_text(text.replace("in Ulm", "Ulm"))
    account = pmf.apps.score_file(
        MODEL, tmp_path / "log", tmp_path / output, reference=REFERENCE, **sorting
    )
    assert account["samples"] == account["rows_in"] == 2000


def test_score_file__most_rows_do_not_fit(codes, tmp_path):
    log = write_log(tmp_path / "log.csv", codes[:100])
    reading: dict[str, Any] = {"reference": REFERENCE, "delimiter": ",", "encoding": "utf-8"}
    lines = log.read_text().splitlines()
    for row in range(2, 53):
        lines[row] += ',"one more"'
    log.write_text("\n".join(lines))
    with pytest.raises(SchemaError) as caught:
        pmf.apps.score_file(MODEL, log, tmp_path / "out.parquet", **reading)
    said = str(caught.value)
    assert all(each in said for each in ("log.csv", "51 of 100", "ragged", "'town'"))
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
    lines[2] = lines[2].removesuffix(',"one more"')
    log.write_text("\n".join(lines))
    account = pmf.apps.score_file(MODEL, log, tmp_path / "out.parquet", **reading)
    assert (account["samples"], account["rows_quarantined"]) == (50, 50)


def test_score_file__most_answers_are_of_no_variable(tmp_path):
    lines = ["who,what,answer", "p1,town,Ulm", "p1,towns,Ulm", "p2,towns,Bonn"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    reading: dict[str, Any] = {"sample": "who", "variable": "what", "value": "answer"}
    reading |= {"layout": "long", "reference": REFERENCE}
    with pytest.raises(SchemaError, match="'what'"):
        pmf.apps.score_file(MODEL, tmp_path / "log.csv", tmp_path / "out", **reading)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_score_file__numbers_outside_the_bins_are_in_the_nearest(suffix, tmp_path):
    ages = pmf.Variable("age", ("young", "middle", "old"), (20.0, 40.0, 70.0), (30.0, 60.0))
    model = pmf.JointPMF(
        *make_model(np.random.default_rng(1), (3, 2), 2), pmf.Schema((ages, SCHEMA["smokes"]))
    )
    given = {"age": [-5.0, 1e9, 45.0, float("inf")], "smokes": ["no", "yes", "no", "yes"]}
    if suffix == "csv":
        pyarrow.csv.write_csv(pa.table(given), tmp_path / "log.csv")
    else:
        pq.write_table(pa.table(given), tmp_path / "log.parquet")
    out = tmp_path / "out.parquet"
    account = pmf.apps.score_file(
        model, tmp_path / f"log.{suffix}", out, keep=["age"], reference=ReferenceScores.draw(model)
    )
    assert pq.read_table(out)["age"].to_pylist() == ["young", "old", "middle", None]
    assert account["unknown_levels"] == {
        "age": {"cells": 1, "values": {"inf": 1}, "more_values": 0}
    }


def test_score_file__same_bytes_for_any_number_of_threads_and_workers(
    codes, tmp_path, monkeypatch, thread_client
):
    # small parts, so that there are many
    monkeypatch.setattr(score_parts, "PART_ROWS", 100)
    monkeypatch.setattr("pmflib.ingest.readers.PARQUET_CELLS", 300)
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.parquet", codes, groups=70)
    write_log(tmp_path / "log" / "b.parquet", codes[:200])
    write_log(tmp_path / "log" / "c.csv", codes[:300])
    found = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(files, "count_processors", lambda n=threads: n)
        out = tmp_path / f"out{threads}"
        account = pmf.apps.score_file(MODEL, tmp_path / "log", out, reference=REFERENCE)
        assert (account["samples"], account["parts"]) == (1500, len(read_bytes(out)))
        found.append(read_bytes(out))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 8
    whole = pa.concat_tables(pq.read_table(tmp_path / "out1" / name) for name in found[0])
    assert whole["row"].to_pylist() == [*range(1, 1001), *range(1, 201), *range(1, 301)]
    monkeypatch.setattr(files, "map_items", with_client(thread_client))
    pmf.apps.score_file(MODEL, tmp_path / "log", tmp_path / "out", reference=REFERENCE)
    assert read_bytes(tmp_path / "out") == found[0]


def with_client(client):
    from pmflib.cluster import map_items

    return lambda _, *words, **options: map_items(client, *words, **options)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_score_file__goes_on_where_it_stopped(suffix, codes, tmp_path, monkeypatch):
    monkeypatch.setattr(score_parts, "PART_ROWS", 150)
    monkeypatch.setattr("pmflib.ingest.readers.PARQUET_CELLS", 300)
    monkeypatch.setattr("pmflib.ingest.csv.byte_stream.CSV_BYTES", 2000)
    codes[codes[:, 0] == 2, 0] = -1
    log = write_log(tmp_path / f"log.{suffix}", codes)
    if suffix == "csv":
        log.write_bytes(log.read_bytes().replace(b'"p7', b'"p"7'))
    whole = pmf.apps.score_file(MODEL, log, tmp_path / "whole", reference=REFERENCE)
    # between two parts: the only place where nothing is left of a part under way
    write = score_parts._write_part
    for stop in range(4):
        out, n_written = tmp_path / f"out{stop}", 0

        def fail(path, chunk, job, batches, stop=stop):
            nonlocal n_written
            if n_written == stop:
                next(batches)
                raise KeyboardInterrupt
            n_written += 1
            return write(path, chunk, job, batches)

        monkeypatch.setattr(score_parts, "_write_part", fail)
        with pytest.raises(KeyboardInterrupt):
            pmf.apps.score_file(MODEL, log, out, reference=REFERENCE)
        monkeypatch.setattr(score_parts, "_write_part", write)
        before = read_bytes(out)
        assert len([name for name in before if "/" not in name]) == stop
        again = pmf.apps.score_file(MODEL, log, out, reference=REFERENCE)
        assert read_bytes(out) == read_bytes(tmp_path / "whole")
        assert again | {"output": "", "quarantine": ""} == whole | {"output": "", "quarantine": ""}


def test_score_file__refuses_to_write_among_the_files_that_it_reads(codes, tmp_path):
    (tmp_path / "log").mkdir()
    log = write_log(tmp_path / "log" / "log.csv", codes[:10])
    before = log.read_bytes()
    for data, output in ((log, log), (log.parent, log.with_name("scores.csv"))):
        with pytest.raises(ConfigError):
            pmf.apps.score_file(MODEL, data, output, reference=REFERENCE)
    assert [*log.parent.iterdir()] == [log]
    assert log.read_bytes() == before
    assert (
        pmf.apps.score_file(MODEL, log, log.with_name("scores.csv"), reference=REFERENCE)["samples"]
        == 10
    )


def test_score_file__done_once(codes, tmp_path, monkeypatch):
    log = write_log(tmp_path / "log.csv", codes)
    for name in ("folder", "one.parquet", "one.csv"):
        account = pmf.apps.score_file(MODEL, log, tmp_path / name, reference=REFERENCE)
        with monkeypatch.context() as patch:
            patch.setattr(files, "score_sources", None)
            assert pmf.apps.score_file(MODEL, log, tmp_path / name, reference=REFERENCE) == account
    assert not list(tmp_path.glob(".*.parts"))
    # other rows: a file is made again, and a folder is not touched
    write_log(log, codes[:10])
    assert (
        pmf.apps.score_file(MODEL, log, tmp_path / "one.csv", reference=REFERENCE)["samples"] == 10
    )
    with pytest.raises(ConfigError):
        pmf.apps.score_file(MODEL, log, tmp_path / "folder", reference=REFERENCE)


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
    account = pmf.apps.score_file(
        MODEL, log, tmp_path / "out.parquet", reference=REFERENCE, **reading
    )
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
    model = pmf.JointPMF(MODEL.prior, MODEL.factors, schema)
    name, level = SCHEMA.names[0], SCHEMA[0].levels[0]
    lines = ["who,what,answer", f"p1,{name},{level}", "p1,unheard,1", "p2,unknown,1"]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    reading: dict[str, Any] = {
        "layout": "long",
        "sample": "who",
        "variable": "what",
        "value": "answer",
    }
    account = pmf.apps.score_file(model, tmp_path / "log.csv", tmp_path / "out", **reading)
    found = [account[f"rows_{key}"] for key in ("in", "encoded", "left_out", "quarantined")]
    assert found == [3, 1, 1, 1]


def test_score_file__file_that_changes_meanwhile(codes, tmp_path, monkeypatch):
    log = write_log(tmp_path / "log.csv", codes)
    score = score_parts.score_chunk

    def change(chunk, job):
        found = score(chunk, job)
        write_log(log, codes[:500])
        return found

    monkeypatch.setattr(files, "score_chunk", change)
    with pytest.raises(SourceError):
        pmf.apps.score_file(MODEL, log, tmp_path / "out.parquet", reference=REFERENCE)
    assert not (tmp_path / "out.parquet").exists()


def test_score_file__refuses_what_does_not_fit(codes, tmp_path):
    (tmp_path / "other.csv").write_text("town,smoke,rating\nUlm,no,1\n")
    with pytest.raises(SchemaError, match="'smoke'"):
        pmf.apps.score_file(MODEL, tmp_path / "other.csv", tmp_path / "out", reference=REFERENCE)
    with pytest.raises(SourceError, match=r"none\.csv"):
        pmf.apps.score_file(MODEL, tmp_path / "none.csv", tmp_path / "out", reference=REFERENCE)


def test_score_file__empty_files(tmp_path):
    nothing = np.empty((0, 3), np.int8)
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.csv", nothing)
    write_log(tmp_path / "log" / "b.parquet", nothing)
    account = pmf.apps.score_file(MODEL, tmp_path / "log", tmp_path / "out", reference=REFERENCE)
    assert (account["rows_in"], account["samples"], account["parts"]) == (0, 0, 2)
    assert pq.read_table(tmp_path / "out").num_rows == 0
    assert json.loads((tmp_path / "out" / "_scores.json").read_text())["account"] == account


def test_list_chunks__row_groups_together(codes, tmp_path, monkeypatch):
    from pmflib.ingest import find_sources, make_source

    monkeypatch.setattr(score_parts, "PART_ROWS", 250)
    log = write_log(tmp_path / "log.parquet", codes, groups=100)
    (source,) = find_sources(str(log))
    chunks = list_chunks(source, make_source({"path": str(log), "layout": "wide"}))
    expected = [range(0, 3), range(3, 6), range(6, 9), range(9, 10)]
    assert [chunk.groups for chunk in chunks] == expected
    pmf.apps.score_file(MODEL, log, tmp_path / "out", reference=REFERENCE)
    names = [f"part-00000-0000{n}-00000.parquet" for n in (0, 3, 6, 9)]
    assert list(read_bytes(tmp_path / "out")) == names


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
        pmf.apps.score_file(MODEL, tmp_path / "log", tmp_path / "out", reference=REFERENCE)
    more: dict[str, Any] = {"reference": REFERENCE, "on_unreadable_file": "skip"}
    found = pmf.apps.score_file(MODEL, tmp_path / "log", tmp_path / "o", **more)
    assert list(found["files_skipped"]) == ["b.parquet"]
    assert found["samples"] == 2000
    table = pq.read_table(tmp_path / "o")
    assert set(table["file"].to_pylist()) == {"a.parquet", "c.parquet"}
