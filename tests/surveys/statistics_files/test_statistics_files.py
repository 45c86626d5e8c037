"""Files of SPSS, Stata and SAS as sources: labels, missing codes, quirks of the formats, and damage."""

import struct
import threading
from typing import Any

import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
import readstat_arrow
from readstat_arrow import Metadata

import pmflib.surveys.statistics_files.statistics_files as statistics_files
from pmflib.base import PmfError, SourceError
from pmflib.ingest import count_values, find_sources, make_source, read_columns, read_rows
from pmflib.surveys.drafting import draft_schema

LIKERT = {1: "disagree", 2: "neither", 3: "agree", 8: "don't know", 9: "no answer"}


def code_labels(labels):
    return [{"value": code, "label": label} for code, label in labels.items()]


def write(folder, name, columns, **about):
    """Write columns to a file, with ``labels`` by column and other fields of `Metadata`."""
    labels = {column: code_labels(own) for column, own in about.pop("labels", {}).items()}
    write_file = readstat_arrow.write_dta if name.endswith(".dta") else readstat_arrow.write_sav
    options = {"compression": "zlib"} if name.endswith(".zsav") else {}
    metadata = Metadata(value_labels=labels, **about)
    write_file(folder / name, pa.table(columns), metadata, **options)
    return folder / name


def read(path, coded=(), columns=None, **options):
    """Read all rows of a file, as a list of values per column."""
    config = make_source({"path": str(path), "layout": "wide", **options})
    (source,) = find_sources(str(path))
    names = columns or read_columns(source, config)
    found = {name: [] for name in names}
    numbers = []
    for raw in read_rows(source, config, names, coded=coded):
        numbers += raw.rows.tolist()
        for name in names:
            found[name] += raw.batch.column(name).to_pylist()
    assert numbers == [*range(1, len(numbers) + 1)]
    return found


def draft(path, **options):
    config = make_source({"path": str(path), "layout": "wide", **options})
    return draft_schema(find_sources(str(path)), config)


def test_labels_are_levels_and_codes_without_labels_keep_their_number(tmp_path):
    path = write(
        tmp_path, "a.sav", {"q": [1.0, 2.0, 2.5, None, 7.0]}, labels={"q": {1: "yes", 2: " no "}}
    )
    assert read(path, ["q"]) == {"q": ["yes", "no", "2.5", None, "7"]}
    assert read(path) == {"q": [1.0, 2.0, 2.5, None, 7.0]}


def test_codes_with_the_same_label_are_told_apart(tmp_path):
    labels = {"q": {1: "yes", 2: "no", 3: "yes", 4: "5", 5: ""}}
    path = write(tmp_path, "a.sav", {"q": [1.0, 2.0, 3.0, 4.0, 5.0]}, labels=labels)
    assert read(path, ["q"]) == {"q": ["yes (1)", "no", "yes (3)", "5 (4)", "5"]}


def test_a_label_that_looks_like_another_with_its_code_is_told_apart(tmp_path):
    labels = {"q": {1: "yes", 2: "yes", 3: "yes (1)"}}
    path = write(tmp_path, "a.sav", {"q": [1.0, 2.0, 3.0]}, labels=labels)
    assert read(path, ["q"]) == {"q": ["1 yes", "2 yes", "3 yes (1)"]}


@pytest.mark.parametrize("measure", ["ordinal", "scale", "nominal", None])
def test_the_order_of_levels_is_that_of_their_codes(tmp_path, measure):
    labels = {"q": {10: "low", 2: "zero", -1: "below"}}
    path = write(
        tmp_path, "a.sav", {"q": [10.0, 2.0, 3.0, -1.0] * 5}, labels=labels, measures={"q": measure}
    )
    variable = draft(path).schema["q"]
    assert variable.levels == ("below", "zero", "3", "low")
    ordered = measure in ("ordinal", "scale")
    assert variable.values == ((-1.0, 2.0, 3.0, 10.0) if ordered else None)


def test_levels_that_nobody_gave_are_drafted(tmp_path):
    path = write(
        tmp_path, "a.sav", {"q": [1.0, 3.0] * 4}, labels={"q": LIKERT}, measures={"q": "ordinal"}
    )
    assert draft(path).schema["q"].levels == (*LIKERT.values(),)


def test_codes_declared_missing_are_missing_and_counted_by_their_label(tmp_path):
    path = write(
        tmp_path,
        "a.sav",
        {"q": [1.0, 2.0, 3.0, 9.0, 9.0, 8.0, 7.0, None] * 3},
        labels={"q": LIKERT},
        missing_values={"q": {"lo": 7, "hi": 8, "value": 9}},
        measures={"q": "ordinal"},
        variable_labels={"q": "Taxes are too high"},
    )
    drafted = draft(path)
    variable, column = drafted.schema["q"], drafted.columns["q"]
    assert variable.levels == ("disagree", "neither", "agree")
    assert {text: why.split(" ")[0] for text, why in column.codes.items()} == {
        "don't know": "3",
        "no answer": "6",
    }
    assert column.share_missing == pytest.approx(5 / 8)
    assert column.about == "Taxes are too high"
    assert "Taxes are too high" in drafted.describe("schema.json")
    # without a label in the range, there is no level and no code of its own
    values = read(path, ["q"])["q"][:8]
    assert values == [
        "disagree",
        "neither",
        "agree",
        "no answer",
        "no answer",
        "don't know",
        None,
        None,
    ]
    assert variable.encode_column(pa.array(values)).tolist() == [0, 1, 2, -1, -1, -1, -1, -1]


def test_ranges_from_the_lowest_and_up_to_the_highest(tmp_path):
    table = {"low": [-99.0, -1.0, 0.0, 5.0], "high": [1.0, 90.0, 1e300, 5.0]}
    path = write(
        tmp_path,
        "a.sav",
        table,
        labels={"low": {-99: "refused"}},
        missing_values={
            "low": {"lo": float("-inf"), "hi": -1},
            "high": {"lo": 90, "hi": float("inf")},
        },
    )
    assert read(path) == {"low": [-99.0, None, 0.0, 5.0], "high": [1.0, None, None, 5.0]}


def test_numbers_of_which_few_have_labels_are_binned(tmp_path):
    ages = [float(18 + index % 73) for index in range(1000)]
    ages[:30] = [99.0] * 30
    path = write(
        tmp_path,
        "a.sav",
        {"age": ages},
        labels={"age": {90: "90 or older", 99: "no answer"}},
        missing_values={"age": {"values": [99]}},
        measures={"age": "scale"},
    )
    drafted = draft(path)
    variable = drafted.schema["age"]
    assert variable.role == "continuous"
    assert "no answer" in drafted.columns["age"].codes["99"]
    codes = variable.encode_column(pa.array(read(path)["age"]))
    assert (codes == -1).sum() == 30
    assert codes[ages.index(90.0)] == variable.cardinality - 1


@pytest.mark.parametrize("name", ["a.sav", "a.zsav"])
def test_texts_with_labels_blanks_and_lengths_beyond_255(tmp_path, name):
    texts = ["m", "f ", "", "x" * 300, "é" * 400, "y" * 5000]
    path = write(tmp_path, name, {"s": texts, "n": [1.0] * 6}, labels={"n": {1: "one"}})
    assert read(path)["s"] == ["m", "f", *texts[2:]]
    path = write(
        tmp_path,
        name,
        {"s": ["m", "f", "9", "z"]},
        labels={"s": {"m": "male", "f": "female", "9": "refused"}},
        missing_values={"s": {"values": ["9"]}},
    )
    assert read(path, ["s"]) == {"s": ["male", "female", "refused", "z"]}
    assert draft(path).schema["s"].levels == ("female", "male", "z")


def test_a_compressed_file_has_the_rows_of_a_plain_one(tmp_path):
    table = {"q": [float(1 + index % 9) for index in range(5000)], "s": ["some text"] * 5000}
    plain, packed = (
        write(tmp_path, name, table, labels={"q": LIKERT}) for name in ("a.sav", "b.zsav")
    )
    assert packed.stat().st_size < plain.stat().st_size / 20
    assert read(plain, ["q"]) == read(packed, ["q"])


def test_letters_of_stata_are_missing_with_their_labels(tmp_path):
    tag = pa.dictionary(pa.int8(), pa.string())
    cells = [
        {"value": 1, "tag": None},
        {"value": None, "tag": "a"},
        {"value": None, "tag": "b"},
        None,
        {"value": 2, "tag": None},
    ]
    column = pa.array(cells * 4, pa.struct([("value", pa.int8()), ("tag", tag)]))
    labels = {"q": {1: "yes", 2: "no", "a": "refused"}}
    path = write(tmp_path, "a.dta", {"q": column, "x": column}, labels=labels)
    assert read(path, ["q"])["q"][:5] == ["yes", "refused", None, None, "no"]
    assert read(path)["x"][:5] == [1, None, None, None, 2]
    drafted = draft(path)
    assert drafted.schema["q"].levels == ("yes", "no")
    assert {text: why.split(" ")[0] for text, why in drafted.columns["q"].codes.items()} == {
        "refused": "4"
    }
    for name in ("q", "x"):
        variable = drafted.schema[name]
        codes = variable.encode_column(pa.array(read(path, ["q", "x"])[name]))
        assert codes.tolist() == [0, -1, -1, -1, 1] * 4


def test_a_letter_with_a_label_among_numbers_without_is_a_code(tmp_path):
    tag = pa.dictionary(pa.int8(), pa.string())
    cells: list[dict[str, Any]] = [{"value": float(index), "tag": None} for index in range(500)]
    cells[::50] = 10 * [{"value": None, "tag": "a"}]
    column = pa.array(cells, pa.struct([("value", pa.float64()), ("tag", tag)]))
    path = write(tmp_path, "a.dta", {"income": column}, labels={"income": {"a": "refused"}})
    variable = draft(path).schema["income"]
    assert variable.role == "continuous"
    assert ".a" in variable.missing
    codes = variable.encode_column(pa.array(read(path)["income"]))
    assert (codes == -1).sum() == 10
    assert codes[499] == variable.cardinality - 1


def test_dates_and_times(tmp_path):
    table = {
        "day": pa.array(["2020-01-31", None], pa.string()).cast(pa.date32()),
        "at": pa.array(["2020-01-31 10:11:12", None], pa.string()).cast(pa.timestamp("us")),
    }
    for name in ("a.sav", "a.dta"):
        found = read(write(tmp_path, name, table))
        assert [str(found[key][0]) for key in ("day", "at")] == [
            "2020-01-31",
            "2020-01-31 10:11:12",
        ]
        assert found["day"][1] is found["at"][1] is None


@pytest.mark.parametrize("name", ["a.xpt", "a.por"])
def test_other_formats_are_read_piece_by_piece(tmp_path, monkeypatch, name):
    frame = pd.DataFrame(
        {"A": [float(index) for index in range(25)], "B": ["x", "yy", "", "z", "w"] * 5}
    )
    frame.loc[3, "A"] = float("nan")
    (pyreadstat.write_xport if name == "a.xpt" else pyreadstat.write_por)(frame, tmp_path / name)
    monkeypatch.setattr(statistics_files, "BATCH_CELLS", 6)
    monkeypatch.setattr(statistics_files, "PIECE_CELLS", 20)
    found = read(tmp_path / name)
    assert found["A"] == [None if index == 3 else float(index) for index in range(25)]
    assert found["B"] == frame["B"].tolist()
    assert read(tmp_path / name, columns=["B"]) == {"B": frame["B"].tolist()}


def test_rows_are_read_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics_files, "BATCH_CELLS", 14)
    path = write(
        tmp_path, "a.sav", {"q": [float(index % 3) for index in range(23)], "s": ["t"] * 23}
    )
    assert read(path)["q"] == [float(index % 3) for index in range(23)]
    config = make_source({"path": str(path), "layout": "wide"})
    sizes = [
        raw.batch.num_rows for raw in read_rows(find_sources(str(path))[0], config, ["s", "q"])
    ]
    assert sizes == [7, 7, 7, 2]


def test_a_reader_that_is_left_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics_files, "BATCH_CELLS", 1)
    path = write(tmp_path, "a.sav", {"q": [1.0] * 50})
    config = make_source({"path": str(path), "layout": "wide"})
    rows: Any = read_rows(find_sources(str(path))[0], config, ["q"])
    next(rows)
    rows.close()
    assert "statistics-file" not in {thread.name for thread in threading.enumerate()}


def test_no_rows_and_one_row(tmp_path):
    empty = {"q": pa.array([], pa.float64()), "s": pa.array([], pa.string())}
    for name in ("a.sav", "a.dta", "a.zsav"):
        assert read(write(tmp_path, name, empty)) == {"q": [], "s": []}
        assert read(write(tmp_path, name, {"q": [1.0]}), columns=["q"]) == {"q": [1.0]}


def test_an_encoding_that_is_not_stated_is_given(tmp_path):
    path = write(tmp_path, "a.sav", {"s": ["thés", "lait"]}, labels={"s": {"lait": "né"}})
    content = (
        path.read_bytes().replace("thés".encode(), b"th\xe9s ").replace("né".encode(), b"n\xe9 ")
    )
    place = content.find(struct.pack("<ii", 7, 20))
    size, count = struct.unpack("<ii", content[place + 8 : place + 16])
    path.write_bytes(content[:place] + content[place + 16 + size * count :])
    with pytest.raises(SourceError, match="encoding"):
        read(path)
    assert read(path, ["s"], encoding="cp1252") == {"s": ["thés", "né"]}


@pytest.mark.parametrize("name", ["a.sav", "a.zsav", "a.dta", "a.xpt", "a.por"])
def test_a_file_that_was_cut_short_is_refused(tmp_path, name):
    frame = pd.DataFrame({"q": [float(index % 7) for index in range(300)], "s": ["abc"] * 300})
    makers = {"a.xpt": pyreadstat.write_xport, "a.por": pyreadstat.write_por}
    if name in makers:
        makers[name](frame, tmp_path / name)
    else:
        write(tmp_path, name, {"q": frame["q"], "s": frame["s"]}, labels={"q": LIKERT})
    content = (tmp_path / name).read_bytes()
    for share in (0.02, 0.1, 0.3, 0.6, 0.9):
        (tmp_path / name).write_bytes(content[: int(share * len(content)) | 1])
        with pytest.raises(SourceError):
            read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.sav", "a.dta", "a.zsav", "a.por", "a.xpt", "a.sas7bdat"])
def test_another_format_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"a,b\n1,2\n" * 200)
    with pytest.raises(SourceError):
        read(path)


def test_a_file_that_states_too_many_rows_is_refused(tmp_path):
    path = write(tmp_path, "a.sav", {"q": [1.0, 2.0]})
    content = bytearray(path.read_bytes())
    content[80:84] = struct.pack("<i", 10**9)
    path.write_bytes(content)
    with pytest.raises(SourceError):
        read(path)


def test_a_packed_file_is_refused(tmp_path):
    path = write(tmp_path, "a.sav", {"q": [1.0]})
    packed = path.rename(tmp_path / "a.sav.gz")
    with pytest.raises(SourceError, match="unpack"):
        read(packed, format="sav")


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    path = write(tmp_path, "a.sav", {"q": [1.0]})
    monkeypatch.setitem(__import__("sys").modules, "readstat_arrow", None)
    with pytest.raises(PmfError, match="statistics-files"):
        read(path)


def test_a_second_file_with_other_labels_is_noted(tmp_path):
    write(tmp_path, "a.sav", {"q": [1.0, 2.0], "r": [1.0, 2.0]}, labels={"q": {1: "yes", 2: "no"}})
    write(tmp_path, "b.sav", {"q": [1.0, 2.0], "r": [1.0, 2.0]}, labels={"q": {1: "no", 2: "yes"}})
    noted = [note for note in draft(tmp_path).notes if "b.sav" in note]
    assert len(noted) == 1
    assert "'q'" in noted[0]
    assert "'r'" not in noted[0]


def test_values_are_counted_by_label_or_by_code(tmp_path):
    path = write(tmp_path, "a.sav", {"q": [1.0, 1.0, 3.0]}, labels={"q": LIKERT})
    config = make_source({"path": str(path), "layout": "wide"})
    sources = find_sources(str(path))
    assert count_values(sources, config, ["q"])["q"].counts == {"1": 2, "3": 1}
    labelled = count_values(sources, config, ["q"], ["q"])["q"]
    assert +labelled.counts == {"disagree": 2, "agree": 1}
    assert labelled.categories == (*LIKERT.values(),)


def extend(path, record=b"", weight=""):
    """Add a record to the dictionary of a file of SPSS, and name the weight of its cases."""
    content = bytearray(path.read_bytes())
    end = content.rfind(struct.pack("<ii", 999, 0))
    content[end:end] = record
    if weight:
        name = weight.upper().encode().ljust(8)
        place, start = 1, 176
        while content[start + 24 : start + 32] != name:
            _, _, has_label, n_missing = struct.unpack("<4i", content[start : start + 16])
            start += 32
            if has_label:
                (size,) = struct.unpack("<i", content[start : start + 4])
                start += 4 + size + -size % 4
            start += 8 * abs(n_missing)
            place += 1
        content[76:80] = struct.pack("<i", place)
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["a.sav", "a.zsav"])
@pytest.mark.parametrize("weight", ["first", "freq", "last"])
def test_the_weight_of_a_file_of_spss_is_proposed(tmp_path, name, weight):
    table = {
        "first": [1.0 + index % 3 for index in range(40)],
        "long": ["x" * 600] * 40,
        "q": [1.0, 2.0] * 20,
        "freq": [1.0 + index % 7 for index in range(40)],
        "s": ["a", "b"] * 20,
        "person_wgt": [1 + index / 10 for index in range(40)],
        "last": [1.0, 2.0] * 20,
    }
    path = write(
        tmp_path,
        name,
        table,
        labels={"q": {1: "yes"}},
        missing_values={"q": {"lo": 7, "hi": 8, "value": 9}},
        variable_labels={"q": "Taxes?", "first": "Weights"},
    )
    assert draft(path).likely_weight == "person_wgt"
    extend(path, weight=weight)
    drafted = draft(path)
    assert drafted.likely_weight == weight
    assert weight not in drafted.schema.names
    assert sum("--weight" in note for note in drafted.notes) == 2
    named = draft(path, weight="person_wgt", sample=None)
    assert weight in named.schema.names or weight == "last"
    assert read(path) == table


def test_a_weight_that_the_header_misplaces_is_none(tmp_path):
    path = write(tmp_path, "a.sav", {"q": [1.0, 2.0], "s": ["a", "b"]})
    for place in (-1, 2, 3, 10**9):
        content = bytearray(path.read_bytes())
        content[76:80] = struct.pack("<i", place)
        path.write_bytes(content)
        assert draft(path).likely_weight is None


def test_multiple_response_sets_are_noted(tmp_path):
    columns = {name: [1.0, 0.0] * 4 for name in ("tv", "radio", "q", "first", "second")}
    path = write(tmp_path, "a.sav", columns)
    sets = b"$media=D1 1 10 Media used tv radio\n$reg=C 7 Regions first second\n"
    extend(path, struct.pack("<4i", 7, 7, 1, len(sets)) + sets)
    found = [note for note in draft(path).notes if "multiple-response" in note]
    assert len(found) == 2
    assert all(
        word in found[0] for word in ("'tv', 'radio'", "$media", "'Media used'", "1 is counted")
    )
    assert all(word in found[1] for word in ("'first', 'second'", "$reg", "'Regions'"))
    assert "counted" not in found[1]
