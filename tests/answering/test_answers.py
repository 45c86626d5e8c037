import json

import numpy as np
import pytest
from scipy import stats

import pmflib as pmf
from pmflib.answering import answering
from pmflib.answering.equivalent_samples import DISCOUNT
from pmflib.base import MemoryPlanError, SchemaError
from tests.answering.question_models import draw_counts, make_pets, make_survey

MODEL = make_survey()
COUNTS = draw_counts(MODEL, 3000, 1)


def count(codes, **levels):
    kept = np.ones(len(codes), bool)
    for name, label in levels.items():
        kept &= codes[:, MODEL.schema.position(name)] == MODEL.schema[name].levels.index(label)
    return int(kept.sum())


def test_answer__support_is_that_of_the_rows():
    codes = MODEL.sample(3000, 1)
    codes[::3, 0] = -1
    codes[::2, 1] = -1
    counts = pmf.count_pairs(codes, MODEL.schema, n_folds=1)
    found = MODEL.ask("P(stars | kind=drama, income=low)", counts).support
    assert found.n_rows == 3000
    assert found.variables == {"stars": 2000, "kind": 1500, "income": 3000}
    assert found.least_pair == ("stars", "kind", 1000)
    assert found.given[0].samples == count(codes, kind="drama", income="low")
    assert found.given[0].is_exact
    three = MODEL.ask("P(stars | kind=drama, income=low, 'free text'='x=y')", counts).support
    assert not three.given[0].is_exact
    exact = count(codes, kind="drama", income="low", **{"free text": "x=y"})
    assert three.given[0].samples >= exact
    assert three.given[0].expected == pytest.approx(exact, rel=0.3)


def test_answer__samples_behind_each_row():
    codes = MODEL.sample(3000, 1)
    found = MODEL.ask("P(stars | kind=drama)", COUNTS)
    for (stars,), n in zip(found.labels, found.more["samples"], strict=True):
        assert n == count(codes, stars=stars, kind="drama")
    found = MODEL.ask("P(kind, stars=2)", COUNTS)
    for (kind, _), n in zip(found.labels, found.more["samples"], strict=True):
        assert n == count(codes, stars="2", kind=kind)
    found = MODEL.ask("P(stars | kind)", COUNTS)
    for (kind, stars), n in zip(found.labels, found.more["samples"], strict=True):
        assert n == count(codes, stars=stars, kind=kind)
    assert "samples" not in MODEL.ask("P(stars | kind=drama, income=low)", COUNTS).more


def gap_counts():
    """Nobody has both a cat and a car; income is never observed; stars and kind never together."""
    codes = MODEL.sample(2000, 2)
    codes[:, 3] = -1
    codes[::2, 0] = -1
    codes[1::2, 1] = -1
    codes[codes[:, 2] == 1, 1] = -1
    return pmf.count_pairs(codes, MODEL.schema, n_folds=1)


@pytest.mark.parametrize(
    ("question", "warning"),
    [
        ("P(income)", "'income'"),
        ("P(stars | kind=drama)", "'stars' and 'kind'"),
        ("P(stars | kind=drama)", "kind=drama"),
        ("P('free text' | income=low)", "income=low"),
        ("P(stars | kind=drama, 'free text'='x=y')", "kind=drama and free"),
        ("P(stars | kind=dramma)", "'dramma'"),
    ],
)
def test_answer__says_what_the_model_cannot_know(question, warning):
    found = MODEL.ask(question, gap_counts())
    assert any(warning in each for each in found.warnings), found.warnings
    assert len(found.labels) > 1
    assert found.summary().notes == found.warnings
    assert found.to_json()["warnings"] == list(found.warnings)


def test_answer__without_counts_it_is_a_number():
    found = MODEL.ask("P(stars=4)")
    assert found.support is None
    assert found.source == "model"
    assert found.value == pytest.approx(MODEL.marginal(["stars"])[3], rel=1e-12)
    (m,) = found.equivalent_samples
    p = found.value
    rows = m / DISCOUNT
    # at least the deviation of a level never seen in as many rows
    spreads = np.sqrt(p * (1 - p) / (rows + 1)), float(stats.beta(1, rows + 1).std())
    assert found.standard_error == pytest.approx(max(spreads))


def test_answer__no_standard_errors_say_why(monkeypatch):
    monkeypatch.setattr(answering, "MAX_CELLS", 3)
    found = MODEL.ask("P(stars)", COUNTS)
    assert found.no_errors
    assert found.standard_errors is None
    assert found.intervals is None
    assert found.source == "model"
    np.testing.assert_array_equal(np.sort(found.numbers), np.sort(MODEL.marginal(["stars"])))
    with pytest.raises(MemoryPlanError):
        MODEL.ask("P(stars)", COUNTS, source="counts")


def test_answer__a_small_sample_says_how_small_it_was():
    model = make_survey(3, rank=6)
    question = "P(kind=drama | stars=1, income=low, 'free text'='x=y')"
    found = model.ask(question, model.sample(30, 0))
    assert found.warnings
    low, high = found.interval
    assert 0 <= low < found.value < high <= 1
    # thirty rows leave more open than three thousand
    assert (
        found.standard_error > 2 * model.ask("P(kind=drama)", model.sample(3000, 0)).standard_error
    )


def test_answer__counts_of_another_schema():
    with pytest.raises(SchemaError, match="schema"):
        MODEL.ask("P(stars)", pmf.count_pairs(np.zeros((4, 2), int), [2, 2]))


@pytest.mark.parametrize(
    "question",
    [
        "P(stars | kind=drama)",
        "P(stars=4)",
        "E(stars | kind)",
        "quantile(stars, 0.5 | kind)",
        "MI(stars; kind)",
        "argmax(stars, kind)",
        "OR(stars=4; kind=drama)",
    ],
)
def test_answer__json_table_and_html_agree(question):
    found = MODEL.ask(question, COUNTS)
    content = json.loads(json.dumps(found.to_json()))
    assert len(content["levels"]) == len(found.labels) == found.table.num_rows
    quantity = found.quantity.split(",")[0].replace(" ", "_")
    table = found.table.to_pydict()
    for n, row in enumerate(content["levels"]):
        assert row["level"] == {name: table[name][n] for name in found.columns}
        assert row[quantity] == table[found.quantity][n]
        assert row["standard_error"] == table["standard_error"][n]
    (shown,) = found.summary().tables
    assert len(shown.rows) == len(found.labels)


def test_answer__html_is_escaped():
    found = make_pets().ask("P(pet | 'car'=no)")
    assert "<script" not in found._repr_html_()
    assert "P(pet | &#x27;car&#x27;=no)" in found._repr_html_()


def test_answer__expected_value_beside_a_distribution():
    found = MODEL.ask("P(stars | kind=drama)", COUNTS)
    mean = MODEL.ask("E(stars | kind=drama)", COUNTS)
    assert found.expected == pytest.approx(mean.value)
    assert found.expected_error == pytest.approx(mean.standard_error)
    assert MODEL.ask("P(kind)").expected is None


def test_answer__quantiles_have_the_levels_that_errors_reach():
    found = MODEL.ask("median(stars)", COUNTS)
    low, high = (float(found.more[name][0]) for name in ("from", "to"))
    assert low <= found.value <= high
    sharp = found.numbers[0] - 2 * found.standard_errors[0] > 0.5
    assert not sharp or high == found.value


def test_answer__a_level_that_nobody_has_is_not_certain():
    codes = MODEL.sample(400, 0)
    codes[codes[:, 1] == 2, 1] = 1
    factors = MODEL.factors.copy()
    factors[4:7] /= factors[4:6].sum(axis=0)
    factors[6] = 0
    model = pmf.JointPMF(MODEL.prior, factors, MODEL.schema)
    found = model.ask("P(kind)", codes)
    (m,) = found.equivalent_samples
    numbers, errors, ends = (
        dict(zip(found.labels, each, strict=True))
        for each in (found.numbers, found.standard_errors, found.intervals)
    )
    assert numbers[("other",)] == 0
    # the model adds to the counts at most what it is worth
    total = 1 / errors[("other",)] - 2
    assert 300 < total <= 400 + m
    # none of n rows: one row of n
    assert ends[("other",)] == pytest.approx([0, 1 - 0.025 ** (1 / total)], abs=1e-4)
    assert errors[("comedy",)] > 2 / (total + 2)
    alone = model.ask("P(kind)", codes, source="counts")
    assert alone.value["other"] == 0
    assert alone.intervals[alone.labels.index(("other",)), 1] > 0


def test_answer__counts_that_contradict_the_model_are_said():
    sizes = [3] * 6
    rng = np.random.default_rng(0)
    factors = np.vstack([rng.dirichlet(np.full(3, 0.4), 4).T for _ in sizes])
    truth = pmf.JointPMF(np.full(4, 0.25), factors, pmf.Schema.from_cardinalities(sizes))
    counts = draw_counts(truth, 5000, 0, n_folds=1)
    independent = pmf.fit(counts, 1).model
    for question in ("P(v0 | v1=0)", "P(v0=1 | v1)", "MI(v0; v1)", "E(v0 | v1)"):
        (warning,) = independent.ask(question, counts).warnings
        assert "rank" in warning
        assert truth.ask(question, counts).warnings == ()


@pytest.mark.parametrize(
    "question",
    [
        "P(a)",
        "P(a | b=only)",
        "P(a | b)",
        "E(a)",
        "median(a | b=only)",
        "H(a, b)",
        "H(b)",
        "MI(a; b)",
        "TV(a; b)",
        "TV(a | b=only)",
        "odds(a=1)",
        "odds(b=only)",
        "OR(a=1; b=only)",
        "argmax(a, b)",
        "P(a | a in {1, 2})",
    ],
)
@pytest.mark.parametrize("n_rows", [0, 1, 50])
def test_answer__of_little(question, n_rows):
    """One state, two variables, one of them with a single level; no samples, one, and some."""
    schema = pmf.Schema((pmf.Variable("a", ("1", "2"), (1.0, 2.0)), pmf.Variable("b", ("only",))))
    model = pmf.JointPMF(np.ones(1), np.array([[0.4], [0.6], [1.0]]), schema)
    codes = model.sample(n_rows, 0)
    codes[1::2, 1] = -1
    found = model.ask(question, pmf.count_pairs(codes, schema, n_folds=4))
    assert len(found.labels) >= 1
    assert not found.no_errors
    assert found.source == "both"
    assert found.equivalent_samples
    assert n_rows > 9 or found.warnings or not found.support.given[0].conditions
    assert repr(found)
    json.dumps(found.to_json(), allow_nan=False)
    found._repr_html_()


def test_ask__true_is_the_level_true_and_a_missing_code_is_named():
    schema = pmf.Schema(
        (pmf.Variable("bo", ("false", "true")), pmf.Variable("x", ("a", "b"), missing=("", "?")))
    )
    model = pmf.JointPMF(
        np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9], [0.5, 0.2], [0.5, 0.8]]), schema
    )
    assert model.ask("P(x | bo=True)").table.equals(model.ask("P(x | bo=true)").table)
    with pytest.raises(SchemaError, match=r"'\?'"):
        model.ask("P(bo | x='?')")
