import numpy as np
import pyarrow as pa
import pytest

from pmflib.schema import ValueCounts
from pmflib.surveys.drafting import propose_codes
from pmflib.surveys.drafting.inference import propose_variable

N = 2000
RNG = np.random.default_rng(5)


def propose(**columns):
    column_counts = {}
    for name, values in columns.items():
        column_counts[name] = ValueCounts()
        column_counts[name].add(pa.array([str(value) for value in values]))
    found = propose_codes(column_counts, ("", "NA"))
    return {name: [each.text for each in codes] for name, codes in found.items()}


def mix(values, code, share=0.05):
    return np.where(RNG.random(N) < share, str(code), np.asarray(values).astype("U12"))


AGES = RNG.integers(18, 99, N)
SCALE = RNG.integers(1, 6, N)


@pytest.mark.parametrize("code", ["?", "-", ".", "Unknown", "N.A.", "k.A.", "no data", "inconnu"])
def test_propose_codes__words(code):
    assert propose(a=mix(RNG.choice(["x", "y"], N), code)) == {"a": [code]}
    assert propose(a=mix(AGES, code)) == {"a": [code]}


@pytest.mark.parametrize(
    ("values", "code"),
    [(AGES, 999), (AGES, -9), (RNG.integers(1990, 2020, N), 9999), (RNG.integers(18, 80, N), 99)],
)
def test_propose_codes__numbers_far_outside(values, code):
    assert propose(a=mix(values, code)) == {"a": [str(code)]}


def test_propose_codes__several_on_both_sides():
    values = mix(mix(mix(AGES, 998), 999), -1)
    assert sorted(propose(a=values)["a"]) == ["-1", "998", "999"]


def test_propose_codes__plausible_numbers_are_data():
    assert propose(age=RNG.integers(18, 100, N)) == {}
    assert propose(count=np.minimum(RNG.poisson(3, N) * RNG.poisson(12, N), 99)) == {}
    assert propose(mood=RNG.integers(-1, 2, N), celsius=RNG.integers(-20, 30, N)) == {}
    assert propose(scale=RNG.integers(1, 10, N), digit=RNG.integers(0, 10, N)) == {}
    assert propose(one=mix(SCALE, 9)) == {}
    assert propose(sign=RNG.choice(["+", "-"], N), alone=mix(["a"] * N, "unknown")) == {}
    assert propose(alone=mix(["a"] * N, "?")) == {"alone": ["?"]}


def test_propose_codes__numbers_that_columns_share():
    columns = {f"q{j}": mix(mix(SCALE, 9, 0.02), 8, 0.02) for j in range(4)}
    found = propose(**columns, nines=RNG.integers(1, 10, N))
    assert found == {name: ["8", "9"] for name in columns}


def test_propose_codes__gaps_of_sparse_columns_are_chance():
    sparse = {f"m{j}": [1, 2, 2, 9, 9, 9] for j in range(9)}
    dense = {f"d{j}": RNG.integers(1, 10, N) for j in range(12)}
    assert propose(**sparse, **dense) == {}
    assert propose(few=[10, 20, 20, 30, 40] * 4 + [99] * 9) == {}
    # apart in some columns, but a value like others in more
    apart = {f"a{j}": mix(SCALE, 9) for j in range(5)}
    assert propose(**apart, **dense) == {}


def test_propose_codes__refusals_that_columns_share():
    colours = mix(RNG.choice(["red", "blue"], N), "None of these")
    assert propose(a=colours) == {}
    sizes = mix(RNG.choice(["big", "small"], N), "none of these")
    assert propose(a=colours, b=sizes) == {"a": ["None of these"], "b": ["none of these"]}


def test_propose_codes__a_word_alone_among_numbers():
    assert propose(days=mix(AGES, "never")) == {"days": ["never"]}
    assert propose(top=mix(AGES, "100+"), few=mix(SCALE, "many")) == {}


def test_propose_codes__a_code_of_one_column_is_one_where_few_others_stand_above_it():
    wide, few = RNG.integers(0, 5, N), RNG.integers(0, 3, N)
    assert propose(a=mix(wide, -1), b=mix(few, -1)) == {"a": ["-1"], "b": ["-1"]}
    assert propose(b=mix(few, -1)) == {}
    assert propose(a=mix(wide, -1), vote=RNG.integers(-1, 2, N)) == {"a": ["-1"]}
    assert propose(a=mix(wide, -1), b=mix([0, 1] * (N // 2), -1), c=mix([0, 1] * (N // 2), -1)) == {
        "a": ["-1"],
        "b": ["-1"],
        "c": ["-1"],
    }


def test_propose_codes__a_heap_behind_a_hole_closes_the_row_of_ages():
    ages = np.concatenate([np.arange(18, 98), RNG.integers(18, 60, N)])
    heap = np.concatenate([ages, np.full(100, 99)])
    assert propose(age=heap) == {"age": ["99"]}
    assert propose(age=np.concatenate([heap, [98]])) == {}
    assert propose(age=np.concatenate([ages, [99] * 3])) == {}


def test_propose_codes__a_number_between_codes_is_one():
    drugs = np.concatenate([RNG.integers(0, 700, N), [997] * 90, [999] * 300, [998] * 5])
    assert sorted(propose(drug=drugs)["drug"]) == ["997", "998", "999"]


def test_propose_codes__words_astray_hide_no_code():
    ages = np.concatenate([mix(AGES, 999), ["old", "young", "ancient"]])
    assert propose(age=ages) == {"age": ["999"]}


@pytest.mark.parametrize(
    "word", ["Prefer not to answer", "Don't know", "I don't know", "Refused", "Can't choose"]
)
@pytest.mark.parametrize(
    "levels",
    [
        ("18 - 29", "30 - 44", "45+"),
        ("Disagree", "Neutral", "Agree"),
        ("1", "2", "3", "4", "5"),
    ],
)
def test_a_refusal_beside_an_order_is_missing_unless_declared_a_level(word, levels):
    counts = ValueCounts()
    counts.add(pa.array([*levels, word] * 20))
    codes = propose_codes({"x": counts}, ("",))["x"]
    assert [code.text for code in codes] == [word]
    assert "a refusal beside" in codes[0].evidence
    drafted = propose_variable("x", counts, missing=("",), codes=codes)
    assert drafted.role == "ordinal"
    assert drafted.variable.levels == levels
    # without the code, it is a level
    assert word in propose_variable("x", counts, missing=("",)).variable.levels


@pytest.mark.parametrize("levels", [("Yes", "No"), ("Baked", "Fried", "Roasted")])
def test_a_refusal_beside_names_is_a_level(levels):
    counts = ValueCounts()
    counts.add(pa.array([*levels, "I don't know"] * 20))
    assert propose_codes({"x": counts}, ("",)) == {}
