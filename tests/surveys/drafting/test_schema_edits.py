import json
import shlex

import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError
from pmflib.schema import DEFAULT_MISSING, ValueCounts
from pmflib.surveys.drafting import DraftedSchema, propose_codes, propose_variable
from pmflib.surveys.drafting.drafted_schema import ColumnDraft
from pmflib.surveys.drafting.level_order import join_levels, split_levels
from pmflib.surveys.drafting.schema_edits import (
    ColumnEdit,
    edit_column,
    edit_missing,
)

TABLE = {
    "id": [str(n) for n in range(200)],
    "size": ["big", "small", "?", "medium"] * 50,
    "age": [str(n % 80) for n in range(200)],
    "town": [f"t{min(n, 200 - n) // 3}" for n in range(200)],
}


def count(names):
    out = {}
    for name in names:
        out[name] = ValueCounts()
        out[name].add(pa.array(TABLE[name]))
    return out


def refuse(names):
    raise AssertionError(f"{names} were read")


@pytest.fixture
def drafted():
    value_counts = count(TABLE)
    codes = propose_codes(value_counts, DEFAULT_MISSING)
    made = {
        name: propose_variable(name, counted, codes=codes.get(name, ()))
        for name, counted in value_counts.items()
    }
    schema = pmf.Schema(tuple(each.variable for each in made.values() if each.variable is not None))
    return DraftedSchema(
        schema, {name: ColumnDraft.from_proposal(each) for name, each in made.items()}
    )


def test_edit_column__what_needs_no_data(drafted):
    found = edit_column(drafted, "size", ColumnEdit(is_dropped=True), refuse)
    assert "size" not in found.schema
    assert found.columns["size"].role == "dropped"
    found = edit_column(drafted, "size", ColumnEdit(levels=("big", "medium", "small")), refuse)
    assert found.schema["size"].levels == ("big", "medium", "small")
    assert found.schema["size"].values == (1.0, 2.0, 3.0)
    # the order that was given is kept without a level, and is one already
    assert edit_column(found, "size", ColumnEdit(role="ordinal"), refuse) == found
    found = edit_column(found, "size", ColumnEdit(missing=("?", "medium")), count)
    assert found.schema["size"].levels == ("big", "small")
    assert found.schema["size"].missing == (*DEFAULT_MISSING, "?", "medium")
    assert found.columns["size"].share_missing == 0.5


def test_edit_column__levels_removed_are_noted(drafted):
    found = edit_column(drafted, "size", ColumnEdit(levels=("big", "small")), refuse)
    assert "['medium']" in found.columns["size"].note
    assert found.notes[-1].startswith("size: ['medium']")


def test_edit_column__what_reads_the_data(drafted):
    found = edit_column(drafted, "age", ColumnEdit(bins=3), count)
    assert found.schema["age"].cardinality == 3
    found = edit_column(drafted, "town", ColumnEdit(other=5), count)
    assert found.schema["town"].cardinality == 6
    assert found.schema["town"].other == "other"
    found = edit_column(found, "town", ColumnEdit(other=0), count)
    assert (found.schema["town"].cardinality, found.schema["town"].other) == (34, None)
    found = edit_column(drafted, "size", ColumnEdit(missing=()), count)
    assert "?" in found.schema["size"].levels
    found = edit_column(drafted, "id", ColumnEdit(role="continuous"), count)
    assert found.schema.names == ("id", "size", "age", "town")
    assert found.schema["id"].role == "continuous"


def test_edit_column__what_cannot_be(drafted):
    with pytest.raises(SchemaError, match="'agee'"):
        edit_column(drafted, "agee", ColumnEdit(bins=3), count)
    with pytest.raises(SchemaError, match="'town'"):
        edit_column(drafted, "town", ColumnEdit(bins=3), count)
    with pytest.raises(SchemaError, match="size"):
        edit_column(drafted, "size", ColumnEdit(missing=("?", "big", "small", "medium")), count)
    for wrong, refusal in (
        ({}, "nothing to change; pass --role"),
        ({"bins": 1}, "pass at least 2"),
        ({"is_dropped": True, "bins": 3}, "--drop leaves the column out; pass it alone"),
        ({"other": 3, "levels": ("a",)}, "--levels names all levels; pass it without --other"),
    ):
        with pytest.raises(SchemaError, match=refusal):
            ColumnEdit(**wrong)


def test_edit_missing__holds_for_columns_without_own_codes(drafted):
    found = edit_missing(drafted, ("t0", "60"), count)
    assert found.schema.missing == (*DEFAULT_MISSING, "t0", "60")
    assert "t0" not in found.schema["town"].levels
    assert found.schema["age"].encode_value("60") == -1
    assert found.schema["age"].missing == found.schema.missing
    assert found.schema["size"].missing == drafted.schema["size"].missing
    assert edit_missing(found, (), count).schema["age"].encode_value("60") >= 0


def test_save__draft_comes_back_and_schema_md_has_a_line_for_each_column(drafted, tmp_path):
    path = tmp_path / "schema.json"
    readable = drafted.save(path)
    found = DraftedSchema.load(path)
    assert found.schema == drafted.schema
    assert found.columns == drafted.columns
    lines = [line for line in readable.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + len(TABLE)
    assert any(line.startswith("| id | identifier |") for line in lines)
    assert any('"?" (50' in line and "25.0%" in line for line in lines)
    assert pmf.Schema.load(path) == drafted.schema


def test_load__schema_by_hand_and_damaged_draft(drafted, tmp_path):
    path = tmp_path / "schema.json"
    drafted.schema.save(path)
    assert DraftedSchema.load(path).columns["age"].role == "continuous"
    data = json.loads(path.read_text())
    for wrong in (3, {"columns": {"age": 3}}, {"columns": {"age": {"x": 1}}}, {"bins": "x"}):
        path.write_text(json.dumps(data | {"draft": wrong}))
        with pytest.raises(SchemaError, match="draft"):
            DraftedSchema.load(path)


def test_edit_column__the_level_of_what_is_absent_is_kept():
    ticks = ValueCounts()
    ticks.add(pa.array(["x", None, "x", "?"]))
    schema = pmf.Schema((pmf.Variable("bought", ("no", "x"), absent="no"),))
    drafted = DraftedSchema(schema, {"bought": ColumnDraft("nominal")})
    again = edit_column(drafted, "bought", ColumnEdit(levels=("no", "x", "?")), refuse)
    assert again.schema["bought"].absent == "no"
    assert again.schema["bought"].values is None
    counted = {"bought": ticks}
    gone = ColumnEdit(role="nominal", missing=("?",))
    again = edit_column(drafted, "bought", gone, lambda _: counted)
    assert again.schema["bought"].levels == ("no", "x")
    assert again.schema["bought"].absent == "no"


def draft(**columns):
    """Draft columns, and return the draft with what reads them again."""
    value_counts = {}
    for name, values in columns.items():
        value_counts[name] = ValueCounts()
        value_counts[name].add(pa.array(values))
    made = {name: propose_variable(name, counted) for name, counted in value_counts.items()}
    schema = pmf.Schema(tuple(each.variable for each in made.values() if each.variable is not None))
    columns = {name: ColumnDraft.from_proposal(each) for name, each in made.items()}
    return DraftedSchema(schema, columns), lambda names: {
        name: value_counts[name] for name in names
    }


HOW_MUCH = ("Nothing at all", "Only a little", "Some", "Heaps")


def test_edit_column__an_order_that_was_given_is_never_the_alphabet():
    drafted, read = draft(q=list(HOW_MUCH) * 9)
    with pytest.raises(SchemaError, match="--levels 'Heaps,Nothing at all,Only a little,Some'"):
        edit_column(drafted, "q", ColumnEdit(role="ordinal"), read)
    given = edit_column(drafted, "q", ColumnEdit(levels=HOW_MUCH), refuse)
    assert (given.schema["q"].role, given.schema["q"].levels) == ("ordinal", HOW_MUCH)
    assert edit_column(given, "q", ColumnEdit(role="ordinal"), refuse) == given
    names = edit_column(given, "q", ColumnEdit(levels=HOW_MUCH, role="nominal"), refuse)
    assert names.schema["q"].values is None
    again = edit_column(names, "q", ColumnEdit(role="ordinal"), refuse)
    assert (again.schema["q"].role, again.schema["q"].levels) == ("ordinal", HOW_MUCH)


def test_edit_column__levels_are_spelt_as_the_data_are_and_new_ones_are_said():
    drafted, _ = draft(q=list(HOW_MUCH) * 9)
    wanted = ("nothing at all ", "only a little", "some", "heaps", "Everything")
    found = edit_column(drafted, "q", ColumnEdit(levels=wanted), refuse)
    assert found.schema["q"].levels == (*HOW_MUCH, "Everything")
    assert "['Everything'] were no levels of the draft" in found.columns["q"].note


def test_edit_column__a_missing_code_is_no_level_unless_it_is_none_any_more():
    drafted, read = draft(land=["EU", "AS", "NA", ""] * 9)
    assert drafted.schema["land"].levels == ("AS", "EU")
    with pytest.raises(SchemaError, match="'NA' of column 'land' cannot be a level and a missing"):
        edit_column(drafted, "land", ColumnEdit(levels=("NA", "EU", "AS")), refuse)
    found = edit_column(drafted, "land", ColumnEdit(missing=("none",)), read)
    assert found.schema["land"].levels == ("AS", "EU", "NA")
    assert found.columns["land"].share_missing == 0.25
    both = ColumnEdit(levels=("NA", "EU", "AS"), missing=("none",), role="nominal")
    assert edit_column(drafted, "land", both, refuse).schema["land"].levels == ("NA", "EU", "AS")


def test_edit_column__what_depends_on_missing_codes_is_drafted_anew():
    drafted, read = draft(income=["$0 to $9", "$10 to $19", "$20 to $49", "rather not"] * 9)
    assert drafted.schema["income"].role == "nominal"
    found = edit_column(drafted, "income", ColumnEdit(missing=("rather not",)), read)
    assert found.schema["income"].role == "ordinal"
    assert found.schema["income"].levels == ("$0 to $9", "$10 to $19", "$20 to $49")
    assert found.columns["income"].share_missing == 0.25
    back = edit_column(found, "income", ColumnEdit(missing=()), read)
    assert back.schema["income"].role == "nominal"
    assert "rather not" in back.schema["income"].levels


@pytest.mark.parametrize("levels", [("6'3\"", "5'8\""), ("no, never", "yes"), ('"a"', "b c", "")])
def test_split_levels__reads_what_join_levels_writes(levels):
    (text,) = shlex.split(join_levels(levels))
    assert split_levels([text]) == levels
    assert split_levels(levels) == levels
