"""Data against a schema without a run."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.ingest import SchemaOptions, SourceOptions, check_data, encode_wide, find_sources

WIDE = SourceOptions(path="x", layout="wide")
LONG = SourceOptions(path="x", layout="long", sample="u", variable="i", value="r")
SCHEMA = pmf.Schema((pmf.Variable("a", ("no", "Yes")), pmf.Variable("b", ("1", "2"), (1.0, 2.0))))
GOOD = b"a,b\nno,1\nYes,\n,2\n"


def check(folder, files, config=WIDE, policy=None, schema=SCHEMA):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return check_data(find_sources(str(folder)), schema, config, policy or SchemaOptions())


def test_check_data__everything_fits(tmp_path):
    found = check(tmp_path, {"x.csv": GOOD})
    assert found.fits
    assert (found.files[0].rows_in, found.files[0].rows_encoded) == (3, 3)
    assert [(v.name, v.values, v.missing, v.unknown) for v in found.variables] == [
        ("a", 3, 1, []),
        ("b", 3, 1, []),
    ]
    assert found.variables[0].share_missing == pytest.approx(1 / 3)
    assert list(tmp_path.iterdir()) == [tmp_path / "x.csv"]


def test_check_data__accounts_as_a_run_does(tmp_path):
    rows = b"yes,1,x\nno,9,x\nno\nn\xff,1,x\nyes,9,x\n" * 3 + b"no,1,x\n"
    found = check(tmp_path, {"x.csv": b"a,b,more\n" + rows})
    (source,) = find_sources(str(tmp_path / "x.csv"))
    summary = encode_wide(
        source, SCHEMA, WIDE, SchemaOptions(), n_folds=2, seed=1, folder=tmp_path / "out"
    )
    (file,) = found.files
    assert (
        file.reasons
        == summary.account.reasons
        == {"ragged": 3, "undecodable": 3, "unknown_level": 9}
    )
    assert (file.rows_in, file.rows_encoded, file.rows_quarantined) == (16, 1, 15)
    assert file.examples["ragged"] == [(3, None, "no"), (8, None, "no"), (13, None, "no")]
    assert file.examples["undecodable"][0] == (4, "a", "n\\xff,1")
    assert file.ignored_columns == ["more"]
    a, b = found.variables
    assert (a.unknown, a.undecodable) == ([("yes", 6, "Yes")], 3)
    # values of rows that go to quarantine for another column count as well
    assert b.unknown == [("9", 6, None)]
    assert not found.fits


def test_check_data__unknown_levels_that_count_as_missing_fit(tmp_path):
    policy = SchemaOptions(on_unknown_level="missing", on_malformed="error")
    found = check(tmp_path, {"x.csv": GOOD + b"maybe,1\n"}, policy=policy)
    assert found.fits
    assert found.files[0].cells_made_missing == {"a": 1}
    assert not check(tmp_path, {"x.csv": GOOD + b"1\n"}, policy=policy).fits


def test_check_data__a_policy_that_stops_still_counts_all(tmp_path):
    policy = SchemaOptions(on_unknown_level="error", on_malformed="error")
    found = check(tmp_path, {"x.csv": GOOD + b"maybe,1\nno\nso,1\n"}, policy=policy)
    assert found.files[0].reasons == {"ragged": 1, "unknown_level": 2}


def test_check_data__a_file_that_cannot_be_used_does_not_hide_others(tmp_path):
    pq.write_table(pa.table({"a": ["no", None], "b": [1, 2]}), tmp_path / "y.parquet")
    found = check(tmp_path, {"x.csv": b"a,c\nno,1\n"})
    assert "'b'" in found.files[0].error
    assert (found.files[1].rows_encoded, found.files[1].error) == (2, "")
    assert [v.values for v in found.variables] == [2, 2]
    assert not found.fits


@pytest.mark.parametrize(
    ("content", "config", "said"),
    [
        ("a,b\nsüß,1\nno,1\nschön,2\n".encode("latin-1"), {}, "source.encoding"),
        ("a,b\nsüß,1\nno,1\nschön,2\n".encode(), {"encoding": "cp1252"}, "utf-8"),
        (b"a;b\nno;1\nYes;2\n", {}, "source.delimiter"),
        (b"no,1\nno,2\nYes,1\nYes,2\n", {}, "header"),
        (b"a;b\n1,5;1\n2,5;2\n", {"delimiter": ";"}, "source.decimal"),
        (b"a,b\nno,1\nno,2\nYes,1\nYes,2\n", {"columns": ("a", "b")}, "first row"),
    ],
)
def test_check_data__files_that_are_written_otherwise(tmp_path, content, config, said):
    found = check(tmp_path, {"x.csv": content}, WIDE.model_copy(update=config))
    assert any(said in sentence for sentence in found.files[0].reading), found.files[0].reading


@pytest.mark.parametrize("config", [{}, {"encoding": "cp1252"}, {"encoding": "iso8859-1"}])
def test_check_data__nothing_to_say_of_files_that_read_alike(tmp_path, config):
    text = "a,b\nno,1\nYes,2\n" + ("süß,1\nschön,2\n" if config else "")
    content = text.encode(config.get("encoding", "utf-8"))
    assert (
        check(tmp_path, {"x.csv": content}, WIDE.model_copy(update=config)).files[0].reading == []
    )


def test_check_data__long_and_keyed(tmp_path):
    rows = b"u,i,r\n1,a,no\n1,b,2\n2,b,\n2,c,1\n3,a,nein\n"
    found = check(tmp_path, {"x.csv": rows}, LONG)
    assert found.files[0].reasons == {"unknown_variable": 1, "unknown_level": 1}
    a, b = found.variables
    assert (a.values, a.unknown, b.missing) == (2, [("nein", 1, None)], 1)
    keyed = WIDE.model_copy(update={"sample": "id"})
    found = check(tmp_path, {"x.csv": b"id,a,b\n1,no,1\n,no,1\n"}, keyed)
    assert found.files[0].reasons == {"no_sample": 1}


def test_check_data__values_beyond_those_that_are_listed_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.schema.value_counts.MAX_TRACKED", 2)
    (tmp_path / "x.csv").write_text("a\n" + "\n".join(map(str, range(20))) + "\n")
    schema = pmf.Schema((pmf.Variable("a", ("low", "high"), edges=(10.0,)),))
    config = SourceOptions(path="x", layout="wide")
    found = check_data(find_sources(str(tmp_path / "x.csv")), schema, config, SchemaOptions())
    assert found.variables[0].values == 20
