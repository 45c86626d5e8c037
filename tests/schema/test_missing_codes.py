import numpy as np
import pyarrow as pa
import pytest

from pmflib.schema.level_census import LevelCensus
from pmflib.schema.missing_codes import propose_codes

N = 2000
RNG = np.random.default_rng(5)


def propose(**columns):
    censuses = {}
    for name, values in columns.items():
        censuses[name] = LevelCensus()
        censuses[name].add(pa.array([str(value) for value in values]))
    found = propose_codes(censuses, ("", "NA"))
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
