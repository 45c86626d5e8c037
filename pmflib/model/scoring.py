"""Answers to questions about samples as tables: one row per question."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pmflib.arrays import IntArray
from pmflib.blocks import DenseBlock
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF


def answer_questions(
    codes: IntArray, variables: IntArray, truths: IntArray, model: JointPMF
) -> dict[str, pa.Array]:
    """Predict one variable of each sample from its others.

    Parameters
    ----------
    codes
        Shape (n_questions, n_variables): what is known of the sample, -1 where nothing is.
    variables
        int64 of shape (n_questions,): variable to predict in each row; its own column is ignored.
    truths
        Codes of the true answers, -1 where not known; shape (n_questions,).
    model
        The model.

    Returns
    -------
    Columns label, probability, expected (null where not ordinal) and log_prob of the true answer (nats; null where
    not known). Rows are folded in where the model has traits.
    """
    known = codes.copy()
    known[np.arange(len(known)), variables] = -1
    if model.trait_model is None:
        posteriors = model.posterior(known)
    else:
        block = DenseBlock(model.schema.check_codes(known))
        folded = model.trait_model.predict_cells(block, np.arange(len(known)), variables)
    label = np.full(len(known), "", object)
    probability, expected, log_prob = (np.full(len(known), np.nan) for _ in range(3))
    for place in np.unique(variables):
        rows = np.flatnonzero(variables == place)
        variable = model.schema[int(place)]
        if model.trait_model is None:
            pmf = model.predict_hidden(known[rows], posteriors[rows], int(place))
        else:
            pmf = folded[rows, : variable.cardinality]
        best = pmf.argmax(axis=1)
        label[rows] = np.array(variable.levels, object)[best]
        probability[rows] = pmf[np.arange(rows.size), best]
        if variable.values is not None:
            expected[rows] = pmf @ variable.numeric_values()
        truth = truths[rows]
        chance = np.maximum(pmf[np.arange(rows.size), np.maximum(truth, 0)], FLOOR)
        log_prob[rows] = np.where(truth >= 0, np.log(chance), np.nan)
    return {
        "label": pa.array(label, pa.string()),
        "probability": pa.array(probability),
        "expected": pa.array(expected, from_pandas=True),
        "log_prob": pa.array(log_prob, from_pandas=True),
    }


def judge_answers(
    answers: pa.Table, variables: IntArray, truths: IntArray, model: JointPMF
) -> dict[str, float]:
    """Judge answers where the truth is known.

    Parameters
    ----------
    answers
        Columns label, expected and log_prob, one row per question.
    variables, truths
        int64 of shape (n_questions,): place of the variable, and code of the true answer, negative where not known.
    model
        The model that answered.

    Returns
    -------
    Number of questions with a known truth; accuracy and mean log-probability (nats) over them; root mean squared and
    mean absolute error over those of ordinal variables. Empty if there is none.
    """
    judged = np.flatnonzero((truths >= 0) & (variables >= 0))
    if not judged.size:
        return {}
    labels = answers["label"].to_pylist()
    expected = answers["expected"].to_numpy()
    errors, n_correct = [], 0
    for question in judged.tolist():
        variable = model.schema[int(variables[question])]
        truth = int(truths[question])
        n_correct += labels[question] == variable.levels[truth]
        if variable.values is not None:
            errors.append(expected[question] - variable.values[truth])
    out = {
        "judged": float(judged.size),
        "accuracy": n_correct / judged.size,
        "log_prob": float(np.mean(answers["log_prob"].to_numpy()[judged])),
    }
    if errors:
        out["rmse"] = float(np.sqrt(np.mean(np.square(errors))))
        out["mae"] = float(np.mean(np.abs(errors)))
    return out
