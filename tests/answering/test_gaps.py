"""Counts standardised for gaps that depend on other answers, against slow sums over rows and drawn truths."""

import numpy as np
import pytest

import pmflib as pmf
from pmflib.answering import Evidence, TableRequest, count_codes, find_causes, standardise

LACKING = np.array([0.05, 0.3, 0.7])


def draw(seed, n=3000, gaps=(1, 2, 3), lacking_cause=0.0):
    """Truth of six variables of three levels, and samples in which some are missing by the level of the first."""
    rng = np.random.default_rng(seed)
    schema = pmf.Schema.from_cardinalities([3] * 6)
    factors = 0.9 * rng.dirichlet(np.full(3, 0.7), (6, 3)).transpose(0, 2, 1) + 0.1 / 3
    truth = pmf.JointPMF(np.full(3, 1 / 3), factors.reshape(18, 3), schema)
    codes = truth.sample(n, rng)
    missing = np.zeros(codes.shape, bool)
    missing[:, list(gaps)] = rng.random((n, len(gaps))) < LACKING[codes[:, :1]]
    missing[:, 0] = rng.random(n) < lacking_cause
    return truth, np.where(missing, -1, codes)


def standardise_rows(codes, targets, given, by):
    """Shares of the targets: a sum over rows, each weighed by the inverse of the share of its stratum."""
    every = [tuple(row) for row in codes[:, list(by)]]
    meets = [all(row[j] in known for j, known in given) for row in codes]
    holds = [all(row[j] >= 0 for j, _ in given) for row in codes]
    table = np.zeros([3] * len(targets))
    for n, row in enumerate(codes):
        if not meets[n] or (row[list(targets)] < 0).any():
            continue
        alike = [m for m, other in enumerate(every) if other == every[n]]
        among = [m for m in alike if meets[m]]
        counted = [m for m in among if (codes[m][list(targets)] >= 0).all()]
        weight = len(among) / len(counted) * len(alike) / sum(holds[m] for m in alike)
        table[tuple(row[list(targets)])] += weight
    return table / table.sum()


def count(codes, schema):
    return lambda requests: count_codes(codes, schema, requests)


@pytest.mark.parametrize(
    ("targets", "given", "by"),
    [
        ((1,), (), (0,)),
        ((1,), (), (0, 4)),
        ((1, 2), (), (0,)),
        ((1, 0), (), (0,)),
        ((3,), ((1, (0, 1)),), (0,)),
        ((3, 0), ((1, (2,)),), (0, 5)),
    ],
)
def test_standardise__equals_weights_of_rows(targets, given, by):
    truth, codes = draw(0, 600, lacking_cause=0.2)
    # small strata are merged
    codes = np.vstack([codes, codes])
    causes = {position: dict.fromkeys(by, 1.0) for position in range(6)}
    request = TableRequest(targets, given)
    (found,) = standardise(count(codes, truth.schema), truth.schema, [request], causes)
    assert found.by == by
    shares = found.counts / found.counts.sum()
    np.testing.assert_allclose(shares, standardise_rows(codes, targets, given, by), atol=1e-12)
    n = count_codes(codes, truth.schema, [request])[0].sum()
    assert 0 < found.counts.sum() <= n * (1 + 1e-12)


def test_standardise__one_stratum_leaves_counts_as_they_are():
    truth, codes = draw(1, 300)
    codes[:, 4] = 0
    request = TableRequest((1,))
    (found,) = standardise(count(codes, truth.schema), truth.schema, [request], {1: {4: 1.0}})
    np.testing.assert_allclose(found.counts, count_codes(codes, truth.schema, [request])[0])


def test_standardise__a_question_that_was_not_put_to_some():
    truth, codes = draw(10, 4000, gaps=())
    asked = codes[:, 0] < 2
    codes[~asked, 1] = -1
    shares = np.bincount(codes[asked, 1], minlength=3) / asked.sum()
    # three answer by mistake
    codes[np.flatnonzero(~asked)[:3], 1] = 2
    request = TableRequest((1,))
    (found,) = standardise(count(codes, truth.schema), truth.schema, [request], {1: {0: 1.0}})
    assert found.by == (0,)
    np.testing.assert_allclose(found.counts / found.counts.sum(), shares, atol=3 / asked.sum())
    assert found.counts.sum() > 0.99 * asked.sum()


def test_find_causes__names_what_gaps_depend_on_first():
    truth, codes = draw(2)
    found = find_causes(count(codes, truth.schema), truth.schema, len(codes), range(6))
    assert sorted(found) == [1, 2, 3]
    assert all(max(each, key=each.get) == 0 for each in found.values())


def test_find_causes__none_where_gaps_are_at_random_or_absent():
    truth, codes = draw(3, gaps=())
    assert find_causes(count(codes, truth.schema), truth.schema, len(codes), range(6)) == {}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        hidden = np.where(rng.random(codes.shape) < 0.3, -1, codes)
        found = find_causes(count(hidden, truth.schema), truth.schema, len(codes), range(6))
        assert not any(found.values()), seed


@pytest.mark.parametrize("rank", [3, 1])
def test_ask__holds_where_answers_are_missing_by_another(rank):
    inside, errors = [], []
    for seed in range(12):
        truth, codes = draw([7, seed])
        model = pmf.fit_em(codes, schema=truth.schema, rank=rank).model
        for text in ("P(v1)", "P(v2 | v4=0)", "P(v3 | v1=1)"):
            answer = model.ask(text, codes)
            known = dict(model_known(text))
            true = truth.condition_codes(known)[0].marginal((int(text[3]),))
            order = [int(label[0]) for label in answer.labels]
            low, high = answer.intervals.T
            inside += ((low <= true[order]) & (true[order] <= high)).tolist()
            moved = np.stack([answer.numbers, answer.more["counted"]]) - true[order]
            errors.append(np.square(moved).mean(axis=1))
    answered, counted = np.mean(errors, axis=0)
    assert answered < counted / 2
    assert np.mean(inside) > 0.9


def model_known(text):
    """Conditions of a question as codes."""
    _, _, given = text[:-1].partition(" | ")
    return [(int(given[1]), (int(given[3]),))] if given else []


def test_ask__says_how_far_a_share_moves():
    truth, codes = draw(4)
    model = pmf.fit_em(codes, schema=truth.schema, rank=3).model
    (said,) = [each for each in model.ask("P(v1 | v4=0)", codes).warnings if "standardised" in each]
    assert "'v0'" in said
    assert not model.ask("P(v5)", codes).warnings


def test_ask__counts_of_pairs_are_standardised_where_pairs_suffice():
    truth, codes = draw(5)
    model = pmf.fit_em(codes, schema=truth.schema, rank=3).model
    pairs = pmf.count_pairs(codes, truth.schema)
    (counts,) = Evidence.of(pairs, model).standardise([TableRequest((1,))])
    assert counts.by == (0,)
    by_rows = standardise(
        count(codes, truth.schema), truth.schema, [TableRequest((1,))], {1: {0: 1.0}}
    )
    np.testing.assert_allclose(counts.counts, by_rows[0].counts)
    (counts,) = Evidence.of(pairs, model).standardise([TableRequest((1, 2))])
    assert counts.by == ()


def test_ask__counts_of_effective_samples_stay_as_they_are():
    truth, codes = draw(6)
    model = pmf.fit_em(codes, schema=truth.schema, rank=3).model
    design = pmf.surveys.SurveyDesign(np.random.default_rng(0).uniform(0.5, 2, len(codes)))
    (counts,) = Evidence.of(codes, model, design).standardise([TableRequest((1,))])
    assert counts.by == ()


def test_ask__shift_moves_the_samples_that_lack_the_target():
    truth, codes = draw(8)
    model = pmf.fit_em(codes, schema=truth.schema, rank=3).model
    answer = model.ask("P(v1 | v0=2)", codes, shift=0.1)
    among = codes[codes[:, 0] == 2]
    lacking = (among[:, 1] < 0).mean()
    low, high = np.array([answer.more["lowest"], answer.more["highest"]])
    np.testing.assert_allclose(low, np.maximum(answer.numbers - 0.1 * lacking, 0))
    np.testing.assert_allclose(high, np.minimum(answer.numbers + 0.1 * lacking, 1))
    mean = model.ask("E(v1 | v0=2)", codes, shift=0.1)
    np.testing.assert_allclose(mean.more["highest"], mean.numbers + 0.1 * lacking * 2)
    full = model.ask("P(v5)", codes, shift=0.5)
    np.testing.assert_allclose(full.more["lowest"], full.numbers)


@pytest.mark.parametrize(
    ("text", "data", "shift"),
    [("P(v1)", True, 1.5), ("P(v1)", True, -0.1), ("MI(v1; v2)", True, 0.1), ("P(v1)", False, 0.1)],
)
def test_ask__refuses_a_shift_of_nothing(text, data, shift):
    truth, codes = draw(9, 100)
    with pytest.raises(pmf.PmfError, match="shift"):
        truth.ask(text, codes if data else None, shift=shift)
