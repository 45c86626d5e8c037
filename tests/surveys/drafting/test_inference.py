import pyarrow as pa
import pytest

from pmflib.base import SchemaError
from pmflib.schema import UNKNOWN, ValueCounts
from pmflib.schema import value_counts as module
from pmflib.surveys.drafting import Wishes, propose_variable
from pmflib.surveys.drafting.missing_codes import CodeProposal


def propose(values, **options):
    value_counts = ValueCounts()
    value_counts.add(values if isinstance(values, pa.Array) else pa.array(values))
    proposal = propose_variable(options.pop("name", "v"), value_counts, **options)
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
    assert "order" in note


def test_propose_variable__booleans_are_texts_and_bands_have_middles():
    assert propose([True, False, None])[0].levels == ("false", "true")
    assert propose(["18_24", "25_34"])[0].values == (21.0, 29.5)


def test_propose_variable__number_among_texts_may_be_a_missing_code():
    variable, note = propose(["a", "b", "-9"])
    assert variable.levels == ("-9", "a", "b")
    assert "'-9'" in note


@pytest.mark.parametrize(
    ("values", "is_asked"),
    [
        (["EU", "NA", "AS", "SA"], True),
        (["EU", None, "AS", "SA"], False),
        (["Europe", "NA", "Asia"], False),
        (["1", "NA", "2"], False),
    ],
)
def test_propose_variable__na_among_codes_is_asked_about(values, is_asked):
    variable, note = propose(values * 20)
    assert ("'NA' is taken for missing" in note) == is_asked
    assert "NA" not in variable.levels


def test_propose_variable__own_missing_texts():
    variable, _ = propose(["a", "?", ""], missing=("?",))
    assert variable.levels == ("", "a")
    assert variable.missing == ("?",)


def test_propose_variable__nothing_seen():
    assert propose(["", None, "NA"])[0] is None
    value_counts = ValueCounts()
    value_counts.add(pa.array(["", "a", "b", "?"]))
    proposal = propose_variable("v", value_counts, codes=[CodeProposal("?", 1, "a word")])
    assert (proposal.share_missing, proposal.variable.levels) == (0.5, ("a", "b"))


def test_propose_variable__identifiers_are_left_out():
    variable, note = propose([f"user {n}" for n in range(33)])
    assert variable is None
    assert "source.sample" in note


def test_propose_variable__continuous_column_is_cut_at_its_quantiles():
    variable, _ = propose(list(range(100)) * 2, bins=4)
    assert variable.edges == (25.0, 50.0, 75.0)
    assert variable.levels == ("[-inf, 25)", "[25, 50)", "[50, 75)", "[75, inf)")
    assert variable.values == (12.0, 37.0, 62.0, 87.0)


def test_propose_variable__heavy_value_has_a_bin_of_its_own():
    variable, _ = propose([0] * 1000 + list(range(1, 50)), bins=4)
    assert variable.edges == (1.0, 17.0, 33.0)
    assert variable.values == (0.0, 8.5, 24.5, 41.0)


@pytest.mark.parametrize("n_values", [33, 34, 40, 1000])
@pytest.mark.parametrize("bins", [2, 8, 31])
def test_propose_variable__no_bin_is_empty(n_values, bins):
    values = [n * n % 97 / 7 + n for n in range(n_values)]
    variable, _ = propose(values, bins=bins)
    codes = variable.encode_column(pa.array(values))
    assert set(codes.tolist()) == set(range(variable.cardinality))


def test_add__overflowing_counts_are_no_category(monkeypatch):
    monkeypatch.setattr(module, "MAX_TRACKED", 3)
    value_counts = ValueCounts()
    value_counts.add(pa.array(["a", "b", "c", "d", "a"]))
    assert value_counts.overflowed
    assert value_counts.counts == {"a": 2, "b": 1, "c": 1}
    assert (value_counts.uncounted, value_counts.rows_before, value_counts.n_rows) == (1, 4, 5)
    assert propose_variable("v", value_counts).variable is None


def test_add__bytes_that_are_no_text_are_passed_over():
    value_counts = ValueCounts()
    value_counts.add(pa.array([b"a", b"\xff", b"a"]))
    assert value_counts.counts == {"a": 2}


def test_add__nested_column_is_refused():
    with pytest.raises(SchemaError, match="list<"):
        ValueCounts().add(pa.array([[1], [2]]))


@pytest.mark.parametrize("value", ["0", "yes"])
def test_propose_variable__one_value_only(value):
    variable, note = propose([value] * 5 + [""])
    assert (variable.levels, note != "") == ((value,), True)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("v", range(100)),
        ("encounter_id", range(0, 100_000, 997)),
        ("patientNbr", [n // 2 * 31 for n in range(200)]),
        ("v", [10**7 + n * n * 7 for n in range(60)]),
    ],
)
def test_propose_variable__identifiers_of_numbers(name, values):
    variable, note = propose(list(values), name=name)
    assert variable is None
    assert "identifier" in note


WEIGHTS = [0.5 + n % 50 / 49.3 for n in range(200)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("W_FSTUWT", [40 * each for each in WEIGHTS]),
        ("fnlwgt", [1000 + n * n for n in range(50)]),
        ("sampleWeight", WEIGHTS),
        ("weight", WEIGHTS),
        ("sample_weight", [each - 0.5 for each in WEIGHTS]),
    ],
)
def test_propose_variable__weights_of_samples_are_left_out_and_named(name, values):
    variable, note = propose(values, name=name)
    assert variable is None
    assert "source.weight" in note
    kept, _ = propose(values, name=name, wishes=Wishes(role="continuous"))
    assert kept.edges is not None


@pytest.mark.parametrize("name", ["w_fstr12", "W_FSTURWT80", "BRR1", "repwt07", "JKW3", "pwgtp2"])
def test_propose_variable__replicate_weights_are_left_out_and_named(name):
    # of half samples half of them are 0, and others are alike
    for values in (WEIGHTS, [0.0, 2.0] * 50):
        variable, note = propose(values, name=name)
        assert variable is None
        assert "source.replicates" in note
    kept, _ = propose(WEIGHTS, name=name, wishes=Wishes(role="continuous"))
    assert kept.edges is not None
    assert propose(["yes", "no"] * 9, name=name)[0] is not None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("weight", [60 + n % 50 / 1.7 for n in range(200)]),
        ("weight", [n % 30 + 1 for n in range(900)]),
        ("sample_weight", [each - 0.7 for each in WEIGHTS]),
        ("height", WEIGHTS),
    ],
)
def test_propose_variable__numbers_that_are_no_weights_of_samples(name, values):
    assert propose(values, name=name)[0] is not None


def test_propose_variable__answers_identify_nobody():
    assert propose(list(range(100)), is_answer=True)[0].edges is not None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("v", ["01", "02", "11"]),
        ("home_state", [1, 2, 4]),
        ("v", [1] * 900 + [2] * 20 + [3] * 800 + [4] * 10 + [6] * 700 + [7, 8] * 9 + [9] * 900),
    ],
)
def test_propose_variable__nominal_numbers(name, values):
    variable, note = propose(values, name=name)
    assert (variable.role, variable.values) == ("nominal", None)
    assert "--role ordinal" in note


def test_propose_variable__ages_and_counts_are_numbers():
    ages = [20 + n * 7 % 50 // (1 + n % 3) for n in range(3000)]
    assert propose(ages, max_levels=100)[0].role == "ordinal"
    assert propose([n % 5 + n % 7 for n in range(3000)])[0].role == "ordinal"


def test_propose_variable__number_apart_may_be_a_missing_code():
    assert "9" in propose([1, 2, 3, 4, 5, 9])[1]
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
    assert "--other" in note
    assert propose(values, wishes=Wishes(other=3))[0].levels == ("c0", "c1", "c2", "other")
    assert propose(values, wishes=Wishes(other=0))[0].cardinality == 60


def test_propose_variable__free_text_is_left_out_unless_it_is_wanted():
    values = [f"text {n // 2}" for n in range(200)]
    variable, note = propose(values)
    assert variable is None
    assert "pmf schema set" in note
    assert propose(values, wishes=Wishes(other=2))[0].levels == ("text 0", "text 1", "other")


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("Other (please specify)", ["bus", "tram", "on foot", "horse", "bus", "bike", "taxi"]),
        ("q7_comments", ["fine", "too long", "good survey", "ok", "thanks"]),
        ("q9", [f"I went to {place} by train" for place in "abcdefghijklmnop"]),
    ],
)
def test_propose_variable__what_people_wrote_themselves_is_no_identifier(name, texts):
    counted = ValueCounts()
    counted.add(pa.array([*texts, *[None] * 200]))
    proposal = propose_variable(name, counted)
    assert proposal.role == "left out"
    assert proposal.note.startswith("left out: free text")
    assert propose_variable(name, counted, wishes=Wishes(is_kept=True)).variable is not None
    # the same answers by many are levels
    often = ValueCounts()
    often.add(pa.array(texts * 20))
    assert propose_variable(name, often).variable is not None


def test_propose_variable__rest_is_no_level_of_the_data():
    values = ["other"] * 60 + [f"c{n}" for n in range(60) for _ in range(1000 // (n + 1) ** 2 + 1)]
    variable, _ = propose(values, max_levels=20)
    assert variable.other == variable.levels[-1] == "all others"
    assert variable.levels.count("other") == 1
    assert variable.encode_value("other") != variable.encode_value("c59")
    for word in ("Other", "All others"):
        variable, _ = propose([*values, *[word] * 40], max_levels=20)
        assert word in variable.levels
        assert variable.other.casefold() not in {text.casefold() for text in values} | {"other"}
    assert propose(values, max_levels=20, missing=("", "all others"))[0].other == "all others 2"


def test_propose_variable__levels_with_enough_values_are_kept_beside_one_that_covers_most():
    values = ["us"] * 9000 + ["mexico"] * 300 + ["cuba"] * 30 + ["laos"] * 29
    values += [f"c{n}" for n in range(40)]
    variable, note = propose(values)
    assert variable.levels == ("cuba", "mexico", "us", "other")
    assert "44 levels" in note


def test_propose_variable__kept_levels_have_a_limit():
    values = [f"c{n}" for n in range(150) for _ in range(40)]
    assert propose(values)[0].cardinality == 101


@pytest.mark.parametrize("name", ["SEX", "patient_gender", "raceCode", "RELIGION"])
@pytest.mark.parametrize("n_levels", [2, 3, 9])
def test_propose_variable__numbers_of_what_people_are_have_no_order(name, n_levels):
    variable, _ = propose([n % n_levels + 1 for n in range(900)], name=name)
    assert (variable.role, variable.cardinality) == ("nominal", n_levels)


def test_propose_variable__words_astray_among_ratings_leave_them_ordinal():
    values = [str(n % 5 + 1) for n in range(2000)] + ["five", "great!"]
    counted = ValueCounts()
    counted.add(pa.array(values))
    proposal = propose_variable("stars", counted)
    assert proposal.variable.values == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert proposal.strays == {"five": 1, "great!": 1}
    assert proposal.variable.encode_value("five") == UNKNOWN
    many, _ = propose(values + ["five"] * 40)
    assert many.role == "nominal"
    assert propose([*values[:2000], "6+"])[0].levels == ("1", "2", "3", "4", "5", "6+")


def test_propose_variable__ordered_categories_without_a_value_stay():
    counted = ValueCounts()
    counted.add(pa.array(["hi", "lo", "?"]))
    counted.declare(["lo", "mid", "hi", "?"], is_ordered=True)
    proposal = propose_variable("v", counted, codes=[CodeProposal("?", 1, "a sign")])
    assert proposal.variable.levels == ("lo", "mid", "hi")
    assert proposal.variable.values == (1.0, 2.0, 3.0)


def test_propose_variable__many_categories_are_chosen_from_as_others_are():
    counted = ValueCounts()
    counted.add(pa.array([f"c{n}" for n in range(40) for _ in range(8 + 60 * (n < 5))]))
    counted.declare([f"c{n}" for n in range(60)], is_ordered=False)
    assert propose_variable("v", counted, max_levels=20).variable.other == "other"


def test_propose_variable__words_among_codes_are_codes():
    values = [str(n % 9 + 250) for n in range(3000)] + ["V57"] * 9
    assert "V57" in propose(values, name="diag_1")[0].levels
    many = [str(n % 9 + 250) for n in range(9000)] + [f"V{n}" for n in range(40)]
    assert propose(many)[0].role == "nominal"
