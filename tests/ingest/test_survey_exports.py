"""Headers that repeat names, second rows of headers, and first lines for Excel, from the draft to the encoded rows."""

import pytest

import pmflib as pmf
from pmflib.base import SourceError
from pmflib.ingest import (
    SchemaOptions,
    SourceOptions,
    encode_wide,
    find_sources,
    read_columns,
    read_rows,
    sniff_source,
)
from pmflib.surveys.drafting.schema_draft import draft_schema

WIDE = SourceOptions(path="x", layout="wide")
ANSWERS = [("Yes", "Often", "Blue"), ("No", "Never", "Red"), ("Yes", "Never", "Blue")]


def sniff(folder, text, given=()):
    (folder / "a.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    (source,) = find_sources(str(folder / "a.csv"))
    return source, *sniff_source([source], WIDE, given)


def answer(head, n=60, sign=","):
    rows = [[str(k), *ANSWERS[k % 3]] for k in range(n)]
    return "\n".join([head, *(sign.join(row) for row in rows)]) + "\n"


def encode(folder, source, config, schema):
    """Rows that were encoded, and those in quarantine."""
    out = folder / "out"
    out.mkdir()
    found = encode_wide(source, schema, config, SchemaOptions(), n_folds=2, seed=0, folder=out)
    told = found.to_json()
    assert told["rows_in"] == told["rows_encoded"] + told["rows_quarantined"]
    return told["rows_encoded"], told["rows_quarantined"]


def test_a_repeated_name_is_numbered(tmp_path):
    source, config, notes = sniff(tmp_path, answer("id,q,q,q") + "60,Yes,Often,Blue,more\n")
    assert config.repeated_columns == "number"
    assert "'q_1', 'q_2'" in notes[-1]
    assert read_columns(source, config) == ["id", "q", "q_1", "q_2"]
    drafted = draft_schema([source], config)
    assert drafted.schema["q_1"].levels == ("Never", "Often")
    assert drafted.schema["q_2"].levels == ("Blue", "Red")
    assert encode(tmp_path, source, config, drafted.schema) == (60, 1)
    # later files that repeat a name, where the first did not, are refused
    with pytest.raises(SourceError, match="repeated_columns"):
        list(read_rows(source, WIDE, ["q"]))


def test_numbered_names_do_not_meet_others(tmp_path):
    source, config, _ = sniff(tmp_path, answer("q,q,q_1,"))
    assert read_columns(source, config) == ["q", "q_2", "q_1", ""]


@pytest.mark.parametrize(
    "second",
    [
        ",Response,Response,Response",
        ",Antwort,Antwort,Antwort",
        "Respondent,Is it so?,How often is it so?,Which colour has it?",
    ],
)
def test_a_second_row_of_names_is_skipped(tmp_path, second):
    source, config, notes = sniff(tmp_path, answer(f"id,so,often,colour\n{second}"))
    assert config.header_rows == 2
    assert second.split(",")[1] in notes[-1]
    assert "--header-rows 1" in notes[-1]
    drafted = draft_schema([source], config)
    assert drafted.schema["so"].levels == ("No", "Yes")
    assert encode(tmp_path, source, config, drafted.schema) == (60, 0)


@pytest.mark.parametrize(
    "first",
    [
        "x,Yes,Never,Blue",  # a respondent like the others
        "x,Maybe,Never,Green",  # with some answers of their own
        "x,NA,NA,NA",  # who said nothing
        "7,Response,Response,Response",  # who has a number
    ],
)
def test_a_first_respondent_is_no_header(tmp_path, first):
    assert sniff(tmp_path, answer(f"id,so,often,colour\n{first}"))[1].header_rows == 1


def test_decimals_are_found_below_two_rows_of_names(tmp_path):
    rows = "".join(f"{k % 4},5;{k % 3},25;a\n" for k in range(60))
    _, config, _ = sniff(tmp_path, f"x;y;z\nResponse;Response;Response\n{rows}")
    assert (config.header_rows, config.decimal) == (2, ",")


@pytest.mark.parametrize("sign", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_first_line_for_excel_is_no_header(tmp_path, sign, mark):
    head = sign.join(["id", "so", "often", "colour"])
    source, config, _ = sniff(tmp_path, answer(f"{mark}sep={sign}\n{head}", sign=sign))
    assert config.delimiter == sign
    assert read_columns(source, config) == ["id", "so", "often", "colour"]
    schema = pmf.Schema((pmf.Variable("so", ("No", "Yes")),))
    assert encode(tmp_path, source, config, schema) == (60, 0)


def cut(n=60):
    """Rows of which the last answers are empty, without the delimiters of these."""
    rows = [[str(k), *ANSWERS[k % 3]] for k in range(n)]
    for k in range(0, n, 4):
        rows[k] = rows[k][: 2 + k % 3 % 2]
    return "id,so,often,colour\n" + "".join(",".join(row) + "\n" for row in rows)


def test_rows_cut_by_spreadsheets_lack_their_last_answers(tmp_path):
    source, config, notes = sniff(tmp_path, cut())
    assert (config.short_rows, config.delimiter) == ("pad", ",")
    assert "15 of the first 60 rows" in notes[-1]
    drafted = draft_schema([source], config)
    assert drafted.schema["colour"].levels == ("Blue", "Red")
    assert encode(tmp_path, source, config, drafted.schema) == (60, 0)
    (raw,) = read_rows(source, config, ["colour", "id"])
    assert raw.rows.tolist() == list(range(1, 61))
    ids, colours = raw.batch.column("id").to_pylist(), raw.batch.column("colour").to_pylist()
    assert ids == [str(k).encode() for k in range(60)]
    assert colours == [b"" if k % 4 == 0 else ANSWERS[k % 3][2].encode() for k in range(60)]


def test_rows_that_lost_a_field_elsewhere_are_malformed(tmp_path):
    _, config, _ = sniff(tmp_path, answer("id,so,often,colour") + "60,Often,Blue\n61,Never,Red\n")
    assert config.short_rows == "quarantine"
    padded = WIDE.model_copy(update={"short_rows": "pad"})
    ends = "1,Yes,\n2\n3,No\n4,\\x,\n5,a,b,c,d\n"
    (tmp_path / "b.csv").write_text("id,so,often,colour\n" + ends)
    (raw,) = read_rows(find_sources(str(tmp_path / "b.csv"))[0], padded, ["so", "colour"])
    assert raw.batch.to_pylist() == [{"so": b"No", "colour": b""}]
    assert raw.rows.tolist() == [3]
    assert [number for number, _ in raw.ragged] == [1, 2, 4, 5]
