"""Answers as tables: one row per sample, or one row per question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pmflib.arrays import FloatArray, IntArray
from pmflib.level_blocks import FLOOR
from pmflib.model import JointPMF
from pmflib.model.target_measures import TargetSums, judge_target


def score_samples(
    codes: IntArray,
    model: JointPMF,
    targets: Sequence[str | int],
    samples: Sequence[str],
    rows: IntArray,
    *,
    probabilities: bool = False,
    keep: Sequence[str] = (),
) -> tuple[pa.Table, list[TargetSums]]:
    """Score whole samples, and predict some variables of each from its others.

    Parameters
    ----------
    codes
        Shape (n_rows, n_variables), -1 missing.
    model
        The model.
    targets
        Variables to predict.
    samples, rows
        Identifiers and source rows of the samples, "" and -1 where there are none.
    probabilities
        Whether the probability of every level of a target is wanted, too.
    keep
        Names of variables whose levels are passed through.

    Returns
    -------
    Columns sample, row, the variables that are kept (null where missing), log_prob (nats), state (most probable latent
    state), and for each target T: T.label, T.probability, T.expected where T is ordinal, and T=L for each level L if
    they are wanted; and how good the predictions of each target are, where its level is in the codes.
    """
    columns: dict[str, pa.Array] = {
        "sample": pa.array(list(samples), pa.string()),
        "row": pa.array(rows, pa.int64()),
        **{name: _take_labels(codes, model, name) for name in keep},
        "log_prob": pa.array(model.log_prob(codes), pa.float64()),
        "state": pa.array(model.posterior(codes).argmax(axis=1), pa.int32()),
    }
    judged = []
    for target in targets:
        variable = model.schema[target]
        pmf = model.predict_proba(codes, target)
        judged.append(judge_target(pmf, codes[:, model.schema.position(target)]))
        labels, chances, expected = _read_pmf(pmf, model, target)
        columns[f"{variable.name}.label"] = labels
        columns[f"{variable.name}.probability"] = chances
        if expected is not None:
            columns[f"{variable.name}.expected"] = expected
        if probabilities:
            for place, level in enumerate(variable.levels):
                columns[f"{variable.name}={level}"] = pa.array(pmf[:, place])
    return pa.table(columns), judged


def _take_labels(codes: IntArray, model: JointPMF, name: str) -> pa.Array:
    """Levels of a variable, null where missing."""
    held = codes[:, model.schema.position(name)].astype(np.int64)
    levels = pa.array(model.schema[name].levels, pa.string())
    return levels.take(pa.array(held, mask=held < 0))


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
    not known).
    """
    known = codes.copy()
    known[np.arange(len(known)), variables] = -1
    posteriors = model.posterior(known)
    label = np.full(len(known), "", object)
    probability, expected, log_prob = (np.full(len(known), np.nan) for _ in range(3))
    for place in np.unique(variables):
        rows = np.flatnonzero(variables == place)
        variable = model.schema[int(place)]
        pmf = posteriors[rows] @ model.factor(int(place)).T
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


def _read_pmf(
    pmf: FloatArray, model: JointPMF, target: str | int
) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    variable = model.schema[target]
    best = pmf.argmax(axis=1)
    labels = pa.array(variable.levels, pa.string()).take(pa.array(best))
    chances = pa.array(pmf[np.arange(len(pmf)), best] if len(pmf) else np.empty(0))
    expected = None if variable.values is None else pa.array(pmf @ variable.numeric_values())
    return labels, chances, expected
