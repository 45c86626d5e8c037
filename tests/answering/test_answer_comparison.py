import json

import numpy as np
import pytest

import pmflib as pmf
from tests.answering.question_models import SURVEY, make_survey


def test_compare_answers__differences_and_total_variation():
    one, other = make_survey(0), make_survey(1)
    found = pmf.answering.compare_answers(one, other, "P(stars | kind=drama)")
    first, second = (each.marginal(["stars"], {"kind": "drama"}) for each in (one, other))
    for labels, difference in zip(found.labels, found.differences, strict=True):
        code = int(labels[0]) - 1
        assert difference == pytest.approx(second[code] - first[code])
    assert found.total_variation == pytest.approx(np.abs(first - second).sum() / 2)
    errors = [
        each.standard_errors[each.labels.index(labels)] for each in (found.first, found.second)
    ]
    assert found.standard_errors[-1] == pytest.approx(np.hypot(*errors))
    single = pmf.answering.compare_answers(one, other, "E(stars)")
    assert single.total_variation is None
    assert single.differences[0] == pytest.approx(
        other.ask("E(stars)").value - one.ask("E(stars)").value
    )


def test_compare_answers__errors_are_those_of_both():
    model, other = make_survey(0), make_survey(1)
    first, second = model.sample(3000, 0), model.sample(500, 1)
    found = pmf.answering.compare_answers(model, other, "P(stars)", (first, second))
    answers = model.ask("P(stars)", first), other.ask("P(stars)", second)
    for n, labels in enumerate(found.labels):
        places = [each.labels.index(labels) for each in answers]
        numbers = [each.numbers[place] for each, place in zip(answers, places, strict=True)]
        errors = [each.standard_errors[place] for each, place in zip(answers, places, strict=True)]
        assert found.differences[n] == pytest.approx(numbers[1] - numbers[0])
        assert found.standard_errors[n] == pytest.approx(np.hypot(*errors))
    again = pmf.answering.compare_answers(
        model, other, "P(stars)", (first, second), source="counts", level=0.5
    )
    assert {each.source for each in (again.first, again.second)} == {"counts"}
    assert again.first.level == 0.5


def test_compare_answers__levels_of_one_schema_alone():
    model = make_survey(0)
    wider = pmf.Variable("kind", ("drama", "comedy", "horror", "other"), other="other")
    schema = pmf.Schema(tuple(wider if each.name == "kind" else each for each in SURVEY))
    factors = np.insert(model.factors, 6, 0.0, axis=0)
    found = pmf.answering.compare_answers(
        model, pmf.JointPMF(model.prior, factors, schema), "P(kind)"
    )
    values = dict(zip(found.labels, found.numbers.tolist(), strict=True))
    assert np.isnan(values[("horror",)][0])
    assert values[("horror",)][1] == 0
    rows = json.loads(json.dumps(found.to_json()))["differences"]
    assert {row["level"]["kind"]: row["first"] for row in rows}["horror"] is None
    assert "horror" in found._repr_html_()
    names = ["kind", "first", "second", "difference", "standard_error"]
    assert found.table.column_names == names
    assert np.isnan(found.standard_errors[found.labels.index(("horror",))])
