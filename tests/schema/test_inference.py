import pyarrow as pa
import pytest

from pmflib.errors import SchemaError
from pmflib.schema import inference
from pmflib.schema.inference import LevelCensus, propose_variable


def propose(values, **options):
    census = LevelCensus()
    census.add(values if isinstance(values, pa.Array) else pa.array(values))
    return propose_variable("v", census, **options)


def test_propose_variable__ordinal_levels_stand_in_numeric_order():
    variable, note = propose(["10", "9", "1.0", "1", "NA", None])
    assert variable.levels == ("1", "9", "10")
    assert variable.values == (1.0, 9.0, 10.0)
    assert note == ""


def test_propose_variable__texts_ask_for_their_order():
    variable, note = propose(["yes", " no ", "no", b"x".decode(), ""])
    assert variable.levels == ("no", "x", "yes")
    assert variable.values is None
    assert "order of the levels is alphabetical" in note


def test_propose_variable__booleans_and_bands_are_texts():
    assert propose([True, False, None])[0].levels == ("false", "true")
    assert propose(["18_24", "25_34"])[0].values is None


def test_propose_variable__number_among_texts_may_be_a_missing_code():
    variable, note = propose(["a", "b", "-9"])
    assert variable.levels == ("-9", "a", "b")
    assert "some levels read as numbers ('-9')" in note


def test_propose_variable__own_missing_texts():
    variable, _ = propose(["a", "?", ""], missing=("?",))
    assert variable.levels == ("", "a")
    assert variable.missing == ("?",)


def test_propose_variable__nan_is_missing_whatever_the_missing_texts():
    variable, _ = propose([1.0, 2.0, float("nan")], missing=("", "-9"))
    assert variable.levels == ("1", "2")


def test_propose_variable__nothing_seen():
    assert propose(["", None, "NA"]) == (None, "left out: no value was seen")


def test_propose_variable__identifiers_are_left_out():
    variable, note = propose([f"user {n}" for n in range(33)])
    assert variable is None
    assert note == "left out: 33 distinct texts; an identifier or free text?"


def test_propose_variable__continuous_column_is_cut_at_its_quantiles():
    variable, note = propose(list(range(100)), bins=4)
    assert variable.edges == (25.0, 50.0, 75.0)
    assert variable.levels == ("[-inf, 25)", "[25, 50)", "[50, 75)", "[75, inf)")
    assert variable.values == (12.0, 37.0, 62.0, 87.0)
    assert "cut into 4 bins" in note


def test_propose_variable__heavy_value_has_a_bin_of_its_own():
    variable, _ = propose([0] * 1000 + list(range(1, 50)))
    assert variable.edges == (1.0,)
    assert variable.values == (0.0, 25.0)


def test_propose_variable__close_edges_keep_distinct_labels():
    variable, _ = propose([1.0000001 + 1e-9 * n for n in range(50)], bins=4)
    assert variable.cardinality == 4
    assert variable.levels[0] == f"[-inf, {variable.edges[0]!r})"


@pytest.mark.parametrize("n_values", [33, 34, 40, 1000])
@pytest.mark.parametrize("bins", [2, 8, 31])
def test_propose_variable__no_bin_is_empty(n_values, bins):
    values = [n * n % 97 / 7 + n for n in range(n_values)]
    variable, _ = propose(values, bins=bins)
    codes = variable.encode_column(pa.array(values))
    assert set(codes.tolist()) == set(range(variable.cardinality))


def test_add__overflowing_census_is_no_category(monkeypatch):
    monkeypatch.setattr(inference, "MAX_TRACKED", 3)
    census = LevelCensus()
    census.add(pa.array(["a", "b", "c", "d", "a"]))
    assert census.overflowed
    assert census.counts == {"a": 2, "b": 1, "c": 1}
    assert propose_variable("v", census)[1].startswith("left out: at least 3 distinct texts")


def test_add__bytes_that_are_no_text_are_passed_over():
    census = LevelCensus()
    census.add(pa.array([b"a", b"\xff", b"a"]))
    assert census.counts == {"a": 2}


def test_add__nested_column_is_refused():
    with pytest.raises(SchemaError, match="a column holds list<"):
        LevelCensus().add(pa.array([[1], [2]]))


@pytest.mark.parametrize("value", ["0", "yes"])
def test_propose_variable__one_value_only(value):
    variable, note = propose([value] * 5 + [""])
    assert variable.levels == (value,)
    assert note.startswith("only one value was seen")


def test_propose_variable__numbers_that_all_differ_may_be_identifiers():
    assert "an identifier?" in propose([str(n) for n in range(100)])[1]
    assert "an identifier?" not in propose([str(n) for n in range(100)] * 2)[1]
    assert "an identifier?" not in propose([str(n + 0.5) for n in range(100)])[1]
