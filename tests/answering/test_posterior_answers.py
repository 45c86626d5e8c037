"""Answers as posterior means of counts whose prior is a model, next to the same computed by hand."""

import json

import numpy as np
import pytest
from scipy import stats

import pmflib as pmf
from pmflib import answering as questions
from pmflib.answering import EquivalentSamples, TableRequest, answering, evidence
from pmflib.answering.equivalent_samples import DISCOUNT
from pmflib.answering.information import TablePMF
from pmflib.answering.posterior import Posterior, find_beta_intervals
from pmflib.base import MemoryPlanError, PmfError, SchemaError
from pmflib.model import ModelOrigin
from tests.answering.question_models import make_pets, make_survey, tabulate

MODEL = make_survey()
SCHEMA = MODEL.schema


def draw(n_rows=2000, seed=1, gaps=0.15):
    """Samples of another model than the one that is asked, with gaps."""
    codes = make_survey(8).sample(n_rows, seed)
    codes[np.random.default_rng(seed).random(codes.shape) < gaps] = -1
    return codes


CODES = draw()
CONDITIONS = {
    "": {},
    "kind=comedy": {1: (1,)},
    "kind=comedy, income>=10": {1: (1,), 3: (1, 2)},
    "kind in {drama, comedy}, 'free text'='x=y', income=low": {1: (0, 1), 2: (1,), 3: (0,)},
}


def find_ends(first, second, tails=(0.025, 0.975)):
    """Quantiles of Beta distributions, by tail, whose outer ends rest on one row at least."""
    low = stats.beta(first, np.maximum(second, 1)).ppf(tails[0])
    return np.array([low, stats.beta(np.maximum(first, 1), second).ppf(tails[1])])


def find_spread(p, total):
    """Deviation of a Beta of some mean and total, at least that of a level never seen, under a uniform prior."""
    return max(np.sqrt(p * (1 - p) / (total + 1)), float(stats.beta(1, total + 1).std()))


def meet(codes, given):
    kept = np.ones(len(codes), bool)
    for position, levels in given.items():
        kept &= np.isin(codes[:, position], levels)
    return codes[kept]


def count(codes, targets, given):
    """Counts of combinations of levels, the slow way; samples that lack a target do not count."""
    rows = meet(codes, given)[:, list(targets)]
    table = np.zeros([SCHEMA.cardinalities[each] for each in targets], int)
    for row in rows:
        if (row >= 0).all():
            table[tuple(row)] += 1
    return table


def give(joint, targets, given):
    """PMF of targets in this order, given codes, the slow way."""
    for position, levels in given.items():
        mask = np.zeros(joint.shape[position])
        mask[list(levels)] = 1
        joint = joint * mask.reshape([-1 if n == position else 1 for n in range(joint.ndim)])
    joint = joint / joint.sum()
    left = [n for n in range(joint.ndim) if n in targets]
    table = joint.sum(axis=tuple(n for n in range(joint.ndim) if n not in targets))
    return np.transpose(table, [left.index(n) for n in targets])


def mix(codes, targets, given, m, model=MODEL):
    counts = count(codes, targets, given)
    return (counts + m * give(tabulate(model), targets, given)) / (counts.sum() + m)


def find_total(found, row=0):
    """Rows that an answer is as sure as, by a number and its error."""
    p = found.numbers[row]
    return p * (1 - p) / found.standard_errors[row] ** 2 - 1


def pick(found, labels):
    return float(found.numbers[found.labels.index(labels)])


@pytest.mark.parametrize("text", list(CONDITIONS))
def test_ask__is_the_mean_of_counts_and_model(text):
    given = CONDITIONS[text]
    bar = f" | {text}" if text else ""
    found = MODEL.ask(f"P(stars{bar})", CODES)
    (m,) = found.equivalent_samples
    expected = mix(CODES, [0], given, m)
    n = count(CODES, [0], given).sum()
    assert n > 20
    p = pick(found, found.labels[0])
    total = p * (1 - p) / found.standard_errors[0] ** 2 - 1
    assert n * (1 - 1e-9) <= total <= (n + m) * (1 + 1e-9)
    for (stars,), number, error, ends, counted, alone in zip(
        found.labels,
        found.numbers,
        found.standard_errors,
        found.intervals,
        found.more["counted"],
        found.more["model"],
        strict=True,
    ):
        p = expected[int(stars) - 1]
        assert number == pytest.approx(p, rel=1e-12)
        assert error == pytest.approx(find_spread(p, total), rel=1e-12)
        ends_known = find_ends(p * total, (1 - p) * total)
        np.testing.assert_allclose(ends, ends_known, rtol=1e-9)
        assert counted == pytest.approx(count(CODES, [0], given)[int(stars) - 1] / n)
        assert alone == pytest.approx(give(tabulate(MODEL), [0], given)[int(stars) - 1])
    assert found.support.given[0].is_exact
    assert found.support.given[0].samples == len(meet(CODES, given))
    assert found.support.given[0].with_targets == n
    assert list(found.more["samples"]) == [
        count(CODES, [0], given)[int(s) - 1] for (s,) in found.labels
    ]


def test_ask__level_sets_the_intervals():
    found = MODEL.ask("P(stars=4 | kind=comedy)", CODES, level=0.5)
    p, total = found.value, find_total(found)
    assert found.interval == pytest.approx(find_ends(p * total, (1 - p) * total, (0.25, 0.75)))
    assert found.to_json()["level"] == 0.5
    for level in (0, 1, -1, 95):
        with pytest.raises(PmfError, match="level"):
            MODEL.ask("P(stars)", CODES, level=level)


@pytest.mark.parametrize("text", list(CONDITIONS))
def test_ask__counts_alone_and_the_model_alone(text):
    given, bar = CONDITIONS[text], f" | {text}" if text else ""
    counted = MODEL.ask(f"P(stars{bar})", CODES, source="counts")
    table = count(CODES, [0], given)
    n, size = table.sum(), table.size
    for (stars,), number, ends in zip(
        counted.labels, counted.numbers, counted.intervals, strict=True
    ):
        k = table[int(stars) - 1]
        assert number == k / n
        # a row that is spread evenly is the prior
        known = find_ends(k + 1 / size, n - k + 1 - 1 / size)
        np.testing.assert_allclose(ends, [min(known[0], k / n), max(known[1], k / n)], rtol=1e-9)
    assert counted.source == "counts"
    assert counted.equivalent_samples == ()
    alone = MODEL.ask(f"P(stars{bar})", CODES, source="model")
    without = MODEL.ask(f"P(stars{bar})")
    assert np.array_equal(alone.numbers, without.numbers)
    known = give(tabulate(MODEL), [0], given)
    np.testing.assert_allclose(
        alone.numbers, [known[int(stars) - 1] for (stars,) in alone.labels], rtol=1e-12
    )
    assert alone.source == without.source == "model"
    assert alone.support.given[0].samples == len(meet(CODES, given))


def test_ask__counts_alone_of_nobody_or_nothing():
    codes = CODES[(CODES[:, 1] != 0) | (CODES[:, 3] != 0)]
    with pytest.raises(PmfError, match="kind=drama and income=low"):
        MODEL.ask("P(stars | kind=drama, income=low)", codes, source="counts")
    with pytest.raises(PmfError, match="source"):
        MODEL.ask("P(stars)", source="counts")
    pairs = pmf.count_pairs(CODES, SCHEMA)
    for text in (
        "P(stars | kind=drama, income=low)",
        "TV(stars | kind=drama, income=low; kind=comedy)",
    ):
        with pytest.raises(PmfError):
            MODEL.ask(text, pairs, source="counts")
    with pytest.raises(PmfError, match="source"):
        MODEL.ask("P(stars)", CODES, source="guesses")


def test_ask__counts_of_pairs_know_two_variables():
    pairs = pmf.count_pairs(CODES, SCHEMA, n_folds=4)
    for text in (
        "P(stars)",
        "P(stars | kind=comedy)",
        "MI(stars; income)",
        "P(stars | stars>=2, kind=drama)",
    ):
        by_pairs, by_rows = MODEL.ask(text, pairs), MODEL.ask(text, CODES)
        np.testing.assert_array_equal(by_pairs.numbers, by_rows.numbers)
        np.testing.assert_array_equal(by_pairs.intervals, by_rows.intervals)
        assert by_pairs.equivalent_samples == by_rows.equivalent_samples
    learnt = EquivalentSamples((5.0, 4.0, 3.0, 2.0, 0, 0, 0, 0), n_questions=10, n_unseen=10)
    model = pmf.JointPMF(
        MODEL.prior, MODEL.factors, SCHEMA, ModelOrigin.of({"equivalent_samples": learnt.to_json()})
    )
    found = model.ask("P(stars | kind=drama, income=low)", pairs)
    assert found.source == "model"
    # a normal law of log m about 3: less than e^3 rows on average over its weights
    assert 2 < found.equivalent_samples[0] < np.exp(3.0)
    assert np.array_equal(found.numbers, model.ask("P(stars | kind=drama, income=low)").numbers)
    assert "counted" not in found.more
    p, total = found.numbers[0], find_total(found)
    assert total == pytest.approx(found.equivalent_samples[0] / DISCOUNT)
    ends = find_ends(p * total, (1 - p) * total)
    np.testing.assert_allclose(found.intervals[0], ends, rtol=1e-9)


def test_ask__samples_have_what_the_model_rules_out():
    model = make_pets()
    codes = model.sample(300, 0)
    codes[:20] = [0, 1, 1]
    codes[:5] = [0, 0, 1]
    found = model.ask("P(pet | age=young, car=yes)", codes)
    assert found.warnings
    # 5 of 20 have a cat, and a row is spread evenly
    assert pick(found, ("cat",)) == pytest.approx(5.5 / 21)
    assert found.more["counted"][found.labels.index(("cat",))] == 0.25
    assert np.isnan(found.more["model"]).all()
    json.dumps(found.to_json(), allow_nan=False)
    # what is asked for may be ruled out as well: then counts speak against it
    both = model.ask("P(car=yes | age=young)", codes)
    assert both.value > 0
    assert both.more["model"] == [0.0]
    with pytest.raises(PmfError, match="age=young and car=yes"):
        model.ask("P(pet | age=young, car=yes)", codes[20:])
    with pytest.raises(PmfError, match="age=young and car=yes"):
        model.ask("P(pet | age=young, car=yes)", codes, source="model")
    by_pairs = pmf.count_pairs(codes, model.schema)
    with pytest.raises(PmfError, match="age=young and car=yes"):
        model.ask("P(pet | age=young, car=yes)", by_pairs)


def test_ask__conditions_nobody_has_are_answered_by_the_model():
    codes = CODES[(CODES[:, 1] != 0) | (CODES[:, 3] != 0)]
    found = MODEL.ask("P(stars | kind=drama, income=low)", codes)
    np.testing.assert_allclose(
        sorted(found.numbers), sorted(give(tabulate(MODEL), [0], {1: (0,), 3: (0,)})), rtol=1e-12
    )
    assert any("kind=drama and income=low" in each for each in found.warnings)
    assert np.isnan(found.more["counted"]).all()
    assert found.support.given[0].samples == 0
    (m,) = found.equivalent_samples
    assert find_total(found) == pytest.approx(m / DISCOUNT)


def test_ask__each_level_of_what_is_given_is_asked_apart():
    whole = MODEL.ask("P(stars | kind, income=low)", CODES)
    assert len(whole.equivalent_samples) == 3
    for kind, m in zip(SCHEMA["kind"].levels, whole.equivalent_samples, strict=True):
        one = MODEL.ask(f"P(stars | kind={kind}, income=low)", CODES)
        assert list(one.equivalent_samples) == [pytest.approx(m, rel=1e-9)]
        for n, (stars,) in enumerate(one.labels):
            row = whole.labels.index((kind, stars))
            assert whole.numbers[row] == pytest.approx(one.numbers[n], rel=1e-9)
            assert whole.standard_errors[row] == pytest.approx(one.standard_errors[n], rel=1e-9)
            np.testing.assert_allclose(whole.intervals[row], one.intervals[n], rtol=1e-6)
            for name in ("samples", "counted", "model"):
                assert whole.more[name][row] == pytest.approx(one.more[name][n])


def posterior_of(targets, given, m):
    """Mean table as a PMF that the functions of questions take."""
    return TablePMF(SCHEMA, tuple(targets), mix(CODES, targets, given, m))


def test_ask__measures_are_those_of_the_mean_table():
    given = {1: (1,)}
    found = {
        name: MODEL.ask(text, CODES)
        for name, text in {
            "E": "E(stars | kind=comedy)",
            "median": "median(stars | kind=comedy)",
            "quantile": "quantile(stars, 0.8 | kind=comedy)",
            "H": "H(stars, income | kind=comedy)",
            "MI": "MI(stars; income | kind=comedy)",
            "TV": "TV(stars; income | kind=comedy)",
            "odds": "odds(stars=4 | kind=comedy)",
            "argmax": "argmax(stars, income | kind=comedy)",
            "OR": "OR(stars=4; income>=10 | kind=comedy)",
        }.items()
    }
    mean = posterior_of([0], given, found["E"].equivalent_samples[0])
    one = posterior_of([0], given, found["median"].equivalent_samples[0])
    two = posterior_of([0, 3], given, found["H"].equivalent_samples[0])
    assert found["E"].value == pytest.approx(questions.expected(mean, "stars"))
    assert found["median"].value == float(questions.quantile(one, "stars", 0.5))
    assert found["quantile"].value == float(questions.quantile(one, "stars", 0.8))
    assert found["odds"].value == pytest.approx(questions.odds(one, {"stars": "4"}))
    # measures that are not linear are moved by what the counts have more of than counts of the mean table would
    counted = TablePMF(
        SCHEMA, (0, 3), count(CODES, [0, 3], given) / count(CODES, [0, 3], given).sum()
    )
    rng, n = np.random.default_rng(0), count(CODES, [0, 3], given).sum()
    replicated = rng.multinomial(n, two.table.ravel(), 2000).reshape(-1, *two.table.shape) / n
    replicates = [TablePMF(SCHEMA, (0, 3), each) for each in replicated]
    for name, measure in {
        "H": lambda table: questions.entropy(table, ["stars", "income"]),
        "MI": lambda table: questions.mutual_information(table, ["stars"], ["income"]),
        "TV": lambda table: questions.total_variation(table, ["stars"], ["income"]),
    }.items():
        simulated = [measure(each) for each in replicates]
        moved = measure(counted) - np.mean(simulated)
        moved *= moved**2 / (moved**2 + np.var(simulated))
        noise = 4 * np.std(simulated) / np.sqrt(250)
        assert found[name].value == pytest.approx(measure(two) + moved, abs=noise)
        left = (np.mean(simulated) - measure(two)) / 3
        assert found[name].standard_error >= 0.8 * np.hypot(np.std(simulated), left)
    cell = np.unravel_index(two.table.argmax(), two.table.shape)
    levels = str(cell[0] + 1), SCHEMA["income"].levels[cell[1]]
    assert found["argmax"].labels[0] == levels
    assert found["argmax"].numbers[0] == pytest.approx(two.table.max())
    a, b = two.table[3, 1:].sum(), two.table[3, 0]
    c, d = two.table[:3, 1:].sum(), two.table[:3, 0].sum()
    assert found["OR"].value == pytest.approx(a * d / (b * c))
    for each in found.values():
        assert each.source == "both"
        if each.interval is not None:
            assert each.interval[0] < each.value < each.interval[1]
            assert each.standard_error > 0


def test_ask__measures_given_a_whole_variable_are_those_of_its_posterior():
    found = MODEL.ask("MI(stars; kind | income)", CODES)
    assert len(found.equivalent_samples) == 3
    # the rows are of this model
    truth = questions.mutual_information(make_survey(8), ["stars"], ["kind"], by=["income"])
    assert found.interval[0] <= truth <= found.interval[1]


def test_ask__total_variation_to_all():
    found = MODEL.ask("TV(stars | kind=comedy)", CODES)
    first, second = found.equivalent_samples
    one, every = mix(CODES, [0], {1: (1,)}, first), mix(CODES, [0], {}, second)
    shares = [count(CODES, [0], x) / count(CODES, [0], x).sum() for x in ({1: (1,)}, {})]
    # between the mean table and the counts, but for the noise of both
    ends = [np.abs(a - b).sum() / 2 for a, b in ((one, every), shares)]
    assert min(ends) - found.standard_error <= found.value <= max(ends) + found.standard_error
    given, all_of_them = MODEL.ask("P(stars | kind=comedy)", CODES), MODEL.ask("P(stars)", CODES)
    assert (first, second) == (*given.equivalent_samples, *all_of_them.equivalent_samples)
    assert 0 <= found.interval[0] < found.value < found.interval[1] <= 1


def test_ask__events_with_sets_of_levels():
    found = MODEL.ask("P(stars in {1, 4}, income!=low | kind=comedy)", CODES)
    (m,) = found.equivalent_samples
    table = mix(CODES, [0, 3], {1: (1,)}, m)
    p = table[[0, 3]][:, 1:].sum()
    assert found.value == pytest.approx(p)
    n, total = count(CODES, [0, 3], {1: (1,)}), find_total(found)
    assert n.sum() <= total * (1 + 1e-9)
    assert found.interval == pytest.approx(find_ends(p * total, (1 - p) * total))
    assert found.more["samples"] == [n[[0, 3]][:, 1:].sum()]


def test_ask__a_variable_that_is_restricted_by_what_is_asked():
    found = MODEL.ask("P(stars | stars>=3, kind=comedy)", CODES)
    (m,) = found.equivalent_samples
    table = mix(CODES, [0], {0: (2, 3), 1: (1,)}, m)
    assert table[:2].tolist() == [0, 0]
    for (stars,), number in zip(found.labels, found.numbers, strict=True):
        assert number == pytest.approx(table[int(stars) - 1])


def sure(*intercepts):
    """The model with a law of m that has next to no spread, and that counts do not change."""
    law = EquivalentSamples((*intercepts, 0, 0, 0, 0), (0.01,) * 2, (1e-9,) * 2, n_questions=1)
    origin = ModelOrigin.of({"equivalent_samples": law.to_json()})
    return pmf.JointPMF(MODEL.prior, MODEL.factors, SCHEMA, origin)


def test_ask__rows_by_number_of_variables():
    model = sure(0.0, 1.0, 2.0, 3.0)
    for n, text in enumerate(("P(stars)", "P(stars | kind=drama)", "P(stars, kind | income=low)")):
        assert list(model.ask(text, CODES).equivalent_samples) == [pytest.approx(np.exp(n))]
    (m,) = model.ask(
        "P(stars | kind=drama, income=low, 'free text'='x=y')", CODES
    ).equivalent_samples
    assert m == pytest.approx(np.exp(3))
    # what is asked for and given is one variable
    found = model.ask("P(stars | stars>=3, kind=comedy)", CODES)
    assert list(found.equivalent_samples) == [pytest.approx(np.e)]


def test_ask__a_mean_has_a_weight_of_its_own():
    law = EquivalentSamples((2.0,) * 4 + (2.0, 0, 0, 0), (0.01,) * 2, (1e-9,) * 2)
    origin = ModelOrigin.of({"equivalent_samples": law.to_json()})
    model = pmf.JointPMF(MODEL.prior, MODEL.factors, SCHEMA, origin)
    mean, shares = (model.ask(f"{each}(stars | kind=drama)", CODES) for each in ("E", "P"))
    assert list(mean.equivalent_samples) == [pytest.approx(np.exp(4))]
    assert list(shares.equivalent_samples) == [pytest.approx(np.exp(2))]
    # the expected value beside a PMF is that of a question for it
    assert shares.expected == pytest.approx(mean.value)
    assert shares.expected_error == pytest.approx(mean.standard_error)
    counted, by_model = mean.more["counted"][0], mean.more["model"][0]
    n = count(CODES, [0], {1: (0,)}).sum()
    m = np.exp(4)
    assert mean.value == pytest.approx((n * counted + m * by_model) / (n + m))


def test_ask__all_is_missing_or_nothing_is_there():
    for codes in (np.full((50, 4), -1, np.int8), np.zeros((0, 4), np.int8)):
        found = MODEL.ask("P(stars | kind=drama)", codes)
        known = MODEL.ask("P(stars | kind=drama)")
        np.testing.assert_allclose(found.numbers, known.numbers, rtol=1e-12)
        assert found.support.n_rows == len(codes)
        assert any("'stars'" in each for each in found.warnings)
        json.dumps(found.to_json(), allow_nan=False)
        with pytest.raises(PmfError):
            MODEL.ask("P(stars)", codes, source="counts")
        for text in (
            "MI(stars; kind)",
            "TV(stars | kind=drama)",
            "OR(stars=1; kind=drama)",
            "E(stars | kind)",
        ):
            assert np.isfinite(MODEL.ask(text, codes).numbers).all()


def test_ask__samples_of_another_schema():
    with pytest.raises(SchemaError):
        MODEL.ask("P(stars)", {"stars": ["1", "2"]})
    with pytest.raises(SchemaError):
        MODEL.ask("P(stars)", np.zeros((3, 2), int))


def test_ask__a_table_is_what_its_codes_are():
    table = SCHEMA.decode(CODES)
    found, known = (MODEL.ask("P(stars | kind=drama)", each) for each in (table, CODES))
    assert np.array_equal(found.numbers, known.numbers)


def test_ask__too_many_rows(monkeypatch):
    monkeypatch.setattr(answering, "MAX_ROWS", 10)
    with pytest.raises(MemoryPlanError, match="12"):
        MODEL.ask("P(stars, kind)", CODES)


def test_ask__without_unseen_rows_is_assumed():
    found = MODEL.ask("P(stars)", CODES)
    assert found.is_assumed
    assert found.to_json()["equivalent_samples_assumed"]
    assumed = EquivalentSamples(n_questions=5, n_unseen=9)
    learnt = ModelOrigin.of({"equivalent_samples": assumed.to_json()})
    known = pmf.JointPMF(MODEL.prior, MODEL.factors, SCHEMA, learnt).ask("P(stars)", CODES)
    assert not known.is_assumed
    assert not known.to_json()["equivalent_samples_assumed"]
    # counts alone assume nothing of the model
    assert not MODEL.ask("P(stars)", CODES, source="counts").is_assumed


def test_evidence__counts_what_was_not_counted_yet_once(monkeypatch):
    passes = []
    counted = evidence.count_codes

    def watch(codes, schema, requests):
        passes.append(list(requests))
        return counted(codes, schema, requests)

    monkeypatch.setattr(evidence, "count_codes", watch)
    data = evidence.Evidence.of(CODES, MODEL)
    for text in (
        "P(stars | kind, income>=10)",
        "MI(stars; kind | income)",
        "argmax(stars, kind | income=low)",
    ):
        passes.clear()
        MODEL.ask(text, data)
        # of answers, and of what their gaps depend on
        assert len(passes) <= 2
        passes.clear()
        MODEL.ask(text, data)
        assert not passes
    request = TableRequest((0, 1), ((3, (1, 2)),))
    assert np.array_equal(data.find(request), count(CODES, [0, 1], {3: (1, 2)}))
    assert evidence.Evidence.of(data, MODEL) is data


@pytest.mark.parametrize("sizes", [(3, 1), (1, 2)])
def test_evidence__two_variables_and_one_level(sizes):
    model = pmf.JointPMF(
        np.ones(1),
        np.concatenate([np.full(n, 1 / n) for n in sizes])[:, None],
        pmf.Schema.from_cardinalities(sizes),
    )
    codes = model.sample(40, 0)
    codes[::3, 1] = -1
    for data in (codes, pmf.count_pairs(codes, model.schema)):
        found = model.ask("P(v0 | v1=0)", data)
        (m,) = found.equivalent_samples
        rows = codes[codes[:, 1] == 0, 0]
        for (level,), number in zip(found.labels, found.numbers, strict=True):
            k = (rows == int(level)).sum()
            assert number == pytest.approx((k + m / sizes[0]) / (len(rows) + m))
        assert model.ask("MI(v0; v1)", data).value == pytest.approx(0, abs=0.1)


def test_find_beta_intervals__are_quantiles_of_beta():
    chances = np.array([[0.2, 0.8], [0.001, 0.999]])
    totals = np.array([[30.0], [5.0]])
    found = find_beta_intervals(chances, totals, 0.9)
    known = find_ends(chances * totals, (1 - chances) * totals, (0.05, 0.95))
    np.testing.assert_allclose(found[..., 0], np.minimum(known[0], chances), rtol=1e-9)
    np.testing.assert_allclose(found[..., 1], np.maximum(known[1], chances), rtol=1e-9)
    certain = find_beta_intervals(np.array([0.0, 1.0]), np.array([9.0, 9.0]), 0.95)
    end = 1 - 0.025 ** (1 / 9)
    np.testing.assert_allclose(certain, [[0, end], [1 - end, 1]], rtol=1e-9)


@pytest.mark.parametrize("n_levels", [3, 12, 60, 500])
@pytest.mark.parametrize("source", ["counts", "both"])
def test_ask__levels_of_few_rows_are_covered(n_levels, source):
    rng = np.random.default_rng(n_levels)
    schema = pmf.Schema.from_cardinalities([n_levels])
    held = {0: [], 1: [], 2: []}
    for _ in range(4 + 800 // n_levels):
        truth = rng.dirichlet(np.full(n_levels, 0.3))
        codes = rng.choice(n_levels, (300, 1), p=truth)
        # a model that knows nothing of a third of the levels
        known = np.where(rng.random(n_levels) < 1 / 3, 1e-12, truth) + 1e-15
        model = pmf.JointPMF(np.ones(1), known[:, None] / known.sum(), schema)
        found = model.ask("P(v0)", codes, source=source)
        for (level,), n, ends in zip(
            found.labels, found.more["samples"], found.intervals, strict=True
        ):
            if n in held:
                held[n].append(ends[0] <= truth[int(level)] <= ends[1])
    for n, inside in held.items():
        # at least .95 in the long run, four standard errors of the share allowed
        least = 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(inside))
        assert np.mean(inside) >= least, (n, np.mean(inside), len(inside))


@pytest.mark.parametrize("total", [0.05, 2.0, 50.0])
def test_posterior__draws_have_its_mean_and_spread(total):
    shares = np.array([[0.5, 0.3, 0.2, 0.0]])
    found = Posterior(SCHEMA, (), (0,), np.ones(1), total * shares)
    tables = np.array([each.table for each in found.draw(3)])
    np.testing.assert_allclose(tables.sum(axis=1), 1, rtol=1e-12)
    spread = np.sqrt(shares[0] * (1 - shares[0]) / (total + 1))
    # 1,000 draws: four standard errors of a mean, and a tenth of the spread
    np.testing.assert_array_less(np.abs(tables.mean(axis=0) - shares[0]), 4 * spread / 31 + 1e-9)
    np.testing.assert_allclose(tables.std(axis=0), spread, rtol=0.1)
    again = np.array([each.table for each in found.draw(3)])
    assert np.array_equal(tables, again)
    np.testing.assert_allclose(found.mean.table, shares[0], rtol=1e-12)


def test_table_pmf__axes_come_in_the_order_asked_for():
    joint = np.transpose(tabulate(MODEL), [2, 0, 3, 1])
    table = TablePMF(SCHEMA, (2, 0, 3, 1), joint)
    for asked in ([1, 0, 2], [3, 2], [0], [2, 1, 3, 0]):
        np.testing.assert_allclose(table.marginal(asked), MODEL.marginal(asked), rtol=1e-12)
        given = {"income": "low"}
        rest = [each for each in asked if each != 3] or [0]
        np.testing.assert_allclose(
            table.marginal(rest, given), MODEL.marginal(rest, given), rtol=1e-12
        )
