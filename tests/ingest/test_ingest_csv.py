import bz2
import csv
import gzip
import io
import lzma

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmflib.base import SourceError
from pmflib.ingest import SourceOptions, find_sources, read_columns, read_rows
from pmflib.ingest.csv import byte_stream

WIDE = SourceOptions(path="x", layout="wide")


def read(folder, content, columns, config=WIDE, name="x.csv"):
    """All rows by number, and the ragged ones."""
    (folder / name).write_bytes(content)
    (source,) = find_sources(str(folder / name))
    rows, ragged, last = {}, {}, 0
    for raw in read_rows(source, config, columns):
        values = zip(*(column.to_pylist() for column in raw.batch.columns), strict=True)
        new = dict(zip(raw.rows.tolist(), values, strict=True)) | dict(raw.ragged)
        # batches come in the order of the file
        assert not new or min(new) > last
        last = max(new, default=last)
        rows |= dict(zip(raw.rows.tolist(), new.values(), strict=False))
        ragged |= dict(raw.ragged)
    return rows, ragged


@given(
    kinds=st.lists(st.sampled_from(["fits", "short", "long", "blank", "quoted"]), max_size=120),
    block=st.integers(24, 200),
    newline=st.sampled_from(["\n", "\r\n"]),
    last_newline=st.booleans(),
)
def test_read_rows__numbers_are_exact_wherever_blocks_are_split(
    tmp_path_factory, kinds, block, newline, last_newline
):
    lines, fitting, broken, number = [], {}, {}, 0
    for index, kind in enumerate(kinds):
        number += kind != "blank"
        line = {
            "fits": f"{index},{number}",
            "short": f"{index}",
            "long": f"{index},{number},9",
            "blank": "",
            "quoted": f'"{index}\nx","{number}"',
        }[kind]
        lines.append(line)
        if kind in ("fits", "quoted"):
            text = f"{index}\nx" if kind == "quoted" else str(index)
            fitting[number] = (text.encode(), str(number).encode())
        elif kind != "blank":
            broken[number] = line
    content = newline.join(["a,b", *lines]) + (newline if last_newline else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_stream, "CSV_BYTES", block)
        folder = tmp_path_factory.mktemp("rows")
        assert read(folder, content.encode(), ["a", "b"]) == (fitting, broken)


def test_read_rows__bytes_that_are_not_utf8_survive(tmp_path):
    content = b"a,b\n\xff\xfe,\xe2\x80\x99\n\xc3\xa9,\xe9,\x80\n1,2\n"
    rows, ragged = read(tmp_path, content, ["a", "b"])
    assert rows == {1: (b"\xff\xfe", b"\xe2\x80\x99"), 3: (b"1", b"2")}
    assert ragged == {2: "é,\\xe9,\\x80"}


@given(cells=st.lists(st.binary(max_size=6), min_size=1, max_size=40), block=st.integers(40, 90))
def test_read_rows__any_bytes_come_back(tmp_path_factory, cells, block):
    quoted = [b'"' + cell.replace(b'"', b'""') + b'",1' for cell in cells]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_stream, "CSV_BYTES", block)
        folder = tmp_path_factory.mktemp("bytes")
        rows, ragged = read(folder, b"a,b\n" + b"\n".join(quoted), ["a", "b"])
    assert not ragged
    assert [a for a, _ in rows.values()] == cells


def test_read_rows__byte_order_mark(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbfa,b\n1,2\n", ["a"])[0] == {1: (b"1",)}
    named = SourceOptions(path="x", layout="wide", columns=("a", "b"))
    assert read(tmp_path, b"\xef\xbb\xbf1,2\n", ["a"], named)[0] == {1: (b"1",)}


def test_read_rows__file_without_header(tmp_path):
    named = SourceOptions(path="x", layout="wide", columns=("a", "b"), delimiter="\t")
    rows, ragged = read(tmp_path, b"1\t2\n3\n4\t5\n", ["b"], named)
    assert rows == {1: (b"2",), 3: (b"5",)}
    assert ragged == {2: "3"}


@pytest.mark.parametrize("content", [b"a,b\n", b"a,b", b"a,b\n\n\n"])
def test_read_rows__header_alone_is_no_row(tmp_path, content):
    assert read(tmp_path, content, ["a", "b"]) == ({}, {})


def test_read_rows__single_column_skips_blank_lines(tmp_path):
    assert read(tmp_path, b"a\n1\n\n2\n", ["a"])[0] == {1: (b"1",), 2: (b"2",)}


def test_read_columns__header_with_quotes_after_blank_lines(tmp_path):
    (tmp_path / "x.csv").write_bytes(b'\n"a\nb","c ""d""",e\n1,2,3\n')
    (source,) = find_sources(str(tmp_path))
    assert read_columns(source, WIDE) == ["a\nb", 'c "d"', "e"]
    (raw,) = read_rows(source, WIDE, ["a\nb"])
    assert raw.rows.tolist() == [1]


def test_read_rows__old_line_ends(tmp_path):
    assert read(tmp_path, b"a,b\r1,2\r3,4", ["b"])[0] == {1: (b"2",), 2: (b"4",)}


@settings(deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(['"', ",", "\n", "\r\n", "a", "é", '""', '",', ',"', "a,b\n"]), max_size=60
    ),
    n_before=st.integers(0, 150),
)
def test_read_rows__any_text_is_one_row_or_another(tmp_path_factory, parts, n_before):
    # a reference that walks over the characters one by one
    text = "0,0\n" * n_before + "".join(parts)
    want, fields, state, mangled, start = {}, 1, "row", False, 0
    for index, sign in enumerate(text + "\n"):
        if sign in "\r\n" and state != "quoted":
            if state != "row":
                fits = fields == 2 and not mangled
                want[len(want) + 1] = None if fits else text[start:index]
            fields, state, mangled, start = 1, "row", False, index + 1
        elif state == "quoted":
            state = "closed" if sign == '"' else "quoted"
        elif sign == ",":
            fields, state = fields + 1, "field"
        elif state == "closed":
            mangled |= sign != '"'
            state = "quoted" if sign == '"' else "bare"
        elif state in ("row", "field"):
            state = "quoted" if sign == '"' else "bare"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_stream, "CSV_BYTES", 300)
        folder = tmp_path_factory.mktemp("any")
        content = b"a,b\n" + text.encode()
        if state == "quoted":
            with pytest.raises(SourceError, match=r"never closed"):
                read(folder, content, ["b"])
        else:
            rows, ragged = read(folder, content, ["b"])
            assert dict.fromkeys(rows) | ragged == want


@pytest.mark.parametrize(
    "content",
    [
        b'a,b\n1,2\n1,"x\n3,4\n5,6\n',
        b'a,b\n1,2\n"1,2\n3,4\n',
        b'a,b\n1,2\n1,2,"x\n3,4\n5,6',
        b'a,b\n1,2\n5,"',
    ],
)
def test_read_rows__quotation_mark_that_is_never_closed(tmp_path, content):
    with pytest.raises(SourceError, match=r"x\.csv: .*row 2"):
        read(tmp_path, content, ["a", "b"])


def test_read_rows__quotation_mark_that_swallows_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(byte_stream, "CSV_BYTES", 64)
    with pytest.raises(SourceError, match="64 bytes"):
        read(tmp_path, b'a,b\n1,2\n1,"x\n' + b"3,4\n" * 100, ["a", "b"])


def test_read_rows__column_twice(tmp_path):
    with pytest.raises(SourceError, match=r"x\.csv: column 'a'"):
        read(tmp_path, b"a,b,a\n1,2,3\n", ["a"])
    assert read(tmp_path, b"a,b,a\n1,2,3\n", ["b"])[0] == {1: (b"2",)}


def test_read_rows__column_that_is_not_there(tmp_path):
    for content, named in (
        (b"user,ratings\n1,2\n", "'ratings'"),
        (b"1,2\n3,4\n", "source.columns"),
    ):
        with pytest.raises(SourceError, match=f"'rating'.*{named}"):
            read(tmp_path, content, ["rating"])


def test_read_rows__no_header(tmp_path):
    with pytest.raises(SourceError, match=r"x\.csv.* header"):
        read(tmp_path, b"\n\r\n", ["b"])


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PAR1....", "Parquet"),
        # without the time, which would be in the name of the test: two processes that test would not agree on it
        (gzip.compress(b"a\n1\n", mtime=0), "gzip"),
        (lzma.compress(b"a\n1\n"), "xz"),
        (bz2.compress(b"a\n1\n"), "bzip2"),
        (pa.compress(b"a\n1\n", "zstd", asbytes=True), "zstd"),
        ("a,b\n".encode("utf-16"), "UTF-16"),
        (b"PK\x03\x04..", "zip"),
    ],
)
def test_read_rows__file_of_another_format(tmp_path, content, what):
    with pytest.raises(SourceError, match=rf"x\.csv: .*{what}"):
        read(tmp_path, content, ["a"])


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
@pytest.mark.parametrize("n_rows", [2_000, 300_000])
def test_read_rows__packed_file_cut_short(tmp_path, suffix, pack, n_rows):
    text = io.StringIO()
    csv.writer(text).writerows([("a", "b"), *((row, row % 7) for row in range(n_rows))])
    packed = pack(text.getvalue().encode())
    name = f"x.csv{suffix}"
    rows, _ = read(tmp_path, packed, ["a"], name=name)
    assert len(rows) == n_rows
    with pytest.raises(SourceError, match=name):
        read(tmp_path, packed[: int(len(packed) * 0.8)], ["a"], name=name)


def test_read_rows__delimiter_is_ascii(tmp_path):
    odd = SourceOptions(path="x", layout="wide", delimiter="§")
    with pytest.raises(SourceError, match=r"source\.delimiter '§'"):
        read(tmp_path, "a§b\n".encode(), ["a"], odd)


def test_read_rows__not_packed_at_all(tmp_path):
    with pytest.raises(SourceError, match=r"x\.csv\.gz"):
        read(tmp_path, b"a,b\n1,2\n", ["a"], name="x.csv.gz")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252"])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_read_rows__a_file_with_another_delimiter_is_read_with_its_own(
    tmp_path, delimiter, encoding
):
    lines = ["größe,zahl", *(f"groß {n % 3},{n}.5" for n in range(40))]
    text = "\n".join(lines).replace(",", delimiter).replace(".", ",") + "\n"
    rows, ragged = read(tmp_path, text.encode(encoding), ["zahl", "größe"])
    assert not ragged
    assert rows[2] == (b"1.5", "groß 1".encode())
    (source,) = find_sources(str(tmp_path / "x.csv"))
    assert read_columns(source, WIDE) == ["größe", "zahl"]
    # a column that the file has not is missed in its own header
    with pytest.raises(SourceError, match="its 2 columns"):
        read(tmp_path, text.encode(encoding), ["other"])


def test_read_rows__a_comma_file_after_semicolons(tmp_path):
    config = WIDE.model_copy(update={"delimiter": ";", "decimal": ","})
    rows, _ = read(tmp_path, b"a,b\n" + b"x,1.5\ny,2.5\n" * 9, ["b", "a"], config)
    assert rows[1] == (b"1.5", b"x")


def test_read_rows__a_single_column_stays_one(tmp_path):
    rows, _ = read(tmp_path, b"a\nx\ny\n", ["a"])
    assert rows == {1: (b"x",), 2: (b"y",)}
    with pytest.raises(SourceError, match="no column 'b'"):
        read(tmp_path, b"a\nx\ny\n", ["b"])
