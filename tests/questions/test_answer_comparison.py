import json

import numpy as np
import pytest

from pmflib.model import JointPMF
from pmflib.questions import compare_answers
from pmflib.schema import Schema, Variable
from tests.questions.question_models import SURVEY, draw_counts, make_survey


def test_compare_answers__differences_and_total_variation():
    one, other = make_survey(0), make_survey(1)
    found = compare_answers(one, other, "P(stars | kind=drama)")
    first, second = (each.marginal(["stars"], {"kind": "drama"}) for each in (one, other))
    for labels, difference in zip(found.labels, found.differences, strict=True):
        code = int(labels[0]) - 1
        assert difference == pytest.approx(second[code] - first[code])
    assert found.total_variation == pytest.approx(np.abs(first - second).sum() / 2)
    assert found.standard_errors is None
    single = compare_answers(one, other, "E(stars)")
    assert single.total_variation is None
    assert single.differences[0] == pytest.approx(
        other.ask("E(stars)").value - one.ask("E(stars)").value
    )


def test_compare_answers__errors_allow_for_shared_samples():
    model = make_survey(0)
    counts, others = draw_counts(model, 3000, 0), draw_counts(model, 3000, 1)
    same = compare_answers(model, model, "P(stars=4)", (counts, counts))
    assert same.is_paired
    np.testing.assert_allclose(same.standard_errors, 0, atol=1e-12)
    apart = compare_answers(model, model, "P(stars=4)", (counts, others))
    errors = [model.ask("P(stars=4)", each).standard_error for each in (counts, others)]
    assert apart.standard_errors[0] == pytest.approx(np.hypot(*errors), rel=0.6)
    fewer = compare_answers(model, model, "P(stars=4)", (counts, draw_counts(model, 3000, 1, 4)))
    assert not fewer.is_paired
    assert any("none in common" in text for _, text in fewer.summary().facts)


def test_compare_answers__levels_of_one_schema_alone():
    model = make_survey(0)
    wider = Variable("kind", ("drama", "comedy", "horror", "other"), other="other")
    schema = Schema(tuple(wider if each.name == "kind" else each for each in SURVEY))
    factors = np.insert(model.factors, 6, 0.0, axis=0)
    found = compare_answers(model, JointPMF(model.prior, factors, schema), "P(kind)")
    values = dict(zip(found.labels, found.numbers.tolist(), strict=True))
    assert np.isnan(values[("horror",)][0])
    assert values[("horror",)][1] == 0
    rows = json.loads(json.dumps(found.to_json()))["differences"]
    assert {row["level"]["kind"]: row["first"] for row in rows}["horror"] is None
    assert "horror" in found._repr_html_()
    assert found.table.column_names == ["kind", "first", "second", "difference"]
