"""How many rows a model counts for beside counts: large for models that are right, small for those that are not."""

import json
from functools import partial

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import (
    NAME,
    EquivalentSamples,
    Evidence,
    count_codes,
    find_equivalent_samples,
    inherit_weight,
    weigh_model,
    weighing,
)
from pmflib.answering.equivalent_samples import (
    DISCOUNT,
    LOGS,
    MIDDLE,
    Comparison,
    PairTable,
    draw_questions,
    find_features,
    find_own_likelihood,
    learn_equivalent_samples,
)
from pmflib.base import PmfError, SchemaError
from pmflib.families.forests import TreePMF
from pmflib.model import ModelOrigin
from tests.stored_samples import write_partition

SIZES = [3, 2, 4, 3, 2]
SCHEMA = pmf.Schema.from_cardinalities(SIZES)


def make_truth(seed=0, rank=3):
    rng = np.random.default_rng(seed)
    factors = np.vstack([rng.dirichlet(np.full(n, 0.5), rank).T for n in SIZES])
    return pmf.JointPMF(np.full(rank, 1 / rank), factors, SCHEMA)


TRUTH = make_truth()
INDEPENDENT = pmf.JointPMF(
    np.ones(1), np.concatenate([TRUTH.marginal([n]) for n in range(5)])[:, None], SCHEMA
)


@pytest.fixture(scope="module")
def codes():
    found = TRUTH.sample(8000, 1)
    found[np.random.default_rng(1).random(found.shape) < 0.1] = -1
    return found


def learn(model, codes, seed=0):
    seen, unseen = codes[:6000], codes[6000:]
    return learn_equivalent_samples(
        model,
        unseen,
        lambda requests: count_codes(seen, SCHEMA, requests),
        lambda requests: count_codes(unseen, SCHEMA, requests),
        len(seen),
        seed,
    )


def test_learn__a_right_model_is_worth_many_rows_and_a_wrong_one_few(codes):
    right, wrong = learn(TRUTH, codes), learn(INDEPENDENT, codes)
    for found in (right, wrong):
        assert found.n_fitted == 6000
        assert found.n_unseen == 2000
        assert 400 < found.n_questions <= 1600
        assert str(found).endswith(f"{found.n_questions:,} questions to 2,000 unseen rows)")
    rows = []
    for model, law in ((TRUTH, right), (INDEPENDENT, wrong)):
        weighed = pmf.JointPMF(
            model.prior, model.factors, SCHEMA, ModelOrigin.of({NAME: law.to_json()})
        )
        asked = [weighed.ask(f"P(v0 | v1={n}, v2={k})", codes) for n in (0, 1) for k in range(4)]
        rows.append(np.median([each.equivalent_samples[0] for each in asked]))
    assert rows[0] > 1000
    assert rows[1] < 100


def test_learn__the_counts_of_an_answer_say_how_wrong_the_model_is_there():
    """A law of no features at all: the same model is worth less where counts contradict it."""
    chances = np.array([0.5, 0.3, 0.2])
    law = EquivalentSamples((5.0,) * 4 + (0.0,) * 4, (2.0, 2.0), (1.0, 1.0))
    near, far = (
        law.weigh(Comparison(1, chances, np.array(counts)))
        for counts in ([500, 300, 200], [300, 300, 400])
    )
    assert far.rows < 20 < 150 < near.rows
    # of the mean, the second and the third are as far
    values = np.array([0.0, 1.0, 2.0])
    mean, other = (
        law.weigh(Comparison(1, chances, np.array(counts), values=values))
        for counts in ([500, 300, 200], [550, 200, 250])
    )
    assert mean.rows == pytest.approx(other.rows, rel=0.3)
    assert law.weigh(Comparison(1, chances, np.array([550, 200, 250]))).rows < other.rows / 2


def test_learn__features_say_where_a_model_is_wrong(codes):
    """Of a model that is right but for one variable, questions about that are weighed less."""
    factors = TRUTH.factors.copy()
    rows = SCHEMA.rows_of(2)
    factors[rows] = np.roll(factors[rows], 1, axis=1)
    model = pmf.JointPMF(TRUTH.prior, factors, SCHEMA)
    weighed = weigh_model(model, codes[:6000], codes[6000:])
    right = weighed.ask("P(v0 | v3=1)", codes).equivalent_samples[0]
    wrong = weighed.ask("P(v0 | v2=1)", codes).equivalent_samples[0]
    assert wrong < right / 3


def test_learn__is_the_same_again(codes):
    assert learn(TRUTH, codes) == learn(TRUTH, codes)
    assert learn(TRUTH, codes, seed=1) != learn(TRUTH, codes)


def test_learn__without_rows_or_values_it_is_assumed(codes):
    for unseen in (codes[:0], np.full((20, 5), -1, np.int8)):
        found = learn_equivalent_samples(
            TRUTH,
            unseen,
            partial(count_codes, codes, SCHEMA),
            partial(count_codes, unseen, SCHEMA),
            8000,
        )
        assert found == EquivalentSamples()
        assert weigh_model(TRUTH, codes, unseen) is TRUTH
    assert find_equivalent_samples({}) == EquivalentSamples()


def test_learn__what_the_model_rules_out_is_passed_over(codes):
    factors = TRUTH.factors.copy()
    rows = SCHEMA.rows_of(0)
    factors[rows] = np.array([[1.0], [0.0], [0.0]])
    model = pmf.JointPMF(TRUTH.prior, factors, SCHEMA)
    found = learn(model, codes)
    assert 0 < found.n_questions < learn(TRUTH, codes).n_questions
    assert np.isfinite([*found.coefficients, *found.spreads, *found.trusts]).all()


def test_draw_questions__conditions_are_met_by_rows(codes):
    asked = draw_questions(codes[:50], 3)
    assert len(asked) == len(set(asked))
    assert {len(each.positions) for each in asked} == {1, 2, 3, 4}
    assert {len(each.targets) for each in asked} == {1, 2}
    for each in asked:
        kept = np.ones(50, bool)
        for n, levels in each.given:
            kept &= np.isin(codes[:50, n], levels)
        assert (codes[:50][kept][:, list(each.targets)] >= 0).all(axis=1).any()
    assert draw_questions(codes[:0], 3) == []
    assert all(len(each.positions) < 3 for each in draw_questions(codes[:, :2], 0))


def test_find_features__of_counts_that_are_drawn_with_m_rows():
    rng = np.random.default_rng(0)
    chances = np.full(20, 0.05)
    found = []
    for _ in range(200):
        counts = rng.multinomial(5000, rng.dirichlet(100 * chances))
        pair = PairTable(counts[:, None], chances[:, None], ())
        found.append(find_features(Comparison(2, chances, counts, [pair]))[1] + MIDDLE)
    assert np.mean(found) == pytest.approx(np.log(100), abs=0.1)
    assert (find_features(Comparison(1, chances, None)) == 0).all()


def test_weigh__posterior_of_m_is_that_of_drawn_counts():
    """Counts of a Dirichlet with m rows: the law that counts update is about the true m."""
    rng = np.random.default_rng(1)
    chances = np.full(40, 0.025)
    law = EquivalentSamples((4.5,) * 4 + (0.0,) * 4, (3.0, 3.0), (1.0, 1.0))
    for m in (20, 400):
        found = []
        for _ in range(50):
            counts = rng.multinomial(20_000, rng.dirichlet(m * chances))
            found.append(law.weigh(Comparison(1, chances, counts)).rows)
        assert np.median(found) == pytest.approx(m, rel=0.15)


def test_weigh__mean_and_variance_are_those_over_the_values_of_m():
    chances, counts = np.array([0.2, 0.5, 0.3]), np.array([30, 40, 30])
    values = np.array([1.0, 2.0, 5.0])
    law = EquivalentSamples((4.0,) * 4 + (0.0,) * 4, (1.5, 1.0), (0.8, 0.6))
    for given in (None, values):
        question = Comparison(1, chances, counts, values=given)
        centre = (LOGS - 4.0) / law.spreads[question.kind]
        shares = np.exp(law.trusts[question.kind] * find_own_likelihood(question) - centre**2 / 2)
        shares /= shares.sum()
        tables = [(counts + m * chances) / (100 + m) for m in np.exp(LOGS)]
        mean = shares @ np.array(tables)
        worth = law.weigh(question)
        np.testing.assert_allclose((counts + worth.rows * chances) / (100 + worth.rows), mean)
        rows = 101 + np.exp(LOGS)
        if given is None:
            within = [(t * (1 - t)).sum() / n for t, n in zip(tables, rows, strict=True)]
            between = [((t - mean) ** 2).sum() for t in tables]
            whole = (mean * (1 - mean)).sum()
        else:
            within = [
                (t @ values**2 - (t @ values) ** 2) / n for t, n in zip(tables, rows, strict=True)
            ]
            between = [((t - mean) @ values) ** 2 for t in tables]
            whole = mean @ values**2 - (mean @ values) ** 2
        total = whole / (shares @ (np.array(within) + between)) - 1
        assert worth.total == pytest.approx(max(min(100, total), total / DISCOUNT))


@pytest.mark.parametrize("sparse", [False, True])
def test_weigh_model__of_stored_samples_is_that_of_memory(codes, tmp_path, sparse):
    parts = []
    for name, rows in (("seen", codes[:1500]), ("unseen", codes[1500:2000])):
        blocks = write_partition(
            tmp_path / name, rows, SCHEMA, sparse=sparse, block_rows=100, n_folds=1
        )
        parts.append(pmf.em.StoredSamples(blocks, SCHEMA))
    known = weigh_model(TRUTH, codes[:1500], codes[1500:2000])
    for samples in (parts, (parts[0], codes[1500:2000]), (codes[:1500], parts[1])):
        assert weigh_model(TRUTH, *samples).origin == known.origin
    assert known.origin["equivalent_samples"]["n_unseen"] == 500
    table = SCHEMA.decode(codes[:1500])
    assert weigh_model(TRUTH, table, codes[1500:2000]).origin == known.origin
    assert np.array_equal(known.factors, TRUTH.factors)


def test_weigh_model__of_many_samples_counts_a_part(codes, tmp_path, monkeypatch):
    monkeypatch.setattr(weighing, "COUNTED_ROWS", 300)
    monkeypatch.setattr(weighing, "UNSEEN_ROWS", 200)
    blocks = write_partition(tmp_path, codes[:1500], SCHEMA, block_rows=50, n_folds=1)
    stored = pmf.em.StoredSamples(blocks, SCHEMA)
    weighed = []
    counted = weighing._count_stored

    def watch(samples, requests):
        weighed.append(samples.n_rows)
        return counted(samples, requests)

    monkeypatch.setattr(weighing, "_count_stored", watch)
    found = find_equivalent_samples(weigh_model(TRUTH, stored, stored).origin)
    assert set(weighed) == {300}
    assert found.n_unseen == 200
    # m is bounded by all samples of the fit, not by those that are counted
    assert found.n_fitted == 1500


def test_weigh_model__is_saved_and_loaded(codes, tmp_path):
    weighed = weigh_model(TRUTH, codes[:2000], codes[2000:2500], rng=4)
    weighed.save(tmp_path / "model")
    loaded = pmf.JointPMF.load(tmp_path / "model")
    assert find_equivalent_samples(loaded.origin) == find_equivalent_samples(weighed.origin)
    question = "P(v0 | v1=1, v2=0)"
    one, other = (each.ask(question, codes) for each in (weighed, loaded))
    assert np.array_equal(one.intervals, other.intervals)
    assert one.equivalent_samples == other.equivalent_samples
    assert one.equivalent_samples != TRUTH.ask(question, codes).equivalent_samples
    assumed = EquivalentSamples()
    text = json.dumps(assumed.to_json(), allow_nan=False)
    assert EquivalentSamples.from_json(json.loads(text)) == assumed


def test_weigh_model__refuses_samples_of_another_schema(codes):
    with pytest.raises(SchemaError):
        weigh_model(TRUTH, codes, codes[:, :3])
    with pytest.raises(SchemaError):
        weigh_model(TRUTH, codes[:, :3], codes)


def test_weigh_model__of_trees_keeps_their_forest(codes):
    tree = pmf.fit_em(codes[:1500], rank=1, schema=SCHEMA, dependence="tree").model
    found = weigh_model(tree, codes[:1500], codes[1500:2000])
    assert isinstance(tree, TreePMF)
    assert isinstance(found, TreePMF)
    assert found.ask("P(v0 | v1=1)", codes).equivalent_samples
    assert found.forest is tree.forest


def test_weigh__is_bounded():
    chances = np.array([0.5, 0.5])
    law = EquivalentSamples((-90.0, 99.0, 2.0, 2.0) + (0.0,) * 4, (0.1, 0.1), n_fitted=5.0)
    few, many = (law.weigh(Comparison(n, chances, None)).rows for n in (1, 2))
    assert few == pytest.approx(np.exp(LOGS[0]), rel=0.2)
    assert many <= 50
    # a model of one sample is worth ten rows at most, and one without any is worth the least
    assert EquivalentSamples(n_fitted=1.0).weigh(Comparison(1, chances, None)).rows <= 10


def test_find_equivalent_samples__of_an_earlier_release_are_those_of_other_models():
    assert find_equivalent_samples({NAME: {"intercepts": [1, 2, 3, 4]}}) == EquivalentSamples()


def test_answers__intervals_with_samples_hold_the_truth_where_a_small_model_misses():
    """A rank of one for data of three: intervals of 95 % of ten draws of the data."""
    questions = ["P(v0 | v1=0)", "P(v2 | v3=1)", "P(v3 | v0=0, v1=1)", "MI(v0; v2)"]
    # as sure as if it had the spread of the samples alone
    sure = EquivalentSamples((np.log(2000 * DISCOUNT),) * 4 + (0.0,) * 4, (0.1, 0.1), n_questions=1)
    by_both, by_model = [], []
    for seed in range(10):
        rows = TRUTH.sample(2000, 10 + seed)
        start = pmf.fit(pmf.count_pairs(rows[:1600], SCHEMA), 1).model
        both = weigh_model(start, rows[:1600], rows[1600:])
        alone = pmf.JointPMF(
            start.prior, start.factors, SCHEMA, ModelOrigin.of({NAME: sure.to_json()})
        )
        for question in questions:
            known = TRUTH.ask(question)
            true = dict(zip(known.labels, known.numbers, strict=True))
            for found, inside in (
                (both.ask(question, rows), by_both),
                (alone.ask(question), by_model),
            ):
                for labels, ends in zip(found.labels, found.intervals, strict=True):
                    inside.append(ends[0] <= true[labels] <= ends[1])
    assert len(by_both) == len(by_model) == 110
    assert np.mean(by_both) > 0.8
    assert np.mean(by_model) < 0.4


def test_answers__intervals_of_a_right_model_are_not_too_sure():
    """Questions that share their unseen values are not as many as they look: chance in these is no exactness."""
    inside = []
    asked = [each for each in draw_questions(TRUTH.sample(200, 99), 5) if len(each.targets) == 1]
    for seed in range(3):
        rows = TRUTH.sample(1000, 20 + seed)
        start = pmf.fit(pmf.count_pairs(rows[:800], SCHEMA), 3, rng=seed).model
        fitted = pmf.fit_em(rows[:800], start, max_passes=5000).model
        model = weigh_model(fitted, rows[:800], rows[800:])
        data = Evidence.of(rows, model)
        for request in asked[:: len(asked) // 60]:
            given = ", ".join(f"v{place}={code}" for place, (code,) in request.given)
            question = f"P(v{request.targets[0]}{' | ' * bool(given)}{given})"
            known = TRUTH.ask(question)
            true = dict(zip(known.labels, known.numbers, strict=True))
            found = model.ask(question, data)
            for labels, ends in zip(found.labels, found.intervals, strict=True):
                inside.append(ends[0] <= true[labels] <= ends[1])
    assert len(inside) > 500
    # 78 %; were every question worth all its values, it would be 58 %
    assert np.mean(inside) > 0.7


def test_inherit_weight__all_but_the_limit_which_is_of_the_samples(codes):
    start = weigh_model(TRUTH, codes[:6000], codes[6000:])
    found = find_equivalent_samples(start.origin)
    again = inherit_weight(INDEPENDENT, start, 9000)
    assert again is not None
    assert again.origin[NAME] == {**found.to_json(), "n_fitted": 9000}
    assert (again.prior, again.factors) == (INDEPENDENT.prior, INDEPENDENT.factors)
    # nothing was learnt for a model whose fit left no sample out
    assert inherit_weight(INDEPENDENT, TRUTH, 9000) is None


def test_ask__a_model_fitted_with_weights_refuses_samples_without(codes):
    rows, weight = codes[:800], np.random.default_rng(0).uniform(0.5, 5.0, 800)
    model = pmf.fit_em(rows, schema=SCHEMA, rank=2, weight=weight).model
    with pytest.raises(PmfError, match="design"):
        model.ask("P(v0)", rows)
    found = model.ask("P(v0)", rows, design=pmf.surveys.SurveyDesign(weight))
    held = rows[:, 0] >= 0
    for (label,), counted in zip(found.labels, found.more["counted"], strict=True):
        mine = weight[held & (rows[:, 0] == int(label))].sum() / weight[held].sum()
        assert counted == pytest.approx(mine, abs=1e-5)
    assert model.ask("P(v0)").value
    equal = pmf.fit_em(rows, schema=SCHEMA, rank=2, weight=np.ones(800)).model
    assert equal.ask("P(v0)", rows).support.n_rows == 800


@pytest.mark.parametrize("weight", [None, np.random.default_rng(0).choice([1.0, 3.0], 300)])
def test_fit_em__held_out_rows_say_what_a_stack_is_worth(codes, weight):
    model = pmf.fit_em(codes[:300], schema=SCHEMA, weight=weight).model
    found = find_equivalent_samples(model.origin)
    assert 40 <= found.n_unseen <= 80
    assert 0 < found.n_questions <= 4 * weighing.TRIAL_QUESTIONS
    n_effective = 300 if weight is None else weight.sum() ** 2 / (weight**2).sum()
    assert found.n_fitted == pytest.approx(n_effective, abs=1)
    design = None if weight is None else pmf.surveys.SurveyDesign(weight)
    assert not model.ask("P(v0 | v1=1)", codes[:300], design=design).is_assumed
    # a stack for a target answers nothing else
    trained = pmf.fit_em(codes[:300], schema=SCHEMA, weight=weight, target=0).model
    assert NAME not in trained.origin
