import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pmflib.base import SchemaError, SourceError, natural_key
from pmflib.ingest import SourceOptions, find_sources, sniff_source
from pmflib.surveys.drafting import draft_schema, number_columns

WIDE = SourceOptions(path="x", layout="wide")
LONG = SourceOptions(path="x", layout="long", sample="u", variable="i", value="r")


def draft(folder, contents, config, **options):
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    drafted = draft_schema(find_sources(str(folder)), config, **options)
    return drafted.schema, drafted.notes


def test_draft_schema__wide(tmp_path):
    lines = b"".join(
        b"%d,%s,%d,%d.5,t%d\n" % (n, b"yn"[n % 2 : n % 2 + 1], n % 3, n, n) for n in range(200)
    )
    config = SourceOptions(path="x", layout="wide", sample="id")
    files = {
        "a.csv": b"id,smokes,visits,age,note\n" + lines,
        "b.csv": b"age,note,smokes,visits,id,new\n",
    }
    schema, notes = draft(tmp_path, files, config, bins=4)
    assert schema.names == ("smokes", "visits", "age")
    assert schema["smokes"].levels == ("n", "y")
    assert schema["visits"].values == (0.0, 1.0, 2.0)
    assert schema["age"].cardinality == 4
    assert [note.split(":")[0] for note in notes] == ["b.csv", "smokes", "age", "note"]
    assert "200" in notes[3]
    assert "['new']" in notes[0]


def test_draft_schema__levels_of_all_files_count(tmp_path):
    files = {"a.csv": b"x\n1\n", "b.csv": b"x\n3\n\xff\n", "c.csv": b"x\n2\n"}
    schema, _ = draft(tmp_path, files, WIDE)
    assert schema["x"].levels == ("1", "2", "3")


def test_draft_schema__long_in_natural_order_with_shared_levels(tmp_path):
    rows = [
        b"u,m10,5",
        b"u,m2,3.0",
        b"u,m2,3",
        b"u,m1,1",
        b"u,m1,",
        b"u,g,b",
        b"u,g,a",
        b"u,rare,2",
    ]
    rows += [b"u,m10,4", b"u,m1,2", b"u,m1,\xff", b"u"]
    schema, _ = draft(tmp_path, {"a.csv": b"u,i,r\n" + b"\n".join(rows)}, LONG, min_count=2)
    assert schema.names == ("g", "m1", "m2", "m10")
    assert schema["g"].levels == ("a", "b")
    for name in ("m1", "m2", "m10"):
        assert schema[name].levels == ("1", "2", "3", "4", "5")


def test_draft_schema__long_without_a_common_scale(tmp_path):
    rows = [b"u,a,%d" % n for n in range(5)] + [b"u,b,%d" % (100 + n) for n in range(5)]
    rows += [b"u,c,%d" % n for n in range(40)]
    schema, notes = draft(
        tmp_path, {"a.csv": b"u,i,r\n" + b"\n".join(rows)}, LONG, max_levels=8, bins=4
    )
    assert schema["a"].levels == ("0", "1", "2", "3", "4")
    assert schema["b"].cardinality == 5
    assert schema["c"].edges is not None
    assert any("max_levels" in note for note in notes)


def test_draft_schema__parquet_equals_csv(tmp_path):
    rng = np.random.default_rng(0)
    item, rating = rng.integers(0, 12, 3000), rng.integers(1, 6, 3000)
    for name in ("csv", "parquet"):
        (tmp_path / name).mkdir()
    table = pa.table(
        {"u": item, "i": item, "r": pa.array(rating.astype(float)).dictionary_encode()}
    )
    pq.write_table(table, tmp_path / "parquet" / "a.parquet")
    text = "".join(f"u,{i},{r}\n" for i, r in zip(item, rating, strict=True))
    drafts = [
        draft(tmp_path / "csv", {"a.csv": b"u,i,r\n" + text.encode()}, LONG),
        draft(tmp_path / "parquet", {}, LONG),
    ]
    assert drafts[0] == drafts[1]
    assert drafts[0][0].names == tuple(map(str, range(12)))


def test_draft_schema__nothing_to_draft(tmp_path):
    with pytest.raises(SchemaError, match=r"a\.csv"):
        draft(tmp_path, {"a.csv": b"x\n\n"}, WIDE)
    config = SourceOptions(path="x", layout="wide", sample="who")
    with pytest.raises(SourceError, match="'who'"):
        draft(tmp_path, {"a.csv": b"x\n1\n"}, config)


def test_draft_schema__too_many_variables(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.ingest.column_values.MAX_VARIABLES", 3)
    rows = b"".join(b"u,%d,1\n" % n for n in range(4))
    with pytest.raises(SchemaError, match="column 'i'"):
        draft(tmp_path, {"a.csv": b"u,i,r\n" + rows}, LONG)


def test_natural_key__numbers_inside_names():
    names = ["q10b", "q2", "q10a", "10", "9", "a", "", "q2a", "q02", "09", "q"]
    want = ["", "09", "9", "10", "a", "q", "q02", "q2", "q2a", "q10a", "q10b"]
    assert sorted(names, key=natural_key) == want


def test_draft_schema__equal_notes_are_one(tmp_path):
    header = ",".join(f"q{j}" for j in range(9))
    rows = "\n".join(",".join(f"{'ab'[(j + n) % 2]}" for j in range(9)) for n in range(6))
    _, notes = draft(tmp_path, {"a.csv": f"{header}\n{rows}\n".encode()}, WIDE)
    assert len(notes) == 1
    assert notes[0].startswith("q0, q1, q2, q3, q4, q5, ... 3 more: ")


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_draft_schema__a_delimiter_that_does_not_occur_is_found(tmp_path, delimiter):
    text = f"a{delimiter}b\n1{delimiter}2\n"
    assert draft(tmp_path, {"a.csv": text.encode()}, WIDE)[0].names == ("a", "b")


def test_draft_schema__first_row_looks_like_data(tmp_path):
    files = {"a.csv": b"vhigh,2,small\nlow,2,big\nvhigh,4,small\n"}
    named = WIDE.model_copy(update={"columns": ("vhigh", "b", "small")})
    for config, said in ((WIDE, True), (named, False)):
        notes = draft(tmp_path, files, config)[1]
        assert any("['vhigh', '2', 'small']" in note for note in notes) == said


def test_draft_schema__long_log_taken_for_wide(tmp_path):
    lines = "".join(f"user{n},item{n},{n % 5}\n" for n in range(60))
    schema, notes = draft(tmp_path, {"a.csv": f"user,item,stars\n{lines}".encode()}, WIDE)
    assert schema.names == ("stars",)
    assert notes[0].startswith("user, item: ")
    assert "source.sample" in notes[1]


def test_number_columns__as_many_digits_as_needed(tmp_path):
    (tmp_path / "a.csv").write_text(",".join("0" * 12) + "\n")
    (source,) = find_sources(str(tmp_path))
    names = number_columns(source, WIDE)
    assert (names[0], names[-1], len(names)) == ("c01", "c12", 12)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=r"b\.parquet"):
        number_columns(find_sources(str(tmp_path / "b.parquet"))[0], WIDE)


def test_draft_schema__a_long_log_of_one_value_is_refused(tmp_path):
    rows = "\n".join(f"p{n // 3},item{(n * 7) % 5},1" for n in range(60))
    (tmp_path / "a.csv").write_text(f"who,what,bought\n{rows}\n")
    config = SourceOptions(path="x", layout="long", sample="who", variable="what", value="bought")
    with pytest.raises(SchemaError, match="all answers in column 'bought' are '1'"):
        draft_schema(find_sources(str(tmp_path)), config)


def test_draft_schema__cells_with_several_answers_are_named(tmp_path):
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefgh"))
    lines = [
        f"{';'.join(letters[rng.random(8) < 0.4])},{'|'.join(letters[:2][rng.random(2) < 0.7])}"
        for _ in range(300)
    ]
    (tmp_path / "a.csv").write_text("channels,few\n" + "\n".join(lines) + "\n")
    config = SourceOptions(path="x", layout="wide")
    drafted = draft_schema(find_sources(str(tmp_path)), config)
    assert "channels" not in drafted.schema
    assert "several answers in a cell, 8 of them" in drafted.columns["channels"].note


TWO_ROWS = "id,Seen any?,Which seen?,,,Age\n,Response,A,B,C,Response\n"


@pytest.mark.parametrize(
    ("head", "names"),
    [
        (TWO_ROWS, ("Seen any?", "Which seen?: A", "Which seen?: B", "Which seen?: C", "Age")),
        (
            "id,s,a,b,c,age\nIdentifier,Seen any?,A,B,C,Age\n"
            + ",".join(['"{""ImportId"":""Q""}"'] * 6),
            ("s", "a", "b", "c", "age"),
        ),
    ],
)
def test_draft_schema__a_header_of_several_rows(head, names, tmp_path):
    rows = [f"r{n},{'yn'[n % 2]},{'A' * (n % 3)},B,{n % 2},{20 + n % 9}" for n in range(60)]
    text = "\n".join([head.rstrip("\n"), *rows])
    (tmp_path / "a.csv").write_text(text + "\n")
    sources = find_sources(str(tmp_path))
    config, notes = sniff_source(sources, WIDE, ())
    assert config.header_rows == head.rstrip("\n").count("\n") + 1
    assert "--header-rows" in notes[-1]
    drafted = draft_schema(sources, config)
    assert drafted.schema.names == names
    assert drafted.schema["Age" if "Age" in names else "age"].cardinality == 9


def test_draft_schema__columns_without_a_name_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,,\n" + "1,x,u,v\n2,y,,\n" * 20)
    sources = find_sources(str(tmp_path))
    config, _ = sniff_source(sources, WIDE, ())
    assert config.header_rows == 1
    drafted = draft_schema(sources, config)
    assert drafted.schema.names == ("a", "b")
    assert any("2 columns have no name" in note for note in drafted.notes)


def test_draft_schema__a_second_row_of_names_where_names_are_repeated(tmp_path):
    # pandas writes columns of two levels so: pandas-dev/pandas 25286
    (tmp_path / "a.csv").write_text("q1,q2,q2\n,a,b\n" + "1,2,3\n2,1,1\n" * 20)
    sources = find_sources(str(tmp_path))
    with pytest.raises(SourceError, match="--header-rows 2"):
        draft_schema(sources, WIDE)
    drafted = draft_schema(sources, WIDE.model_copy(update={"header_rows": 2}))
    assert drafted.schema.names == ("q1", "q2: a", "q2: b")
    assert drafted.schema.cardinalities.tolist() == [2, 2, 2]
