"""Files in other encodings, and split at other delimiters, read as the same file in UTF-8 with commas."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.base import SourceError
from pmflib.ingest import (
    SchemaOptions,
    SourceOptions,
    encode_wide,
    find_sources,
    read_columns,
    read_rows,
    spill_long,
)
from pmflib.ingest.csv import byte_stream
from tests.pipelines import tree_bytes

WIDE = SourceOptions(path="x", layout="wide")
LONG = SourceOptions(path="x", layout="long", sample="wer", variable="was", value="wie")
CITIES = ("Düsseldorf", "Köln", "Łódź")
SCHEMA = pmf.Schema((pmf.Variable("größe", ("klein", "groß")), pmf.Variable("stadt", CITIES)))
ROWS = "größe,stadt\ngroß,Köln\nklein,Düsseldorf\n,Köln\ngroß,Essen\nklein\n"


def read(path, config, columns):
    (source,) = find_sources(str(path))
    rows = {}
    for raw in read_rows(source, config, columns):
        values = zip(*(column.to_pylist() for column in raw.batch.columns), strict=True)
        rows |= dict(zip(raw.rows.tolist(), values, strict=True)) | dict(raw.ragged)
    return dict(sorted(rows.items()))


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig"])
def test_encode_wide__same_artefact_in_every_encoding(tmp_path, encoding):
    made = []
    for name in ("utf-8", encoding):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "x.csv.gz").write_bytes(gzip.compress(ROWS.encode(name)))
        (source,) = find_sources(str(folder / "x.csv.gz"))
        config = SourceOptions(path="x", layout="wide", encoding=name)
        summary = encode_wide(
            source, SCHEMA, config, SchemaOptions(), n_folds=4, seed=1, folder=folder / "out"
        )
        made.append((summary, tree_bytes(folder / "out")))
    assert made[0] == made[1]
    assert made[0][0].account.reasons == {"ragged": 1, "unknown_level": 1}


def test_spill_long__same_artefact_in_latin_1(tmp_path):
    text = "wer,was,wie\nJürgen,größe,groß\nJosé,stadt,Köln\nJosé,straße,1\n"
    made = []
    for name in ("utf-8", "latin-1"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "x.csv").write_text(text, name)
        (source,) = find_sources(str(folder / "x.csv"))
        config = LONG.model_copy(update={"encoding": name})
        summary = spill_long(
            source, SCHEMA, config, SchemaOptions(), n_buckets=2, folder=folder / "out"
        )
        made.append((summary, tree_bytes(folder / "out")))
    assert made[0] == made[1]
    assert made[0][0].account.reasons == {"unknown_variable": 1}


def test_read_rows__bytes_that_the_encoding_lacks_are_undecodable(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"gr\xf6\xdfe,stadt\ngro\xdf,K\x81ln\nklein,K\xf6ln\n")
    (source,) = find_sources(str(tmp_path / "x.csv"))
    config = SourceOptions(path="x", layout="wide", encoding="cp1252")
    out = tmp_path / "out"
    summary = encode_wide(source, SCHEMA, config, SchemaOptions(), n_folds=4, seed=1, folder=out)
    assert summary.account.reasons == {"undecodable": 1}
    assert summary.account.rows_encoded == 1
    assert read(tmp_path / "x.csv", config, ["stadt"])[1] == (b"K\xff\\x81ln",)


def test_read_rows__half_a_character_of_utf_16(tmp_path):
    (tmp_path / "x.csv").write_bytes("a,b\n1,2\n".encode("utf-16") + b"3")
    config = SourceOptions(path="x", layout="wide", encoding="utf-16")
    assert read(tmp_path / "x.csv", config, ["a"]) == {1: (b"1",), 2: "\\xff\\x33"}


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_read_rows__utf_16_is_named(tmp_path, encoding):
    (tmp_path / "x.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    config = SourceOptions(path="x", layout="wide", encoding=encoding)
    with pytest.raises(SourceError, match=r"source\.encoding = 'utf-16'"):
        read_columns(find_sources(str(tmp_path / "x.csv"))[0], config)


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(st.sampled_from(["ä", "aö", "ß:1", "x", "é1"]), min_size=1, max_size=30),
    encoding=st.sampled_from(["utf-8", "latin-1", "utf-16", "utf-16-be", "shift_jis"]),
    delimiter=st.sampled_from([",", "::", ", ", "whitespace", "\t"]),
    block=st.integers(1, 40),
)
def test_read_rows__wherever_blocks_are_split(tmp_path_factory, cells, encoding, delimiter, block):
    if encoding == "shift_jis":
        cells = [cell.translate(str.maketrans("äößé", "東京都表")) for cell in cells]
    path = tmp_path_factory.mktemp("cut") / "x.csv"
    between = " \t " if delimiter == "whitespace" else delimiter
    lines = [f"{cell}{between}{number}" for number, cell in enumerate(cells)]
    path.write_bytes("\n".join([f"a{between}b", *lines]).encode(encoding))
    config = SourceOptions(path="x", layout="wide", encoding=encoding, delimiter=delimiter)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_stream, "READ_BYTES", block)
        got = read(path, config, ["a", "b"])
    want = {n: (cell.encode(), b"%d" % (n - 1)) for n, cell in enumerate(cells, 1)}
    assert got == want


def test_read_rows__delimiters_of_several_characters(tmp_path):
    (tmp_path / "x.dat").write_text('a::b b::c\n1::Alien: 3::x\n2::"u::v"::y\n3::4\n')
    config = SourceOptions(path="x", layout="wide", delimiter="::")
    assert read_columns(find_sources(str(tmp_path / "x.dat"))[0], config) == ["a", "b b", "c"]
    got = read(tmp_path / "x.dat", config, ["b b", "c"])
    assert got == {1: (b"Alien: 3", b"x"), 2: (b"u::v", b"y"), 3: "3::4"}


def test_read_rows__blanks_align_columns(tmp_path):
    (tmp_path / "x.dat").write_text('  a    b\t c \n  1    "x y"  3\r\n\n 4 5 \n44  5   6\n')
    config = SourceOptions(path="x", layout="wide", delimiter="whitespace")
    got = read(tmp_path / "x.dat", config, ["a", "b", "c"])
    assert got == {1: (b"1", b"x y", b"3"), 2: "4 5", 3: (b"44", b"5", b"6")}


def test_read_rows__decimal_commas(tmp_path):
    (tmp_path / "x.csv").write_text("id;x;y\n1,5;2,25;a,b\n2;-,5;1,2,3\n3;7;1,5e3\n")
    config = SourceOptions(path="x", layout="wide", sample="id", delimiter=";", decimal=",")
    rows = read(tmp_path / "x.csv", config, ["id", "x", "y"])
    assert rows[1] == (b"1,5", b"2.25", b"a,b")
    assert rows[2] == (b"2", b"-.5", b"1,2,3")
    assert rows[3] == (b"3", b"7", b"1.5e3")
