"""Encodings, delimiters, headers and decimals that are found out."""

import pytest

from pmflib.base import SourceError
from pmflib.ingest import SourceOptions, find_sources, sniff_source
from pmflib.ingest.csv import encodings
from pmflib.ingest.csv.encodings import detect_encoding

WIDE = SourceOptions(path="x", layout="wide")
HEADER = ["nr", "city", "job", "age"]
ROWS = [
    [str(n), ["Rome", "Oslo", "New York"][n % 3], ["cook", "clerk"][n % 2], str(20 + n % 40)]
    for n in range(80)
]


def sniff(folder, files, given=()):
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return sniff_source(find_sources(str(folder)), WIDE, given)


def write(delimiter, header=True, quote=False):
    rows = [HEADER, *ROWS] if header else ROWS
    return "".join(
        delimiter.join(f'"{f}"' if quote and " " in f else f for f in row) + "\n" for row in rows
    )


def test_sniff_source__plain_files_have_no_note(tmp_path):
    assert sniff(tmp_path, {"x.csv": write(",")}) == (WIDE, [])


@pytest.mark.parametrize("delimiter", ["\t", ";", "|", "::", ", "])
@pytest.mark.parametrize("header", [True, False])
def test_sniff_source__delimiters(tmp_path, delimiter, header):
    config, notes = sniff(tmp_path, {"x.csv": write(delimiter, header)})
    assert config.delimiter == delimiter
    assert config.columns == (None if header else ("c1", "c2", "c3", "c4"))
    assert repr(delimiter) in notes[0]
    assert len(notes) == (1 if header else 2)


def test_sniff_source__blanks(tmp_path):
    assert sniff(tmp_path, {"x.txt": write(" ", quote=True)})[0].delimiter == " "
    aligned = "".join(f"{n % 3:>4} {n % 5:>8}   {n * 100:<9}\n" for n in range(50))
    assert sniff(tmp_path, {"x.txt": aligned})[0].delimiter == "whitespace"


def test_sniff_source__a_column_of_texts_is_not_split(tmp_path):
    content = "note\nall is well, I say\nwell\nnot; so well\n"
    assert sniff(tmp_path, {"x.csv": content}) == (WIDE, [])


def test_sniff_source__decimal_commas_beside_a_header(tmp_path):
    rows = "".join(f"{n % 4},{n % 9};{n};a\n" for n in range(40))
    config, notes = sniff(tmp_path, {"x.csv": "x;y;z\n" + rows})
    assert (config.delimiter, config.decimal, config.columns) == (";", ",", None)
    assert "'0,0'" in notes[1]


@pytest.mark.parametrize("cells", ["1,234;2.5", "1,234;x"])
def test_sniff_source__commas_that_may_mean_anything(tmp_path, cells):
    config, notes = sniff(tmp_path, {"x.csv": "x;y\n" + f"{cells}\n" * 9})
    assert config.decimal == "."
    assert any("1,234" in note for note in notes)


@pytest.mark.parametrize(
    "content",
    [
        "a;b|c\n1;2;3|4|5\n1;2;3;4|5|6|7\n1\n",
        "The table\na;b;c\n1;2;3\n4;5;6\n7;8;9\n",
        "9,10\n1,2\n2,1\n1,1\n",
    ],
)
def test_sniff_source__asks(tmp_path, content):
    with pytest.raises(SourceError, match=r"(?s)x\.csv.*pmf infer: --"):
        sniff(tmp_path, {"x.csv": content})


def test_sniff_source__what_is_given_is_not_looked_for(tmp_path):
    given = {"encoding", "delimiter", "decimal", "columns"}
    content = write(";", header=False).encode() + b"\xff;1;2;3\n"
    assert sniff(tmp_path, {"x.csv": content}, given) == (WIDE, [])


def test_sniff_source__encodings_of_several_files(tmp_path):
    files = {"a.csv": b"x\n1\n", "b.csv": "x\nsüß\nschön\nBäcker\n".encode("latin-1")}
    assert sniff(tmp_path, files)[0].encoding == "cp1252"
    with pytest.raises(SourceError, match=r"b\.csv in cp1252, c\.csv in utf-8"):
        sniff(tmp_path, {"c.csv": "x\nsüß\n"})


@pytest.mark.parametrize(
    ("words", "encoding", "found"),
    [
        ("München Straße Bäcker weiß Österreich", "latin-1", "cp1252"),
        ("Łódź Kraków mężczyzna żonaty śląskie", "cp1250", "cp1250"),
        ("Москва мужской женский высшее среднее", "cp1251", "cp1251"),
        ("Москва мужской женский высшее среднее", "koi8-r", "koi8_r"),
        ("東京 大阪 はい いいえ 男性 女性", "shift_jis", "cp932"),
        ("東京 大阪 はい いいえ 男性 女性", "utf-8", "utf-8"),
        ("München Straße", "utf-16", "utf-16"),
        ("München Straße", "utf-16-le", "utf-16-le"),
    ],
)
def test_detect_encoding__of_words_far_down(tmp_path, words, encoding, found):
    words = words.split()
    lines = ["nr,a", *(f"{n},{words[n % len(words)] if n > 40 else 'x'}" for n in range(90))]
    (tmp_path / "x.csv").write_bytes("\n".join(lines).encode(encoding))
    guess = detect_encoding(find_sources(str(tmp_path))[0])
    assert guess.encoding == found
    assert all(word in words for word in guess.words) or encoding.startswith("utf-16")
    assert guess.words


@pytest.mark.parametrize(
    "words",
    [
        "Don\u2019t know|I\u2019d rather not say|Yes|women\u2019s",
        "Très souvent|Jamais répondu|Français|élevé|plutôt",
        "München|Straße|Bäcker|weiß|größer|häufig",
        "señor|años|más|también|educación|sí",
    ],
)
@pytest.mark.parametrize("encoding", ["mac_roman", "cp1252", "cp850"])
def test_detect_encoding__of_macs_and_old_machines(tmp_path, words, encoding):
    if encoding == "cp850":
        # which has no such apostrophe
        words = words.replace("\u2019", "é")
    texts = words.encode(encoding).split(b"|")
    lines = [b"nr,a", *(b"%d,%s" % (n, texts[n % len(texts)]) for n in range(60))]
    (tmp_path / "x.csv").write_bytes(b"\n".join(lines))
    guess = detect_encoding(find_sources(str(tmp_path))[0])
    assert guess.encoding == encoding
    assert all(word in words for word in guess.words)


def test_detect_encoding__says_when_it_is_not_sure(tmp_path):
    (tmp_path / "x.csv").write_bytes("naïve\nêtre\naprès\n".encode("cp1252"))
    guess = detect_encoding(find_sources(str(tmp_path))[0])
    assert guess.encoding == "cp1252"
    assert not guess.sure
    assert "cp1250" in guess.describe()


def test_detect_encoding__looks_at_a_bounded_part(tmp_path, monkeypatch):
    monkeypatch.setattr(encodings, "SCANNED_BYTES", 100)
    monkeypatch.setattr(encodings, "READ_BYTES", 50)
    (tmp_path / "x.csv").write_bytes(b"a\n" * 60 + b"\xfc\n")
    assert detect_encoding(find_sources(str(tmp_path))[0]).encoding == "utf-8"


def test_sniff_source__columns_of_one_width_are_aligned(tmp_path):
    aligned = "".join(f"{n % 3}   {n % 2}   {n % 4}\n" for n in range(50))
    config, _ = sniff(tmp_path, {"x.txt": aligned})
    assert (config.delimiter, config.columns) == ("whitespace", ("c1", "c2", "c3"))


def test_sniff_source__some_rows_are_broken(tmp_path):
    lines = write(";", quote=True).split("\n")
    lines[7] = lines[7][:3]
    lines[30] += ";more"
    config, notes = sniff(tmp_path, {"x.csv": "\ufeff" + "\r\n".join(lines)})
    assert (config.delimiter, config.columns) == (";", None)
    assert len(notes) == 1
