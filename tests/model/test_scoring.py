import numpy as np
import pytest

from pmflib.model import JointPMF
from pmflib.model.scoring import answer_questions, judge_answers
from pmflib.schema import Schema, Variable
from tests.reference import make_codes, make_model

SCHEMA = Schema(
    (
        Variable("smokes", ("no", "yes")),
        Variable("rating", ("1", "2", "5"), (1.0, 2.0, 5.0)),
    )
)


@pytest.fixture
def model():
    return JointPMF(*make_model(np.random.default_rng(0), [2, 3], 2), SCHEMA)


@pytest.fixture
def codes():
    return make_codes(np.random.default_rng(1), 6, [2, 3])


def test_answer_questions__own_column_is_not_looked_at(model, codes):
    variables = np.array([0, 1, 0, 1, 1, 0])
    truths = np.array([1, 2, -1, 0, -1, 0])
    answers = answer_questions(codes, variables, truths, model)
    for row, (place, truth) in enumerate(zip(variables.tolist(), truths.tolist(), strict=True)):
        pmf = model.predict_proba(codes[[row]], place)[0]
        variable = SCHEMA[place]
        assert answers["label"][row].as_py() == variable.levels[pmf.argmax()]
        assert answers["probability"][row].as_py() == pytest.approx(pmf.max(), rel=1e-14)
        expected = None if place == 0 else pytest.approx(pmf @ [1.0, 2.0, 5.0], rel=1e-14)
        assert answers["expected"][row].as_py() == expected
        log_prob = None if truth < 0 else pytest.approx(np.log(pmf[truth]), rel=1e-13)
        assert answers["log_prob"][row].as_py() == log_prob


def test_judge_answers__known_truths_only(model):
    import pyarrow as pa

    answers = pa.table(
        {
            "label": ["yes", "5", "1", "no"],
            "expected": [None, 4.0, 2.0, None],
            "log_prob": [-1.0, -2.0, None, -3.0],
        }
    )
    judged = judge_answers(answers, np.array([0, 1, 1, 0]), np.array([1, 1, -1, 1]), model)
    assert judged == {"judged": 3.0, "accuracy": 1 / 3, "log_prob": -2.0, "rmse": 2.0, "mae": 2.0}
    assert judge_answers(answers, np.zeros(4, int), np.full(4, -1), model) == {}
