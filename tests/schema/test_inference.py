import pyarrow as pa
import pytest

from pmflib.errors import SchemaError
from pmflib.schema import level_census
from pmflib.schema.inference import Wishes, propose_variable
from pmflib.schema.level_census import LevelCensus
from pmflib.schema.missing_codes import CodeProposal


def propose(values, **options):
    census = LevelCensus()
    census.add(values if isinstance(values, pa.Array) else pa.array(values))
    proposal = propose_variable(options.pop("name", "v"), census, **options)
    return proposal.variable, proposal.note


def test_propose_variable__ordinal_levels_stand_in_numeric_order():
    variable, note = propose(["10", "9", "1.0", "1", "NA", None])
    assert variable.levels == ("1", "9", "10")
    assert variable.values == (1.0, 9.0, 10.0)
    assert note == ""


def test_propose_variable__texts_ask_for_their_order():
    variable, note = propose(["yes", " no ", "no", b"x".decode(), ""])
    assert variable.levels == ("no", "x", "yes")
    assert variable.values is None
    assert "names without a known order; put the levels in order" in note


def test_propose_variable__booleans_are_texts_and_bands_have_middles():
    assert propose([True, False, None])[0].levels == ("false", "true")
    assert propose(["18_24", "25_34"])[0].values == (21.0, 29.5)


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
    census = LevelCensus()
    census.add(pa.array(["", "a", "b", "?"]))
    proposal = propose_variable("v", census, codes=[CodeProposal("?", 1, "a word")])
    assert (proposal.share_missing, proposal.variable.levels) == (0.5, ("a", "b"))


def test_propose_variable__identifiers_are_left_out():
    variable, note = propose([f"user {n}" for n in range(33)])
    assert variable is None
    assert note.startswith(
        "left out: an identifier, 33 distinct values in 33 rows; name it as source.sample"
    )


def test_propose_variable__continuous_column_is_cut_at_its_quantiles():
    variable, note = propose(list(range(100)) * 2, bins=4)
    assert variable.edges == (25.0, 50.0, 75.0)
    assert variable.levels == ("[-inf, 25)", "[25, 50)", "[50, 75)", "[75, inf)")
    assert variable.values == (12.0, 37.0, 62.0, 87.0)
    assert "cut into 4 bins" in note


def test_propose_variable__heavy_value_has_a_bin_of_its_own():
    variable, note = propose([0] * 1000 + list(range(1, 50)), bins=4)
    assert variable.edges == (1.0, 17.0, 33.0)
    assert variable.values == (0.0, 8.5, 24.5, 41.0)
    assert "a bin of its own for 0, which a large share" in note


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
    monkeypatch.setattr(level_census, "MAX_TRACKED", 3)
    census = LevelCensus()
    census.add(pa.array(["a", "b", "c", "d", "a"]))
    assert census.overflowed
    assert census.counts == {"a": 2, "b": 1, "c": 1}
    assert (census.uncounted, census.rows_before, census.n_rows) == (1, 4, 5)
    assert propose_variable("v", census).note.startswith("left out: at least 3 distinct texts")


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


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("v", range(100), "which run on from 0 to 99"),
        ("encounter_id", range(0, 100_000, 997), "a name like an identifier's"),
        ("patientNbr", [n // 2 * 31 for n in range(200)], "a name like an identifier's"),
        ("v", [10**7 + n * n * 7 for n in range(60)], "all of 8 digits"),
    ],
)
def test_propose_variable__identifiers_of_numbers(name, values, why):
    variable, note = propose(list(values), name=name)
    assert variable is None
    assert note.startswith("left out: an identifier, ")
    assert why in note


@pytest.mark.parametrize(
    "values",
    [list(range(100)) * 2, [n + 0.5 for n in range(100)], [n * n * 31 for n in range(100)]],
)
def test_propose_variable__numbers_that_are_no_identifiers(values):
    assert propose(values, name="salary")[0].edges is not None


def test_propose_variable__answers_identify_nobody():
    assert propose(list(range(100)), is_answer=True)[0].edges is not None


@pytest.mark.parametrize(
    ("name", "values", "why"),
    [
        ("v", ["01", "02", "11"], "codes with leading zeros"),
        ("home_state", [1, 2, 4], "codes, as 'state' in the name says"),
        (
            "v",
            [1] * 900 + [2] * 20 + [3] * 800 + [4] * 10 + [6] * 700 + [7, 8] * 9 + [9] * 900,
            "counts",
        ),
    ],
)
def test_propose_variable__nominal_numbers(name, values, why):
    variable, note = propose(values, name=name)
    assert (variable.role, variable.values) == ("nominal", None)
    assert why in note
    assert "if they are numbers: --role ordinal" in note


def test_propose_variable__ages_and_counts_are_numbers():
    ages = [20 + n * 7 % 50 // (1 + n % 3) for n in range(3000)]
    assert propose(ages, max_levels=100)[0].role == "ordinal"
    assert propose([n % 5 + n % 7 for n in range(3000)])[0].role == "ordinal"


def test_propose_variable__number_apart_may_be_a_missing_code():
    assert "9 stands apart from the others: a missing code?" in propose([1, 2, 3, 4, 5, 9])[1]
    assert propose([1, 2, 3, 5, 7, 9])[1] == ""
    assert propose([1, 2, 3, 4, 5, 11])[1] == ""


def test_propose_variable__few_rows_for_each_number_are_binned():
    values = [n % 20 for n in range(100)]
    assert propose(values, bins=4)[0].cardinality == 4
    assert propose(values, bins=4, is_scale=True)[0].cardinality == 20
    assert propose(values * 2, bins=4)[0].cardinality == 20


def test_propose_variable__most_frequent_levels_are_kept():
    values = [f"c{n}" for n in range(60) for _ in range(1000 // (n + 1) ** 2 + 1)]
    variable, note = propose(values, max_levels=20)
    assert variable.levels[:3] == ("c0", "c1", "c2")
    assert variable.other == variable.levels[-1] == "other"
    codes = variable.encode_column(pa.array([*values, "new", None]))
    counts = [int((codes == code).sum()) for code in range(variable.cardinality)]
    assert min(counts[:-1]) >= 5
    assert sum(counts[:-1]) >= 0.9 * len(values)
    assert (codes[-2], codes[-1]) == (variable.cardinality - 1, -1)
    assert "--other K keeps K" in note
    assert propose(values, wishes=Wishes(other=3))[0].levels == ("c0", "c1", "c2", "other")
    assert propose(values, wishes=Wishes(other=0))[0].cardinality == 60


def test_propose_variable__free_text_is_left_out_unless_it_is_wanted():
    values = [f"text {n // 2}" for n in range(200)]
    variable, note = propose(values)
    assert variable is None
    assert "free text, or an identifier; keep it: pmf schema set" in note
    assert propose(values, wishes=Wishes(other=2))[0].levels == ("text 0", "text 1", "other")
