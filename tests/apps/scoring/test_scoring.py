import numpy as np
import pytest

import pmflib as pmf
from pmflib_tasks.questions import answer_questions, score_answers
from tests.reference import make_codes, make_model

SCHEMA = pmf.Schema(
    (
        pmf.Variable("smokes", ("no", "yes")),
        pmf.Variable("rating", ("1", "2", "5"), (1.0, 2.0, 5.0)),
    )
)


@pytest.fixture
def model():
    return pmf.JointPMF(*make_model(np.random.default_rng(0), [2, 3], 2), SCHEMA)


@pytest.fixture
def codes():
    return make_codes(np.random.default_rng(1), 6, [2, 3])


def test_answer_questions__own_column_is_not_looked_at(model, codes):
    variables = np.array([0, 1, 0, 1, 1, 0])
    truths = np.array([1, 2, -1, 0, -1, 0])
    answers = answer_questions(codes, variables, truths, model)
    for row, (position, truth) in enumerate(zip(variables.tolist(), truths.tolist(), strict=True)):
        probabilities = model.predict_proba(codes[[row]], position)[0]
        variable = SCHEMA[position]
        assert answers["label"][row].as_py() == variable.levels[probabilities.argmax()]
        assert answers["probability"][row].as_py() == pytest.approx(probabilities.max(), rel=1e-14)
        expected = (
            None if position == 0 else pytest.approx(probabilities @ [1.0, 2.0, 5.0], rel=1e-14)
        )
        assert answers["expected"][row].as_py() == expected
        log_prob = None if truth < 0 else pytest.approx(np.log(probabilities[truth]), rel=1e-13)
        assert answers["log_prob"][row].as_py() == log_prob


def test_score_answers__known_truths_only(model):
    import pyarrow as pa

    answers = pa.table(
        {
            "label": ["yes", "5", "1", "no"],
            "expected": [None, 4.0, 2.0, None],
            "log_prob": [-1.0, -2.0, None, -3.0],
        }
    )
    scored = score_answers(answers, np.array([0, 1, 1, 0]), np.array([1, 1, -1, 1]), model)
    errors = {"rating": {"cells": 1, "rmse": 2.0, "mae": 2.0}}
    assert scored == {"judged": 3.0, "accuracy": 1 / 3, "log_prob": -2.0, "errors": errors}
    assert score_answers(answers, np.zeros(4, int), np.full(4, -1), model) == {}


def test_score_answers__errors_of_one_scale_alone_are_pooled():
    import pyarrow as pa

    schema = pmf.Schema((*SCHEMA, pmf.Variable("income", ("0", "9000"), (0.0, 9000.0))))
    model = pmf.JointPMF(*make_model(np.random.default_rng(0), [2, 3, 2], 2), schema)
    answers = pa.table(
        {"label": ["5", "0", "0"], "expected": [4.0, 1000.0, 3000.0], "log_prob": [-1.0] * 3}
    )
    scored = score_answers(answers, np.array([1, 2, 2]), np.array([1, 0, 0]), model)
    assert scored["errors"] == {
        "rating": {"cells": 1, "rmse": 2.0, "mae": 2.0},
        "income": {"cells": 2, "rmse": pytest.approx(np.sqrt(5e6)), "mae": 2000.0},
    }
