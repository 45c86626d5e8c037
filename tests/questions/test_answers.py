import json

import numpy as np
import pytest

import pmflib as pmf
from pmflib.diagnosis.jackknife import refit_without_folds
from pmflib.errors import SchemaError
from pmflib.questions import evidence, support
from pmflib.questions.answer_errors import MOST_ERROR
from pmflib.questions.answers import format_with_error
from tests.questions.question_models import draw_counts, make_pets, make_survey

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
        ("P(income)", "'income' was never observed"),
        ("P(stars | kind=drama)", "'stars' and 'kind' were never observed together"),
        ("P(stars | kind=drama)", "no row of the data that has kind=drama holds stars"),
        ("P('free text' | income=low)", "no row of the data has income=low: this answer is what"),
        ("P(stars | kind=drama, 'free text'='x=y')", "no row of the data has kind=drama and free"),
        ("P(stars | kind=dramma)", "'dramma' is no level of 'kind' and counts as 'other'; did you"),
    ],
)
def test_answer__says_what_the_model_cannot_know(question, warning):
    found = MODEL.ask(question, gap_counts())
    assert any(each.startswith(warning) for each in found.warnings), found.warnings
    assert len(found.labels) > 1
    assert found.summary().notes == found.warnings
    assert warning.split("'")[0] in found._repr_html_()
    assert found.to_json()["warnings"] == list(found.warnings)


def test_answer__few_rows_are_said(monkeypatch):
    monkeypatch.setattr(support, "FEW", 10_000)
    found = MODEL.ask("P(stars | kind=drama)", COUNTS)
    assert found.warnings[0].startswith("only ")
    assert not MODEL.ask("P(stars)", COUNTS).warnings


def test_answer__without_counts_it_is_a_number():
    found = MODEL.ask("P(stars=4)")
    assert found.support is None
    assert found.standard_error is None
    lines = [line.split() for line in repr(found).splitlines()]
    assert lines[0] == ["P(stars=4)"]
    assert lines[-1] == ["4", f"{found.value:.4g}"]


@pytest.mark.parametrize("question", ["P(v0=0 | v1=0, v2=1)", "E(v3 | v0=2)", "odds(v4=1 | v5=0)"])
def test_answer__standard_errors_are_the_spread_over_samples(question):
    rng = np.random.default_rng(4)
    blocks = [rng.dirichlet(np.full(3, 0.8), 2).T for _ in range(6)]
    schema = pmf.Schema.from_cardinalities([3] * 6)
    truth = pmf.JointPMF(np.array([0.6, 0.4]), np.vstack(blocks), schema)
    answers, errors = [], []
    for seed in range(30):
        counts = draw_counts(truth, 2000, seed, n_folds=8)
        # the mean of the fits without a fold is the fit to all, but for a small bias
        model = evidence.make_models(refit_without_folds(counts, truth), truth)
        answers.append(np.mean([each.ask(question).value for each in model]))
        if seed < 6:
            errors.append(truth.ask(question, counts).standard_error)
    ratio = np.sqrt(np.mean(np.square(errors))) / np.std(answers, ddof=1)
    # 29 degrees of freedom of the spread, 6 x 7 of the errors
    assert 0.7 < ratio < 1.4


def test_answer__fits_are_kept_with_the_model(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "pmflib.diagnosis.jackknife.refit_without_folds",
        lambda counts, model: (
            calls.append(1) or (np.stack([model.prior] * 2), np.stack([model.factors] * 2))
        ),
    )
    model = make_survey(5)
    counts = draw_counts(model, 100, 0)
    assert model.ask("P(stars=4)", counts).standard_error == 0
    assert model.ask("E(stars)", counts).standard_error == 0
    assert len(calls) == 1
    model.ask("E(stars)", draw_counts(model, 100, 0))
    assert len(calls) == 2


def test_answer__no_standard_errors_say_why(monkeypatch):
    one = draw_counts(MODEL, 100, 0, n_folds=1)
    assert "1 fold" in MODEL.ask("P(stars)", one).no_errors
    monkeypatch.setattr(evidence, "MAX_WORK", 10)
    found = make_survey(1).ask("P(stars)", COUNTS)
    assert "above 10" in found.no_errors
    assert found.standard_errors is None
    assert ("no standard errors", found.no_errors) in found.summary().facts


def test_answer__an_answer_that_the_data_leave_open_says_so():
    model = make_survey(3, rank=6)
    found = model.ask(
        "P(kind=drama | stars=1, income=low, 'free text'='x=y')", draw_counts(model, 30, 0)
    )
    assert found.standard_errors[0] <= MOST_ERROR
    assert any("do not determine" in each or "only" in each for each in found.warnings)


def test_answer__counts_of_another_schema():
    with pytest.raises(SchemaError, match="different schemas"):
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


def test_format_with_error__digits():
    assert format_with_error(1234.5678, 12.3) == ("1235", "12")
    assert format_with_error(0.5, 0.0) == ("0.5", "0")
    assert format_with_error(0.5, float("nan")) == ("0.5", "unknown")


def test_answer__a_level_that_nobody_has_is_not_certain():
    codes = MODEL.sample(400, 0)
    codes[codes[:, 1] == 2, 1] = 1
    counts = pmf.count_pairs(codes, MODEL.schema, n_folds=4)
    found = MODEL.ask("P(kind)", counts)
    errors = dict(zip(found.labels, found.standard_errors, strict=True))
    assert errors[("other",)] == pytest.approx(1 / 402)
    assert errors[("comedy",)] > 2 / 402


def test_answer__counts_that_contradict_the_model_are_said():
    sizes = [3] * 6
    rng = np.random.default_rng(0)
    factors = np.vstack([rng.dirichlet(np.full(3, 0.4), 4).T for _ in sizes])
    truth = pmf.JointPMF(np.full(4, 0.25), factors, pmf.Schema.from_cardinalities(sizes))
    counts = draw_counts(truth, 5000, 0, n_folds=1)
    independent = pmf.fit(counts, 1).model
    for question in ("P(v0 | v1=0)", "P(v0=1 | v1)", "MI(v0; v1)", "E(v0 | v1)"):
        (warning,) = independent.ask(question, counts).warnings
        assert "standard errors apart; the rank may be too small" in warning
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
    assert (n_rows > 1) == (not found.no_errors)
    assert n_rows > 9 or found.warnings or not found.support.given[0].conditions
    assert repr(found)
    json.dumps(found.to_json(), allow_nan=False)
    found._repr_html_()


def test_answer__of_one_variable_alone():
    schema = pmf.Schema((pmf.Variable("a", ("1", "2")),))
    model = pmf.JointPMF(np.ones(1), np.array([[0.4], [0.6]]), schema)
    found = model.ask("P(a=1)", pmf.count_pairs(model.sample(1000, 0), schema))
    assert found.value == pytest.approx(0.4)
    assert found.standard_error == pytest.approx(np.sqrt(0.24 / 1000), rel=0.6)
