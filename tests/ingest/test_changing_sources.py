"""Raw files that change, that did not change, and that do not belong."""

import gzip
import hashlib
import os
import re
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.base import SchemaError, SourceError
from pmflib.ingest import build_dataset, find_digest, find_sources, readers, sources, take_marks
from pmflib.ingest.csv import rows
from pmflib.store import FINGERPRINTS, Store, open_objects, write_fingerprint
from pmflib_tasks.config import make_config

SCHEMA = pmf.Schema(tuple(pmf.Variable(name, ("1", "2")) for name in "ab"), ("rare", "seldom"))
LAYOUT = {"layout": "long", "sample": "who", "variable": "what", "value": "said"}
ROWS = "who,what,said\n" + "".join(f"s{n},a,1\n" for n in range(50))


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def build(tmp_path):
    """Give a function that builds the dataset of the folder's files."""

    def run(rehash=False, **source):
        config = make_config(
            {
                "source": {"path": "data", **LAYOUT, **source},
                "model": {"rank": 2},
                "store": {"folds": 4},
            },
            base=tmp_path,
        )
        return build_dataset(
            None, Store(tmp_path / "store"), config.dataset_options, SCHEMA, rehash=rehash
        )

    return run


def age(path, seconds=60):
    """Let a file look as if it had been written a while ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.fixture
def opened(monkeypatch):
    """Names of the files whose bytes are opened."""
    names, plain = [], sources.open_source

    def note(source, **options):
        names.append(source.name)
        return plain(source, **options)

    for module in (sources, readers, rows):
        monkeypatch.setattr(module, "open_source", note)
    return names


def test_build__unchanged_files_are_not_opened(data, build, opened):
    (data / "a.csv").write_text(ROWS)
    age(data / "a.csv")
    first = build()
    assert opened
    opened.clear()
    assert build() == first
    assert opened == []
    assert build(rehash=True) == first
    assert opened == ["a.csv"]
    (data / "b.csv").write_text(ROWS)
    opened.clear()
    assert build().summary["rows_in"] == 100
    assert set(opened) == {"b.csv"}


def test_find_digest__is_remembered_only_for_files_left_alone(data, tmp_path, opened):
    path = data / "a.csv"
    path.write_text(ROWS)
    (source,) = find_sources(str(data))
    digests = {find_digest(source, str(tmp_path)), find_digest(source, str(tmp_path))}
    assert len(opened) == 2
    age(path)
    digests |= {find_digest(source, str(tmp_path)), find_digest(source, str(tmp_path))}
    assert len(opened) == 3
    assert len(digests) == 1


@pytest.mark.parametrize("change", ["content", "inode", "memory"])
def test_find_digest__of_what_has_changed(data, tmp_path, change, opened):
    path = data / "a.csv"
    path.write_text(ROWS)
    age(path, 3600)
    (source,) = find_sources(str(data))
    first = find_digest(source, str(tmp_path))
    stat = path.stat()
    if change == "memory":
        (memory,) = (tmp_path / FINGERPRINTS).iterdir()
        memory.write_text("[" * 100_000)
    elif change == "content":
        path.write_text(ROWS.replace("1", "2"))
    else:
        other = data / "other"
        other.write_text(ROWS.replace("1", "2"))
        other.replace(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    opened.clear()
    assert (find_digest(source, str(tmp_path)) == first) == (change == "memory")
    assert opened == ["a.csv"]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_build__a_file_that_changes_while_it_is_read_is_refused(data, build, monkeypatch, name):
    path = data / name

    def write(n_rows):
        lines = [f"s{n},a,1\n" for n in range(n_rows)]
        if name.endswith(".parquet"):
            names = pa.array([f"s{n}" for n in range(n_rows)])
            table = {"who": names, "what": pa.repeat("a", n_rows), "said": pa.repeat("1", n_rows)}
            pq.write_table(pa.table(table), path)
        else:
            content = ("who,what,said\n" + "".join(lines)).encode()
            path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    write(300)
    age(path)
    before, plain = path.read_bytes(), readers.read_rows

    def read(*arguments, **options):
        write(306)
        yield from plain(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("pmflib.ingest.dataset.long.read_rows", read)
        with pytest.raises(SourceError, match=re.escape(name)):
            build()
    path.write_bytes(before)
    assert build().summary["rows_in"] == 300
    write(306)
    assert build().summary["rows_in"] == 306


@pytest.mark.parametrize("rule", ["stop", "skip"])
def test_build__a_digest_that_was_remembered_wrongly_heals_by_one_reading(
    data, build, tmp_path, opened, rule
):
    (data / "a.csv").write_text(ROWS)
    age(data / "a.csv")
    first = build()
    (data / "b.csv").write_text(ROWS)
    age(data / "b.csv")
    (source,) = (each for each in find_sources(str(data)) if each.name == "b.csv")
    root = str(tmp_path / "store")
    marks, name = take_marks(source), hashlib.sha256(source.url.encode()).hexdigest()
    write_fingerprint(open_objects(root), name, marks, "d" * 64)
    entry = build(on_unreadable_file=rule)
    assert (entry.summary["rows_in"], entry.summary["files_skipped"]) == (100, {})
    opened.clear()
    assert build(on_unreadable_file=rule) == entry
    assert opened == []
    assert first != entry


def test_build__all_bad_files_are_named(data, build):
    (data / "good.csv").write_text(ROWS)
    (data / "bad.csv").write_text("x,y\n1,2\n")
    (data / "cut.csv.gz").write_bytes(gzip.compress(ROWS.encode())[:-9])
    with pytest.raises(SourceError, match=r"(?s)bad\.csv.*cut\.csv\.gz"):
        build()
    entry = build(on_unreadable_file="skip")
    assert entry.summary["rows_in"] == 50
    assert list(entry.summary["files_skipped"]) == ["bad.csv", "cut.csv.gz"]
    (data / "good.csv").unlink()
    with pytest.raises(SourceError, match=r"bad\.csv"):
        build(on_unreadable_file="skip")


def test_build__files_that_do_not_belong(data, build):
    (data / "good.csv").write_text(ROWS)
    (data / "README.md").write_text("# notes\n")
    (data / "nothing.csv").write_text("")
    with pytest.raises(SourceError, match=r"nothing\.csv.*on_empty_file"):
        build()
    entry = build(on_empty_file="skip")
    assert {*entry.summary["files_skipped"]} == {"README.md", "nothing.csv"}
    assert build(on_empty_file="skip", path="data/*.csv").summary["rows_in"] == 50
    with pytest.raises(SourceError, match=r"README\.md"):
        build(path="data/README.md")
    with pytest.raises(SourceError, match="data"):
        build(suffixes=[".json"])


def test_build__rows_left_out_on_purpose_are_counted(data, build):
    (data / "a.csv").write_text(ROWS + "s1,rare,9\n,seldom,1\ns1,unheard,1\n")
    summary = build().summary
    assert (summary["rows_in"], summary["rows_encoded"]) == (53, 50)
    assert summary["rows_left_out"] == 2
    assert summary["reasons"] == {"unknown_variable": 1}


def test_schema__left_out_is_kept_but_no_part_of_the_contract(tmp_path):
    SCHEMA.save(tmp_path / "schema.json")
    loaded, plain = pmf.Schema.load(tmp_path / "schema.json"), pmf.Schema(SCHEMA.variables)
    assert loaded.left_out == ("rare", "seldom")
    assert loaded == plain
    assert loaded.digest == plain.digest
    assert loaded.left_out_digest != plain.left_out_digest == ""
    with pytest.raises(SchemaError, match="left_out"):
        pmf.Schema(SCHEMA.variables, ("a",))
    with pytest.raises(SchemaError, match="left_out"):
        pmf.Schema.from_json(plain.to_json() | {"left_out": [1]})
