"""Large files in chunks: what comes of them is what comes of the whole file."""

import gzip
import os
import time

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import SourceError
from pmflib.ingest import (
    FileChunk,
    build_dataset,
    chunks,
    find_sample,
    find_sources,
    make_source,
    read_files,
    read_quarantine,
    read_rows,
    splitting,
)
from pmflib.ingest.chunks import choose_ranges, group_results
from pmflib.ingest.csv.rows import find_data
from pmflib.ingest.dataset.identifiers import BUCKET_BYTES, LEAST_GROUPS, group_buckets
from pmflib.ingest.splitting import can_split, follow_range, is_bytewise, join_ranges
from pmflib.store import (
    Store,
    list_blocks,
    list_file_steps,
    list_sources,
    reach,
    read_blocks,
    read_origins,
    read_partitions,
    trace,
)
from pmflib_tasks.config import make_config

SCHEMA = pmf.Schema(tuple(pmf.Variable(name, ("1", "2", 'a"b', "x\ny")) for name in "ab"))
LONG = {"layout": "long", "sample": "who", "variable": "what", "value": "said"}
HEADER = b"who,what,said\n"


@pytest.fixture
def split_at(monkeypatch):
    """Let files be split into chunks of about some bytes, or some rows of Parquet."""

    def apply(size):
        monkeypatch.setattr(chunks, "FILE_CHUNK_BYTES", size)
        monkeypatch.setattr(chunks, "FILE_CHUNK_ROWS", size)
        monkeypatch.setattr(splitting, "LEAST_PARQUET", 0)

    return apply


def build(folder, content, name="x.csv", store="store", **source):
    """Build the dataset of one file: store, entry."""
    if content is not None:
        (folder / name).write_bytes(content)
    sections = {
        "source": {"path": name, **LONG, **source},
        "store": {"folds": 4, "buckets": 0 if source.get("layout") == "wide" else 4},
        "model": {"rank": 2},
    }
    made = Store(folder / store)
    return made, build_dataset(
        None, made, make_config(sections, base=folder).dataset_options, SCHEMA
    )


def describe(store, entry):
    """Content of a dataset: digests of its partitions, its account, and its rejected rows."""
    partitions = [part.digest for part in read_partitions(store, entry.reference)]
    rejected = [
        row for batch in read_quarantine(store, entry.reference) for row in batch.to_pylist()
    ]
    files = [(f.name, f.rows.rows_in, f.rows.rows_encoded, f.rows.reasons, f.level_counts.tolist(), f.duplicates)
             for f in read_files(store, entry.reference)]  # fmt: skip
    return partitions, entry.summary, rejected, files, list_sources(store, entry.reference)


def attempt(folder, content, store):
    """Content of a dataset and number of its chunks, or the error of a file that cannot be read."""
    try:
        made, entry = build(folder, content, store=store)
    except SourceError as error:
        return str(error), 0
    return describe(made, entry), len(list_file_steps(made, entry.reference))


def draw_rows(n_rows=300):
    rng = np.random.default_rng(5)
    levels = ["1", "2", '"a""b"', '"x\ny"', "9"]
    return [
        f"s{rng.integers(40)},{'ab'[rng.integers(2)]},{levels[rng.integers(5)]}"
        for _ in range(n_rows)
    ]


ROWS = draw_rows()
CONTENTS = {
    "quoted newlines": "\n".join(["who,what,said", *ROWS, ""]).encode(),
    "CRLF": "\r\n".join(["who,what,said", *ROWS, ""]).encode(),
    "CR": "\r".join(["who,what,said", *ROWS]).encode(),
    "ragged": "\n".join(["who,what,said", *(r + ",more" * (k % 3) for k, r in enumerate(ROWS))]).encode(),
    "no last line end": "\n".join(["who,what,said", *ROWS]).encode(),
    "blank lines": "\n\n\n".join(["who,what,said", *ROWS, "", ""]).encode(),
    "BOM": b"\xef\xbb\xbf" + "\n".join(['"who","what","said"', *ROWS]).encode(),
    "header repeated": "\n".join(["who,what,said", *ROWS, "who,what,said", *ROWS]).encode(),
    "bare quotes": "\n".join(["who,what,said", *(r.replace("s1", 's"1') for r in ROWS)]).encode(),
    "text after a quote": "\n".join(["who,what,said", *ROWS, 's1,"a"x,1', *ROWS]).encode(),
    "not UTF-8": "\n".join(["who,what,said", *ROWS]).encode().replace(b"s3", b"s\xe9"),
}  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_build_dataset__of_chunks_is_that_of_the_whole_file(content, tmp_path, split_at):
    whole, n_whole = attempt(tmp_path, content, "whole")
    split_at(500)
    found, n_chunks = attempt(tmp_path, content, "pieces")
    assert (n_whole, n_chunks > 5) == (1, True)
    assert found == whole


def read(source, config, of):
    """Rows of some chunks by number: values, or the text of a ragged row; or the error."""
    rows: dict[int, object] = {}
    try:
        for chunk in of:
            for raw in read_rows(source, config, ["who", "what", "said"], chunk=chunk):
                values = zip(*raw.batch.to_pydict().values(), strict=True)
                found = [*zip(raw.rows.tolist(), values, strict=True), *raw.ragged]
                assert not rows.keys() & dict(found).keys()
                rows |= dict(found)
    except SourceError as error:
        return str(error)
    return rows


@settings(max_examples=200, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            [b"s1,a,1\n", b"s2,b,2\r\n", b'"s3",a,"1"\n', b'"', b"\n", b"\r", b",", b'""', b"s4,a",
             b'"a\nb"', b"s5,b,1,1\n", b" ", b"\xff"]
        ),
        min_size=10,
        max_size=60,
    ),
    head=st.sampled_from([b"", b"\xef\xbb\xbf", b"\n\n"]),
    size=st.integers(5, 120),
)  # fmt: skip
@example(parts=[b"s1,a,1\n"] * 9 + [b'"'] + [b"s1,a,1\n"] * 9, head=b"", size=20)
def test_read_rows__of_random_chunks(parts, head, size, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuts")
    (folder / "x.csv").write_bytes(head + HEADER + b"".join(parts))
    (source,), config = find_sources(str(folder / "x.csv")), make_source({"path": "x", **LONG})
    start = find_data(source, config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "FILE_CHUNK_BYTES", size)
        ranges = [(max(a, start), b) for a, b in choose_ranges(source.size) if b > start]
    splits = join_ranges(ranges, [follow_range((source, *each), ",") for each in ranges])
    made = [FileChunk(source, k, None, (a, b), row, n) for k, (a, b, row, n) in enumerate(splits)]
    assert read(source, config, made) == read(source, config, [None])


def test_build_dataset__names_rows_of_the_file_and_finds_samples_of_chunks(tmp_path, split_at):
    content = "\n".join(["who,what,said", *ROWS]).encode()
    whole = build(tmp_path, content, store="whole")
    split_at(700)
    made = build(tmp_path, content)
    for name in ("s0", "s7", "s39"):
        one, other = (find_sample(store, entry.reference, name) for store, entry in (whole, made))
        assert one.files == other.files
        assert len(one.files) == 1
    store, entry = made
    kinds = {step.reference.kind for step in trace(store, entry.reference)}
    assert kinds == {"dataset", "samples", "spill-list", "spill", "cuts", "source"}
    entries = {each.reference.identity: each for each in store.entries()}
    assert reach(entries, [entry.reference.identity]) == set(entries)
    with pytest.raises(SourceError, match="s99"):
        find_sample(store, entry.reference, "s99")


def test_build_dataset__wide_rows_keep_their_numbers_and_folds(tmp_path, split_at):
    content = ("a,b\n" + "".join(f"{1 + k % 2},{1 + k % 3 % 2}\n" for k in range(400))).encode()

    def read(store, entry):
        rows = {}
        for part in read_partitions(store, entry.reference):
            path = store.locate(part) / "samples"
            numbers, _ = read_origins(path)
            blocks = list_blocks(path)
            for block, found in zip(blocks, read_blocks(blocks), strict=True):
                for number, codes in zip(
                    numbers[block.start :], found.to_codes(SCHEMA.offsets).tolist(), strict=False
                ):
                    rows[int(number)] = block.fold, codes
        return rows

    wide = {"layout": "wide", "sample": None, "variable": None, "value": None}
    whole = read(*build(tmp_path, content, store="whole", **wide))
    split_at(300)
    store, entry = build(tmp_path, content, **wide)
    assert read(store, entry) == whole
    assert len(read_partitions(store, entry.reference)) > 3
    assert find_sample(store, entry.reference, "x.csv:311").files[0].rows == [311]


def test_build_dataset__parquet_in_runs_of_row_groups(tmp_path, split_at):
    table = pa.table(
        {n: [r.split(",")[k] for r in ROWS] for k, n in enumerate(["who", "what", "said"])}
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=40)
    whole = describe(*build(tmp_path, None, "x.parquet", "whole"))
    split_at(100)
    store, entry = build(tmp_path, None, "x.parquet")
    assert describe(store, entry) == whole
    assert len(list_file_steps(store, entry.reference)) == 3


@pytest.mark.parametrize("times", ["numbers, then instants", "instants, then numbers"])
def test_build_dataset__format_of_times_is_that_of_the_file(times, tmp_path, split_at):
    both = [[str(k) for k in range(200)], ["2026-01-01T00:00:00"] * 200]
    first, second = both if times.startswith("numbers") else both[::-1]
    stamps = first + second
    rows = [f"s{k % 50},a,1,{stamp}" for k, stamp in enumerate(stamps)]
    content = "\n".join(["who,what,said,ts", *rows]).encode()
    cut_off = {"time": "ts"}
    # the first batch decides, so it must not reach the other format
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pmflib.ingest.csv.byte_stream.CSV_BYTES", 512)
        whole = describe(*build(tmp_path, content, store="whole", **cut_off))
        split_at(600)
        found = describe(*build(tmp_path, content, **cut_off))
    assert whole[1]["reasons"]["bad_time"] == 200
    assert found == whole


def test_build_dataset__file_that_changes_while_its_chunks_are_read(
    tmp_path, split_at, monkeypatch
):
    content = "\n".join(["who,what,said", *ROWS]).encode()
    split_at(500)
    calls = []

    def change(item, delimiter):
        if not calls:
            calls.append((tmp_path / "x.csv").write_bytes(content.replace(b"s1", b"s2")))
        return follow_range(item, delimiter)

    monkeypatch.setattr(splitting, "follow_range", change)
    with pytest.raises(SourceError, match=r"x\.csv"):
        build(tmp_path, content)
    assert {e.reference.kind for e in Store(tmp_path / "store").entries()} == {"source"}


def test_build_dataset__one_bad_chunk_is_a_bad_file(tmp_path, split_at):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "b.csv").write_bytes(HEADER + b"s1,a,1\n" * 200 + b's1,a,"1\n')
    split_at(500)
    with pytest.raises(SourceError, match=r"b\.csv: .*row 201"):
        build(tmp_path, None, "log")
    (tmp_path / "log" / "a.csv").write_bytes(HEADER + b"s1,a,1\n" * 200)
    store, entry = build(tmp_path, None, "log", on_unreadable_file="skip")
    assert list(entry.summary["files_skipped"]) == ["b.csv"]
    assert [file.name for file in list_sources(store, entry.reference)] == ["a.csv"]
    assert entry.summary["rows_in"] == 200


def test_build_dataset__splits_are_made_once(tmp_path, split_at, monkeypatch):
    content = "\n".join(["who,what,said", *ROWS]).encode()
    split_at(500)
    (tmp_path / "x.csv").write_bytes(content)
    os.utime(tmp_path / "x.csv", (time.time() - 60,) * 2)
    _, entry = build(tmp_path, None)
    monkeypatch.setattr(splitting, "follow_range", None)
    monkeypatch.setattr(splitting, "find_data", None)
    assert build(tmp_path, None)[1] == entry


def test_build_dataset__chunks_of_a_url(tmp_path, split_at, monkeypatch):
    content = "\n".join(["who,what,said", *ROWS]).encode()
    whole = describe(*build(tmp_path, content, store="whole"))
    fsspec.filesystem("memory").pipe("/pieces/x.csv", content)
    split_at(500)
    marked = {"path": "memory://pieces/x.csv"}
    store, entry = build(tmp_path, None, store="unmarked", **marked)
    assert len(list_file_steps(store, entry.reference)) == 1
    # a file system that shows when one has changed
    for module in ("splitting", "sources"):
        monkeypatch.setattr(f"pmflib.ingest.{module}.take_marks", lambda source: {"ETag": "1"})
    store, entry = build(tmp_path, None, **marked)
    assert len(list_file_steps(store, entry.reference)) > 5
    assert describe(store, entry)[:2] == whole[:2]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.csv.gz", {}),
        ("x.csv", {"encoding": "utf-16"}),
        ("x.csv", {"encoding": "cp932"}),
        ("x.csv", {"delimiter": "::"}),
        ("x.csv", {"delimiter": "whitespace"}),
        ("x.parquet", {}),
    ],
)
def test_can_split__not_what_is_no_plain_text(name, options, tmp_path, split_at):
    split_at(50)
    content = b"who,what,said\n" * 100
    (tmp_path / name).write_bytes(gzip.compress(content) * 9 if name.endswith(".gz") else content)
    (source,) = find_sources(str(tmp_path / name))
    assert not can_split(source, make_source({"path": name, **LONG, **options}))


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "koi8_r", "mac_roman"])
def test_build_dataset__encodings_of_one_byte_are_split(encoding, tmp_path, split_at):
    text = "\n".join(["who,what,said,größe" if encoding != "koi8_r" else "who,what,said,ж"]
                     + [row + "," for row in ROWS])  # fmt: skip
    content = text.replace("s1", "sж" if encoding == "koi8_r" else "sé").encode(encoding)
    whole = describe(*build(tmp_path, content, store="whole", encoding=encoding))
    split_at(500)
    store, entry = build(tmp_path, content, encoding=encoding)
    assert describe(store, entry) == whole
    assert len(list_file_steps(store, entry.reference)) > 5


def test_is_bytewise__no_encoding_in_which_a_byte_may_wait_for_another():
    for name in ("utf-8", "ascii", "cp1252", "iso8859_2", "cp866", "koi8_r"):
        assert is_bytewise(name), name
    for name in ("utf-16", "utf-32", "utf-7", "cp932", "gb18030", "big5", "iso2022_jp", "hz",
                 "cp037", "utf-8-sig"):  # fmt: skip
        assert not is_bytewise(name), name


def test_group_results__results_of_a_file_or_its_first_error():
    first, later = SourceError("row 1"), SourceError("row 9")
    grouped = group_results([range(2), range(3), []], [1, 2, 3, first, later])
    assert grouped == [[1, 2], first, []]


@pytest.mark.parametrize("n_buckets", [1, 5, 16, 4096])
@pytest.mark.parametrize("total", [0, 10**6, 10**9, 10**12])
def test_group_buckets__all_buckets_once_and_about_as_many(n_buckets, total):
    groups = group_buckets(total, n_buckets)
    assert (groups[0][0], groups[-1][1]) == (0, n_buckets)
    sizes = [stop - start for start, stop in groups]
    assert sum(sizes) == n_buckets
    assert max(sizes) - min(sizes) <= 1
    assert (
        min(n_buckets, LEAST_GROUPS) <= len(groups) <= max(LEAST_GROUPS, -(-total // BUCKET_BYTES))
    )
