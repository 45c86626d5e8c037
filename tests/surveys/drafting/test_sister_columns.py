import numpy as np
import pyarrow as pa

from pmflib.schema import ValueCounts
from pmflib.surveys.drafting import propose_variables
from pmflib.surveys.drafting.table_draft import find_sisters

RNG = np.random.default_rng(3)
N = 3000


def count(**columns):
    counts = {name: ValueCounts() for name in columns}
    for name, values in columns.items():
        counts[name].add(pa.array(values))
    return counts


def draft(**columns):
    found = propose_variables(pa.table({name: pa.array(v) for name, v in columns.items()}))
    return {name: each.variable for name, each in found.items()}


def test_find_sisters__names_begin_alike_and_values_are_the_same():
    rating, other = RNG.integers(1, 6, N), RNG.integers(20, 40, N)
    columns = {
        "q1": rating,
        "q2": rating[::-1],
        "q3": other,
        "c1": rating,
        "c2": rating,
        "qx": rating,
    }
    assert find_sisters(count(**columns), {}, ("",)) == [["q1", "q2"]]
    assert find_sisters(count(q1=[0, 1] * 9, q2=[0, 1] * 9), {}, ()) == []


def test_find_sisters__items_of_a_question():
    answers = RNG.choice(["Liked it", "Hated it", "Left early"], N)
    columns = {
        "How was it? - Monday": answers,
        "How was it? - Tuesday": answers[::-1],
        "Where? - Monday": answers,
        "film": answers,
    }
    group = ["How was it? - Monday", "How was it? - Tuesday"]
    assert find_sisters(count(**columns), {}, ("",)) == [group]


def test_propose_variables__sisters_share_codes_and_levels():
    full = RNG.integers(1, 8, N)
    first = np.where(RNG.random(N) < 0.1, 999, RNG.integers(0, 60, N))
    # too few to be found out alone
    second = np.where(RNG.random(N) < 0.002, 999, RNG.integers(0, 60, N))
    found = draft(q1=full, q2=np.minimum(full, 6), drug_1=first, drug_2=second)
    assert found["q1"].levels == found["q2"].levels == tuple("1234567")
    assert found["drug_1"].encode_value("999") == found["drug_2"].encode_value("999") == -1
    assert found["drug_1"].edges == found["drug_2"].edges
    assert (found["q2"].name, found["drug_2"].name) == ("q2", "drug_2")


def test_propose_variables__sisters_have_one_role():
    peaks = np.array([1, 3, 5, 7, 9, 11, 13, 15])
    rare = np.arange(1, 16)
    codes = np.concatenate([RNG.choice(peaks, N), rare])
    flat = np.concatenate([RNG.integers(1, 16, 60), RNG.choice(peaks, N - 60), rare])
    found = draft(factor_1=codes, factor_2=flat)
    assert found["factor_1"].role == found["factor_2"].role == "nominal"


def test_propose_variables__words_astray_are_levels_where_no_code_is_looked_for():
    table = pa.table({"stars": [*map(str, [1, 2, 3, 4, 5] * 60), "five"]})
    assert "five" in propose_variables(table, finds_codes=False)["stars"].variable.levels
    found = propose_variables(table)["stars"]
    assert "five" not in found.variable.levels
