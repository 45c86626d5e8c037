"""Recommendations are the candidates with the highest predicted values, given the other answers of a sample."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.apps.recommending import Recommendations, Recommender
from pmflib.apps.recommending.kernels.recommending import select_best
from pmflib.base import DenseBlock, QuestionError, SchemaError

N_ITEMS, N_LEVELS = 6, 3


def make_schema(**fields):
    return pmf.Schema(
        tuple(
            pmf.Variable(f"m{n}", ("1", "2", "3"), (1.0, 2.0, 3.0), **fields)
            for n in range(N_ITEMS)
        )
    )


def draw_codes(n_rows=300, seed=1, least=-1):
    rng = np.random.default_rng(seed)
    codes = rng.integers(least, N_LEVELS, (n_rows, N_ITEMS)).astype(np.int8)
    # items 0 and 1 go together, as do 2 and 3
    codes[:, [1, 3]] = np.where(rng.random((n_rows, 2)) < 0.7, codes[:, [0, 2]], codes[:, [1, 3]])
    codes[0] = least
    return pmf.Codes(codes)


def recommend(samples, codes=None, schema=None, **options):
    given_codes = draw_codes() if codes is None else codes
    return pmf.apps.recommend(given_codes, samples, schema=schema or make_schema(), **options)


def regress_slowly(worths, rows, ridge):
    """Ridge regression of the worth of each item on those of the others; means for rows without any."""
    found = np.empty(rows.shape)
    for item in range(worths.shape[1]):
        inputs = np.delete(worths, item, axis=1)
        gram = inputs.T @ inputs + ridge * np.eye(inputs.shape[1])
        found[:, item] = np.delete(rows, item, axis=1) @ np.linalg.solve(
            gram, inputs.T @ worths[:, item]
        )
    found[~rows.any(axis=1)] = worths.mean(axis=0)
    return found


def list_items(table, row):
    mine = np.flatnonzero(table["row"].to_numpy() == row)
    return [table["item"][int(each)].as_py() for each in mine]


@pytest.mark.parametrize(
    ("value", "by_code"), [("auto", [1, 1, 2]), ("P(item>=2)", [0, 1, 1]), ("P(item=1)", [1, 0, 0])]
)
@pytest.mark.parametrize("exclude", ["seen", "none"])
def test_recommend__is_the_sorted_prediction(value, by_code, exclude):
    codes = draw_codes()
    # a third of answers are 3, and two thirds are 2 or more: 3 is nearer to half
    codes[:40][codes[:40] == 1] = 2
    worths = np.where(codes >= 0, np.array(by_code)[codes], 0)
    block = DenseBlock(codes).to_sparse(make_schema().offsets)
    options = Recommendations(value=value)
    ridge = Recommender(block, make_schema(), options).facts["ridge"]
    found = recommend(None, codes, top=4, value=value, exclude=exclude)
    slow = regress_slowly(worths, worths, ridge)
    seen = codes >= 0 if exclude == "seen" else np.zeros(codes.shape, bool)
    rows = found["row"].to_numpy()
    positions = np.array([int(name[1:]) for name in found["item"].to_pylist()])
    np.testing.assert_allclose(found["value"].to_numpy(), slow[rows, positions], atol=1e-5)
    assert (
        np.bincount(rows, minlength=len(codes)).tolist() == np.minimum(4, (~seen).sum(1)).tolist()
    )
    assert not seen[rows, positions].any()
    for row in range(len(codes)):
        mine = slow[row, positions[rows == row]]
        assert (np.diff(mine) <= 1e-5).all()
        left = np.setdiff1d(np.flatnonzero(~seen[row]), positions[rows == row])
        assert not left.size or slow[row, left].max() <= mine.min() + 1e-5
        assert found["rank"].to_numpy()[rows == row].tolist() == [*range(1, mine.size + 1)]
    assert found["answers"].to_pylist() == (codes >= 0).sum(axis=1)[rows].tolist()
    assert found["ratings"].to_pylist() == [int((codes[:, n] >= 0).sum()) for n in positions]


def test_recommend__a_log_of_three_columns_is_codes_of_a_schema():
    codes = draw_codes()
    codes = codes[(codes >= 0).any(axis=1)]
    users, items = np.nonzero(codes >= 0)
    log = pd.DataFrame(
        {"user": [f"u{n:03}" for n in users], "film": items, "stars": codes[users, items] + 1}
    )
    shuffled = log.sample(frac=1.0, random_state=0)
    found = pmf.apps.recommend(shuffled, top=3, labels={"0": "Alien"})
    expected = recommend(None, codes, top=3)
    assert found["sample"].to_pylist() == [f"u{n:03}" for n in expected["row"].to_pylist()]
    assert [f"m{name}" for name in found["item"].to_pylist()] == expected["item"].to_pylist()
    for name in ("rank", "value", "ratings", "answers"):
        assert found[name].to_pylist() == expected[name].to_pylist()
    assert {*zip(found["item"].to_pylist(), found["label"].to_pylist(), strict=True)} == {
        ("0", "Alien"),
        *((str(n), None) for n in range(1, 6)),
    }
    new = pmf.apps.recommend(log, {"u": ["ann"], "i": [0], "r": [3]}, top=1)
    assert new.select(["sample", "item"]).to_pylist() == [{"sample": "ann", "item": "1"}]


def test_recommend__an_absent_answer_is_not_seen_and_is_worth_nothing():
    schema, codes = make_schema(absent="1"), draw_codes(least=0)
    found = recommend(None, codes, schema, top=N_ITEMS)
    n_open = np.bincount(found["row"].to_numpy(), minlength=len(codes))
    np.testing.assert_array_equal(n_open, (codes <= 0).sum(axis=1))
    assert {*found["ratings"].to_pylist()} == {*(codes > 0).sum(axis=0).tolist()}
    # as if it were missing, apart from the number of rated items
    missing = recommend(None, pmf.Codes(np.where(codes == 0, -1, codes)), top=N_ITEMS)
    assert found["value"].equals(missing["value"])
    assert found["answers"].to_pylist() == (codes > 0).sum(axis=1)[found["row"]].tolist()


def test_recommend__one_item_one_row_no_rows():
    schema = pmf.Schema((pmf.Variable("m0", ("1", "2"), (1.0, 2.0)),))
    found = recommend(pmf.Codes([[-1]]), pmf.Codes([[1], [0], [-1]]), schema).to_pylist()
    assert found == [{"row": 0, "rank": 1, "item": "m0", "value": 1.0, "ratings": 2, "answers": 0}]
    nothing = recommend(None, pmf.Codes([[1]]), schema)
    assert nothing.num_rows == 0
    assert nothing.column_names == ["row", "rank", "item", "value", "ratings", "answers"]
    assert recommend(np.empty((0, 1), np.int8), pmf.Codes([[1]]), schema).num_rows == 0
    assert recommend(None, np.empty((0, 1), np.int8), schema).num_rows == 0


def test_recommend__limits():
    codes = draw_codes()
    codes[:, 0] = -1
    codes[1, 0] = 2
    chosen = {*recommend(None, codes, at_least=2)["item"].to_pylist()}
    assert chosen == {"m1", "m2", "m3", "m4", "m5"}
    left = recommend(None, codes, exclude=["m2"], items=["m1", "m2", "m3"])
    assert {*left["item"].to_pylist()} == {"m1", "m3"}
    # a large penalty is the order of the number of ratings
    rare = recommend(pmf.Codes(codes[:1]), codes, top=N_ITEMS, penalty=1000.0)
    assert rare["ratings"].to_pylist() == sorted(rare["ratings"].to_pylist())
    groups = {"m0": "a", "m1": "a", "m2": "a", "m3": "b", "m4": "b"}
    found = recommend(None, codes, exclude="none", groups=groups, most_per_group=1)
    free = recommend(None, codes, exclude="none", top=N_ITEMS)
    for row in range(len(codes)):
        taken, expected = set(), []
        for name in list_items(free, row):
            if groups.get(name, name) not in taken:
                taken.add(groups.get(name, name))
                expected.append(name)
        assert list_items(found, row) == expected


@given(st.data())
def test_select_best__is_the_greedy_choice(data):
    n_items = data.draw(st.integers(1, 12))
    number = st.sampled_from([-math.inf, 0.0, 1.0, 2.0, 3.0])
    values = np.array([data.draw(st.lists(number, min_size=n_items, max_size=n_items))])
    group = st.lists(st.integers(-1, 2), min_size=n_items, max_size=n_items)
    groups = np.array(data.draw(group), np.int32)
    top, most = data.draw(st.integers(1, n_items)), data.draw(st.integers(1, 3))
    items, n_found = np.full((1, top), -9, np.int32), np.empty(1, np.int64)
    select_best(values, groups, most, items, n_found)
    expected, taken = [], {-1: -99, 0: 0, 1: 0, 2: 0}
    for item in np.argsort(-values[0], kind="stable").tolist():
        own = int(groups[item])
        if values[0, item] > -math.inf and taken[own] < most and len(expected) < top:
            taken[own] += 1
            expected.append(item)
    assert items[0, : n_found[0]].tolist() == expected


def test_recommender__same_bits_whatever_the_batch():
    codes, offsets = draw_codes(), make_schema().offsets
    made = Recommender(DenseBlock(codes).to_sparse(offsets), make_schema())
    whole = made.score(codes)[0]
    parts = [made.score(codes[n : n + 7])[0] for n in range(0, 300, 7)]
    assert pa.concat_tables(parts).combine_chunks().unify_dictionaries() == whole.combine_chunks()


def test_recommender__says_how_many_items_have_no_memory(monkeypatch):
    codes = draw_codes(40)
    block = DenseBlock(codes).to_sparse(make_schema().offsets)
    room = 8 * 4**2 + 2 * block.nbytes
    monkeypatch.setattr("pmflib.apps.recommending.recommending.find_memory_limit", lambda: room)
    found = Recommender(block, make_schema())
    assert (found.facts["items_regressed"], found.facts["items_without_memory"]) == (4, 2)
    assert found.score(codes)[0].num_rows == (codes < 0).sum()


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        ({"top": 0}, pmf.PmfError, "top"),
        ({"top": 1.5}, pmf.PmfError, "top"),
        ({"at_least": -1}, pmf.PmfError, "at_least"),
        ({"exclude": "sen"}, pmf.PmfError, "exclude"),
        ({"exclude": ["m9"]}, SchemaError, "m9"),
        ({"items": ["m9"]}, SchemaError, "m9"),
        ({"items": []}, pmf.PmfError, "items"),
        ({"groups": {"m9": "a"}, "most_per_group": 1}, SchemaError, "m9"),
        ({"most_per_group": 1}, pmf.PmfError, "groups"),
        ({"penalty": math.nan}, pmf.PmfError, "penalty"),
        ({"at_least": 10**6}, pmf.PmfError, "at_least"),
        ({"value": "E(item)"}, QuestionError, "auto"),
        ({"value": "P(item=9)"}, QuestionError, "9"),
    ],
)
def test_recommend__refusals(options, kind, name):
    with pytest.raises(kind, match=name):
        recommend(None, **options)


def test_recommend__variable_without_numbers_is_asked_for_by_level():
    schema, codes = make_schema(), draw_codes()
    first = pmf.Variable("m0", ("a", "b", "c"))
    schema = pmf.Schema((first, *schema.variables[1:]))
    with pytest.raises(SchemaError, match="m0"):
        recommend(None, codes, schema)
    assert "m0" not in recommend(None, codes, schema, exclude=["m0"])["item"].to_pylist()
    only = recommend(None, codes, schema, items=["m0"], value="P(item=b)")
    assert {*only["item"].to_pylist()} == {"m0"}
    with pytest.raises(SchemaError, match="color"):
        recommend({"color": ["red"]}, codes, schema)


def test_measure_recommendations():
    found = pa.table(
        {"sample": ["a", "a", "b", "b", "d"], "rank": [1, 2, 1, 2, 1], "item": list("xyxzx")}
    )
    truth = {"sample": ["a", "b", "b", "c"], "item": ["y", "x", "q", "x"]}
    measured = pmf.apps.measure_recommendations(found, truth, 4)
    second = 1 / math.log2(3)
    assert measured == {
        "hit_rate": pytest.approx(2 / 3),
        "recall": pytest.approx((1 + 1 / 2 + 0) / 3),
        "ndcg": pytest.approx((second + 1 / (1 + second)) / 3),
        "coverage": 3 / 4,
        "samples": 3,
    }
    with pytest.raises(SchemaError, match="held_out"):
        pmf.apps.measure_recommendations(found, {"sample": [], "item": []}, 4)
    with pytest.raises(SchemaError, match="rank"):
        pmf.apps.measure_recommendations(found.drop_columns(["rank"]), truth, 4)
