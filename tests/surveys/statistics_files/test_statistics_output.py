"""Tables as files of SPSS and Stata: codes, labels, missing codes, names and lengths."""

import pyarrow as pa
import pyreadstat
import pytest

import pmflib.surveys.statistics_files.statistics_output as statistics_output
from pmflib.base import PmfError, SchemaWarning
from pmflib.schema import FileColumn, Part, Variable
from pmflib.store import check_suffix, join_files, write_file
from pmflib.surveys.statistics_files.described_columns import describe_variable

SUFFIXES = (".sav", ".zsav", ".dta")
LIKERT = FileColumn(
    "Taxes are too high",
    "ordinal",
    {1.0: "disagree", 2.0: "neither", 3.0: "agree", 8.0: "don't know"},
    missing=(9.0,),
    ranges=((7.0, 8.0),),
)


def read(path, **options):
    parse = pyreadstat.read_dta if path.suffix == ".dta" else pyreadstat.read_sav
    return parse(path, user_missing=True, **options)


def fill(column):
    return [-1 if value != value else value for value in column]


def write(path, columns, described=None):
    table = pa.table(columns)
    write_file(path, table.schema, [table.slice(0, 2), table.slice(2)], described or {})
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return read(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_texts_with_codes_are_written_as_codes_with_labels(tmp_path, suffix):
    levels = pa.array(["agree", None, "disagree", "8", "2.0"]).dictionary_encode()
    frame, about = write(
        tmp_path / f"a{suffix}",
        {
            "q": levels,
            "n": pa.array([1.5, None, 2.0, 3.0, 4.0]),
            "s": ["é" * 300, "", "b", "c", None],
        },
        {"q": LIKERT},
    )
    assert fill(frame["q"]) == [3, -1, 1, 8, 2]
    assert fill(frame["n"]) == [1.5, -1, 2, 3, 4]
    assert frame["s"].tolist() == ["é" * 300, "", "b", "c", ""]
    assert about.column_names_to_labels["q"] == "Taxes are too high"
    assert about.variable_value_labels == {"q": LIKERT.texts}
    if suffix != ".dta":
        assert about.variable_measure["q"] == "ordinal"
        assert about.missing_ranges == {"q": [{"lo": 7, "hi": 8}, {"lo": 9, "hi": 9}]}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_texts_of_which_one_has_no_code_stay_texts(tmp_path, suffix):
    columns = {"q": ["agree", "never heard of"], "sample": ["0012", "x"]}
    described = {"q": LIKERT, "sample": FileColumn("Number")}
    frame, about = write(tmp_path / f"a{suffix}", columns, described)
    assert {name: frame[name].tolist() for name in columns} == columns
    assert about.column_names_to_labels == {"q": "Taxes are too high", "sample": "Number"}
    assert about.variable_value_labels == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_letters_of_missing_numbers_and_codes_that_are_texts(tmp_path, suffix):
    described = {
        "q": FileColumn(texts={1.0: "yes", ".a": "refused"}, missing=(".a",)),
        "s": FileColumn(texts={"m": "male", "f": "female"}, missing=("9",), is_number=False),
        "half": FileColumn(texts={0.5: "half", 1.0: "whole"}),
    }
    columns = {"q": ["yes", ".a", "refused"], "s": ["male", "9", "x"], "half": ["half", None, "1"]}
    frame, about = write(tmp_path / f"a{suffix}", columns, described)
    assert fill(frame["q"]) == [1, -1, -1]
    assert frame["s"].tolist() == ["m", "9", "x"]
    assert fill(frame["half"]) == [0.5, -1, 1]
    labels = about.variable_value_labels
    if suffix == ".dta":
        assert labels == {"q": {1: "yes", "a": "refused"}, "half": {1: "whole"}}
    else:
        assert labels == {
            "q": {1: "yes"},
            "s": {"m": "male", "f": "female"},
            "half": {0.5: "half", 1: "whole"},
        }
        assert about.missing_ranges == {"s": [{"lo": "9", "hi": "9"}]}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_names_that_are_not_allowed_are_descriptions(tmp_path, suffix):
    columns = {"what age?": [1, 2], "what age!": ["a", "b"], "state": pa.array([0, 1], pa.int32())}
    frame, about = write(tmp_path / f"a{suffix}", columns, {"state": LIKERT})
    assert frame.columns.tolist() == ["what_age_", "what_age__2", "state"]
    assert [*about.column_labels[:2]] == ["what age?", "what age!"]
    # a column of numbers is a score, not that of the raw files
    assert about.variable_value_labels == {}


def test_long_texts_are_cut_with_a_warning(tmp_path):
    described = {"q": FileColumn("d" * 300, texts={1.0: "l" * 130})}
    with pytest.warns(SchemaWarning, match="2 texts .* SPSS allows 120 bytes"):
        _, about = write(tmp_path / "a.sav", {"q": ["l" * 130]}, described)
    assert about.column_labels == ["d" * 256]
    assert about.variable_value_labels == {"q": {1: "l" * 120}}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_rows_one_row_and_pieces(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(statistics_output, "BATCH_CELLS", 7)
    for n_rows in (0, 1, 100):
        texts = pa.array([f"{row % 3 + 1}" for row in range(n_rows)], pa.string())
        longer = pa.array(["x" * row for row in range(n_rows)], pa.string())
        frame, _ = write(tmp_path / f"a{suffix}", {"q": texts, "s": longer}, {"q": LIKERT})
        assert frame["q"].tolist() == [row % 3 + 1 for row in range(n_rows)]
        assert frame["s"].tolist() == longer.to_pylist()


def test_join_files__with_labels(tmp_path):
    (tmp_path / "parts").mkdir()
    for number, text in enumerate(("agree", "neither")):
        table = pa.table({"task": [f"t{9 - number}"], "q": [text]})
        write_file(tmp_path / "parts" / f"{number}.parquet", table.schema, [table])
    join_files(tmp_path / "parts", tmp_path / "a.sav", "task", in_all=True, described={"q": LIKERT})
    frame, _ = read(tmp_path / "a.sav")
    assert frame.to_numpy().tolist() == [["t8", 2], ["t9", 3]]


def test_a_missing_package_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "readstat_arrow", None)
    with pytest.raises(PmfError, match="statistics-files"):
        check_suffix(tmp_path / "a.sav")


@pytest.mark.parametrize(
    ("variable", "declared", "codes"),
    [
        (Variable("v", ("no", "yes")), FileColumn(), [1, 2]),
        (Variable("v", ("1", "5")), FileColumn(), [1, 5]),
        (Variable("v", ("low", "high"), values=(0, 10)), FileColumn(), [0, 10]),
        (Variable("v", ("low", "high"), values=(1, 1)), FileColumn(), [1, 2]),
        (Variable("v", ("neither", "agree", "4")), LIKERT, [2, 3, 4]),
        (Variable("v", ("agree", "others"), other="others"), LIKERT, [3, 4]),
        (Variable("v", ("x < 3", "x >= 3"), edges=(3,)), LIKERT, [1, 2]),
        (Variable("v", ("x < 3", "x >= 3"), (2.5, 4), edges=(3,)), LIKERT, [2.5, 4]),
        (Variable("v_a", ("no", "yes"), part=Part("v", ";", ("a", "b"), "a")), LIKERT, [1, 2]),
        (Variable("v", ("m", "f")), FileColumn(is_number=False), ["m", "f"]),
    ],
)
def test_describe_variable__every_level_has_a_code_of_its_own(variable, declared, codes):
    found = describe_variable(variable, declared)
    assert [found.find_code(level) for level in variable.levels] == codes
    assert not any(map(found.is_missing, codes))
    assert found.label == declared.label
