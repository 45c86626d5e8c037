"""Recommendations are the candidates with the highest predicted values, given the other answers of a sample."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pmflib as pmf
from pmflib.apps.recommending import Recommendations, Recommender
from pmflib.apps.recommending.kernels.recommending import select_best
from pmflib.base import QuestionError, SchemaError

N_ITEMS, N_LEVELS = 6, 3


def make_schema(**fields):
    return pmf.Schema(
        tuple(
            pmf.Variable(f"m{n}", ("1", "2", "3"), (1.0, 2.0, 3.0), **fields)
            for n in range(N_ITEMS)
        )
    )


def make_model(schema=None, rank=3, seed=0):
    rng = np.random.default_rng(seed)
    factors = rng.dirichlet(np.ones(N_LEVELS), (N_ITEMS, rank)).transpose(0, 2, 1)
    factors = factors.reshape(N_ITEMS * N_LEVELS, rank)
    return pmf.JointPMF(rng.dirichlet(np.ones(rank)), factors, schema or make_schema())


def draw_codes(n_rows=40, seed=1, least=-1):
    codes = pmf.Codes(np.random.default_rng(seed).integers(least, N_LEVELS, (n_rows, N_ITEMS)))
    codes[0] = least
    return codes.astype(np.int8)


def value_slowly(model, codes, levels):
    """Sum of numbers by level times the PMF of each item, given the others."""
    names = model.schema.names
    return np.stack([model.predict_proba(codes, name) @ levels for name in names], axis=1)


def list_items(table, row):
    mine = np.flatnonzero(table["row"].to_numpy() == row)
    return [table["item"][int(each)].as_py() for each in mine]


def rank_slowly(values, seen, top):
    order = [n for n in np.argsort(-values, kind="stable") if not seen[n]]
    return [f"m{n}" for n in order[:top]]


@pytest.mark.parametrize(
    ("value", "levels"),
    [("E(item)", [1, 2, 3]), ("P(item>=2)", [0, 1, 1]), ("P(item=1)", [1, 0, 0])],
)
@pytest.mark.parametrize("exclude", ["seen", "none"])
def test_recommend__is_the_sorted_prediction(value, levels, exclude):
    model, codes = make_model(), draw_codes()
    found = pmf.apps.recommend(model, codes, top=4, value=value, exclude=exclude)
    slow = value_slowly(model, codes, np.array(levels, float))
    seen = codes >= 0 if exclude == "seen" else np.zeros(codes.shape, bool)
    for row in range(len(codes)):
        assert list_items(found, row) == rank_slowly(slow[row], seen[row], 4)
    positions = [int(name[1:]) for name in found["item"].to_pylist()]
    expected = slow[found["row"].to_numpy(), positions]
    assert found["value"].to_numpy() == pytest.approx(expected, rel=1e-12)
    counted = np.minimum(4, (~seen).sum(axis=1))
    assert np.bincount(found["row"].to_numpy(), minlength=len(codes)).tolist() == counted.tolist()
    ranks = [rank for n in counted for rank in range(1, n + 1)]
    assert found["rank"].to_pylist() == ranks
    assert found["answers"].to_pylist() == (codes >= 0).sum(axis=1)[found["row"]].tolist()
    assert found["ratings"].to_pylist() == [int((codes[:, n] >= 0).sum()) for n in positions]


@pytest.mark.parametrize("family", ["forest", "traits"])
def test_recommend__families_go_through_their_own_predictions(family):
    codes = draw_codes(400)
    if family == "forest":
        model = pmf.fit_em(codes, make_model(), dependence="tree").model
    else:
        model = pmf.families.fit_traits(
            codes, make_schema(), dimensions=1, n_states=4, shrinkage=1.0, passes=2
        ).model
    few = codes[:12]
    found = pmf.apps.recommend(model, few, top=N_ITEMS, exclude="none")
    slow = value_slowly(model, few, np.array([1.0, 2.0, 3.0]))
    positions = [int(name[1:]) for name in found["item"].to_pylist()]
    expected = slow[found["row"].to_numpy(), positions]
    assert found["value"].to_numpy() == pytest.approx(expected, rel=1e-9)
    assert found.num_rows == few.size
    unseen = pmf.apps.recommend(model, few, top=N_ITEMS)
    kept = [
        few[row, int(name[1:])] < 0
        for row, name in zip(found["row"].to_pylist(), found["item"].to_pylist(), strict=True)
    ]
    assert unseen.select(["row", "item", "value"]) == found.filter(pa.array(kept)).select(
        ["row", "item", "value"]
    )


def test_recommend__an_absent_answer_is_not_seen_and_does_not_count_as_a_value():
    model, codes = make_model(make_schema(absent="1")), draw_codes(least=0)
    found = pmf.apps.recommend(model, codes, top=N_ITEMS, value="P(item>=2)")
    slow = value_slowly(model, codes, np.array([0.0, 1.0, 1.0]))
    for row in range(len(codes)):
        assert list_items(found, row) == rank_slowly(slow[row], codes[row] > 0, N_ITEMS)
    positions = [int(name[1:]) for name in found["item"].to_pylist()]
    assert found["value"].to_numpy() == pytest.approx(slow[found["row"].to_numpy(), positions])
    assert found["answers"].to_pylist() == (codes > 0).sum(axis=1)[found["row"]].tolist()
    # the mean of those who answer
    rated = pmf.apps.recommend(model, codes, top=N_ITEMS)
    weighed = value_slowly(model, codes, np.array([0.0, 2.0, 3.0])) / slow
    positions = [int(name[1:]) for name in rated["item"].to_pylist()]
    assert rated["value"].to_numpy() == pytest.approx(weighed[rated["row"].to_numpy(), positions])


def test_recommend__one_state_one_item_one_row():
    schema = pmf.Schema((pmf.Variable("m0", ("1", "2"), (1.0, 2.0)),))
    model = pmf.JointPMF(np.ones(1), np.array([[0.25], [0.75]]), schema)
    found = pmf.apps.recommend(model, pmf.Codes([[-1]]), top=20).to_pylist()
    assert found == [{"row": 0, "rank": 1, "item": "m0", "value": 1.75, "ratings": 0, "answers": 0}]
    nothing = pmf.apps.recommend(model, pmf.Codes([[1]]))
    assert nothing.num_rows == 0
    assert nothing.column_names == ["row", "rank", "item", "value", "ratings", "answers"]
    assert pmf.apps.recommend(model, np.empty((0, 1), np.int8)).num_rows == 0


def test_recommend__samples_without_answers_get_the_marginals():
    model = make_model()
    found = pmf.apps.recommend(model, {"m4": [None, "3"]}, top=N_ITEMS)
    means = [model.marginal([n]) @ [1, 2, 3] for n in range(N_ITEMS)]
    assert list_items(found, 0) == [f"m{n}" for n in np.argsort(-np.array(means))]
    assert "m4" not in list_items(found, 1)


def test_recommend__limits():
    model, codes = make_model(), draw_codes()
    codes[:, 0] = -1
    codes[1, 0] = 2
    chosen = {*pmf.apps.recommend(model, codes, at_least=2)["item"].to_pylist()}
    assert chosen == {"m1", "m2", "m3", "m4", "m5"}
    ratings = {"m0": 100, "m1": 10}
    assert {
        *pmf.apps.recommend(model, codes, at_least=10, ratings=ratings)["item"].to_pylist()
    } == {
        "m0",
        "m1",
    }
    left = pmf.apps.recommend(model, codes, exclude=["m2"], items=["m1", "m2", "m3"])
    assert {*left["item"].to_pylist()} == {"m1", "m3"}
    # a tenfold number of ratings costs one unit
    penalised = pmf.apps.recommend(
        model, codes, top=1, penalty=5.0, ratings=ratings, exclude="none"
    )
    assert not {*penalised["item"].to_pylist()} & {"m0", "m1"}
    groups = {"m0": "a", "m1": "a", "m2": "a", "m3": "b", "m4": "b"}
    found = pmf.apps.recommend(model, codes, exclude="none", groups=groups, most_per_group=1)
    free = pmf.apps.recommend(model, codes, exclude="none", top=N_ITEMS)
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


def test_recommender__values_do_not_depend_on_the_batch():
    model, codes = make_model(rank=5), draw_codes(300)
    whole = Recommender(model).score(codes)[0]
    parts = [Recommender(model).score(codes[n : n + 7])[0] for n in range(0, 300, 7)]
    assert pa.concat_tables(parts).combine_chunks().unify_dictionaries() == whole.combine_chunks()


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
        ({"ratings": {"m9": 1}}, SchemaError, "m9"),
        ({"groups": {"m9": "a"}, "most_per_group": 1}, SchemaError, "m9"),
        ({"most_per_group": 1}, pmf.PmfError, "groups"),
        ({"penalty": math.nan}, pmf.PmfError, "penalty"),
        ({"at_least": 10**6}, pmf.PmfError, "at_least"),
        ({"value": "E(m1)"}, QuestionError, "item"),
        ({"value": "E(item | m1=2)"}, QuestionError, "item"),
        ({"value": "P(item)"}, QuestionError, "P"),
        ({"value": "H(item)"}, QuestionError, "value"),
        ({"value": "P(item=9)"}, QuestionError, "9"),
    ],
)
def test_recommend__refusals(options, kind, name):
    with pytest.raises(kind, match=name):
        pmf.apps.recommend(make_model(), draw_codes(), **options)


def test_recommend__variable_without_numbers_has_no_expected_value():
    model = make_model()
    first = pmf.Variable("m0", ("a", "b", "c"))
    model = replace(model, schema=pmf.Schema((first, *model.schema.variables[1:])))
    codes = draw_codes()
    with pytest.raises(SchemaError, match="m0"):
        pmf.apps.recommend(model, codes)
    assert "m0" not in pmf.apps.recommend(model, codes, exclude=["m0"])["item"].to_pylist()
    only = pmf.apps.recommend(model, codes, items=["m0"], value="P(item=b)")
    assert {*only["item"].to_pylist()} == {"m0"}
    with pytest.raises(SchemaError, match="color"):
        pmf.apps.recommend(model, {"color": ["red"]})


def test_recommender__ratings_that_limits_need():
    with pytest.raises(pmf.PmfError, match="ratings"):
        Recommender(make_model(), Recommendations(at_least=2))


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
