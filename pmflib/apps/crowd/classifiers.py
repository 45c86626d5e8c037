"""Combine the labels of workers with the class probabilities of a classifier.

The reliability of the classifier is learnt like that of a worker, from its agreement with the latent classes. Its
log-probabilities are multiplied by a power, and intercepts of the classes are added; both maximise the probability of
the labels. A power of 0 means an uninformative classifier, a power below 1 an overconfident one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import FLOOR, FloatArray
from pmflib.base.constraints import check_distinct
from pmflib.base.errors import SchemaError
from pmflib.base.texts import abridge_names, fold_text
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import as_text

TASK = "task"
"""Column of the tasks in the table of a classifier; each other column is a class."""
LEAST_PROBABILITY = 1e-4
"""Floor of the probabilities of a classifier: no training set justifies more certainty."""
MOST_LEARNT = 100_000
"""Limit of the number of tasks that the power is learnt from, about: they determine it to a hundredth."""
SHOWN = 3
"""Number of tasks in an error message."""
FIRST_POWER = 0.3
"""Power that the search starts from: 0 would be a stationary point without intercepts."""


def read_classifier(table: object, tasks: pa.Array, classes: pa.Array) -> FloatArray:
    """Read class probabilities of the tasks of a log: float64 of shape (n_tasks, n_classes), NaN for absent tasks.

    Parameters
    ----------
    table
        Column task, and a column for each class, named like it: a pandas or polars frame, an Arrow table or a mapping
        of columns. Rows are scaled to sum to 1; rows of other tasks and further columns are ignored.
    tasks, classes
        Names of the tasks and classes of the log.

    Raises
    ------
    SchemaError
        If a column is absent, a task is repeated, a probability is negative or not finite, a row has only zeros, or no
        row is of a task of the log.
    """
    columns = as_arrow(table)
    task, *names = pick_columns(columns.column_names, TASK, classes.to_pylist())
    given = [np.asarray(columns.column(name).to_numpy(), np.float64) for name in names]
    texts = [
        None if value is None else as_text(value).strip() for value in columns[task].to_pylist()
    ]
    shares = scale_predictions(texts, np.stack(given, axis=1))
    rows_of = {text: row for row, text in enumerate(texts)}
    found = np.array([rows_of.get(as_text(name).strip(), -1) for name in tasks.to_pylist()], int)
    if not (found >= 0).any():
        there = abridge_names(tasks.slice(0, SHOWN).to_pylist())
        refuse_strange_tasks("classifier", texts, f", the log {there}")
    return np.where(found[:, None] >= 0, shares[found], np.nan)


def pick_columns(columns: Sequence[str], task: str, classes: Sequence[object]) -> list[str]:
    """Find the columns of the tasks and of each class in the table of a classifier.

    Parameters
    ----------
    columns
        Names of the columns.
    task
        Name of the column of the tasks.
    classes
        Names of the classes; case and Unicode composition are ignored.

    Raises
    ------
    SchemaError
        If a column is absent.
    """
    places = {fold_text(name): name for name in columns}
    names = [task, *(as_text(name) for name in classes)]
    if absent := [name for name in names if fold_text(name) not in places]:
        raise SchemaError(
            f"classifier has no columns {abridge_names(absent)}; it has {abridge_names(columns)}: give column "
            f"{task!r}, and one for each class of the log"
        )
    return [places[fold_text(name)] for name in names]


def scale_predictions(tasks: Sequence[str | None], given: FloatArray) -> FloatArray:
    """Scale the rows of a classifier to sum to 1, float64 of shape (n_rows, n_classes).

    Parameters
    ----------
    tasks
        Names of the tasks.
    given
        float64 of shape (n_rows, n_classes), at least 0.

    Raises
    ------
    SchemaError
        If a task is repeated, a probability is negative or not finite, or a row has only zeros.
    """
    totals = given.sum(axis=1)
    sound = (np.isfinite(given) & (given >= 0)).all(axis=1) & (totals > 0)
    if not sound.all():
        row = int(np.flatnonzero(~sound)[0])
        raise SchemaError(
            f"classifier gives task {tasks[row]!r} the probabilities {given[row].tolist()}; give finite numbers of at "
            "least 0, not all 0, or leave out the row"
        )
    check_distinct(tasks, "classifier has tasks")
    return np.asarray(given / totals[:, None])


def refuse_strange_tasks(name: str, given: Sequence[str | None], there: str = "") -> NoReturn:
    """Refuse a classifier without a task of the log.

    Parameters
    ----------
    name
        Name of the classifier.
    given
        Tasks of the classifier.
    there
        Tasks of the log, as a clause.

    Raises
    ------
    SchemaError
        Always.
    """
    raise SchemaError(
        f"{name} has none of the tasks of the log: it has {abridge_names(given[:SHOWN])}{there}; name tasks as "
        "the log does"
    )


@dataclass(frozen=True, eq=False)
class ClassifierReliability:
    """Weight of the probabilities of a classifier relative to the labels of a log.

    Parameters
    ----------
    power
        Power of the probabilities: 0 for an uninformative classifier, 1 for a calibrated one.
    intercepts
        float64 of shape (n_classes,), nats: added to the tempered log-probabilities.
    prior
        float64 of shape (n_classes,): class prior of the probabilities by labels.
    """

    power: float
    intercepts: FloatArray
    prior: FloatArray

    @classmethod
    def learn(cls, predictions: FloatArray, probabilities: FloatArray) -> ClassifierReliability:
        """Find the power and intercepts that make the labels of the log most probable.

        Parameters
        ----------
        predictions
            float64 of shape (n_tasks, n_classes), as from `read_classifier`.
        probabilities
            float64 of shape (n_tasks, n_classes): calibrated probabilities by the labels alone.

        References
        ----------
        Raykar et al. (2010), Learning from crowds, JMLR 11, section 2, for labels and a classifier that are independent
        given the class; Platt (1999), for the form of the calibration.
        """
        from scipy.optimize import minimize

        prior = probabilities.mean(axis=0) + FLOOR
        prior /= prior.sum()
        rows = ~np.isnan(predictions).any(axis=1)
        logs, ratios = _take_logs(predictions[rows]), probabilities[rows] / prior
        usual = np.log(prior)

        def measure(values: FloatArray) -> tuple[float, FloatArray]:
            """Negative log-posterior of the values, and its gradient."""
            said = _normalise(values[0] * logs + values[1:])
            both = said * ratios
            totals = np.maximum(both.sum(axis=1, keepdims=True), FLOOR)
            ahead = said - both / totals
            away = values[1:] - usual
            loss = -float(np.log(totals).sum()) + 0.5 * float(values[0] ** 2 + away @ away)
            return loss, np.concatenate(
                [[float((ahead * logs).sum()) + values[0]], ahead.sum(axis=0) + away]
            )

        start = np.concatenate([[FIRST_POWER], usual])
        best = minimize(measure, start, jac=True, method="L-BFGS-B").x
        return cls(float(best[0]), best[1:], prior)

    def add(self, predictions: FloatArray, probabilities: FloatArray) -> FloatArray:
        """Combine both probabilities, as for `learn`; tasks without predictions keep theirs."""
        rows = np.flatnonzero(~np.isnan(predictions).any(axis=1))
        said = _normalise(self.power * _take_logs(predictions[rows]) + self.intercepts)
        together = probabilities.copy()
        both = probabilities[rows] * said / self.prior
        together[rows] = both / both.sum(axis=1, keepdims=True)
        return together


def _take_logs(predictions: FloatArray) -> FloatArray:
    """Log-probabilities minus their mean, by row."""
    logs = np.log(np.maximum(predictions, LEAST_PROBABILITY))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))


def _normalise(logs: FloatArray) -> FloatArray:
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
