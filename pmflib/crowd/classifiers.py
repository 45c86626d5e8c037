"""A classifier beside the workers: class probabilities of tasks, worth what their agreement with the labels shows.

A classifier that was trained on some of the tasks, or on others, says something of every task. How far it can be
believed is learnt like the reliability of a worker: from how often it meets the latent class. Its log-probabilities
count with a power, and classes have intercepts, that make the labels of the log most probable; a power of 0 is a
classifier that says nothing, one below 1 a classifier that is too sure of itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from pmflib.core.arrays import FLOOR, FloatArray
from pmflib.core.errors import SchemaError
from pmflib.core.texts import abridge_names, fold_text
from pmflib.schema.tables import as_arrow
from pmflib.schema.variable import as_text

TASK = "task"
"""Column of the tasks, in the table of a classifier; each other column is a class."""
LEAST_PROBABILITY = 1e-4
"""Probability of a classifier below which it counts as this: none is sure beyond what its training showed."""
MOST_LEARNT = 100_000
"""Tasks that its worth is learnt from; of more, one of so many: the power is then known to a hundredth of itself."""
SHOWN = 3
"""Tasks that an error names."""
FIRST_POWER = 0.3
"""Power that the search starts from: at 0 it would stand still if classes had no intercepts."""


def read_classifier(table: object, tasks: pa.Array, classes: pa.Array) -> FloatArray:
    """Class probabilities of the tasks of a log, float64 of shape (n_tasks, n_classes), NaN where there are none.

    Parameters
    ----------
    table
        Columns task and one for each class, named as the class: a pandas or polars frame, an Arrow table or a mapping
        of columns. Rows are scaled to add up to 1; rows of other tasks, and columns of no class, are left out.
    tasks, classes
        What tasks and classes of the log are called.

    Raises
    ------
    SchemaError
        If a column is absent, a task stands twice, a probability is negative or not finite, a row has none, or no row
        is of a task of the log.
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
    """Names of the columns of the tasks and of each class, in a table of a classifier.

    Parameters
    ----------
    columns
        Names of the columns that there are.
    task
        Name of the column of the tasks.
    classes
        Names of the classes; case and Unicode composition do not count.

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
    """Scale the rows of a classifier to add up to 1, float64 of shape (n_rows, n_classes).

    Parameters
    ----------
    tasks
        Names of the tasks.
    given
        float64 of shape (n_rows, n_classes), at least 0.

    Raises
    ------
    SchemaError
        If a task stands twice, a probability is negative or not finite, or a row has none.
    """
    totals = given.sum(axis=1)
    sound = (np.isfinite(given) & (given >= 0)).all(axis=1) & (totals > 0)
    if not sound.all():
        row = int(np.flatnonzero(~sound)[0])
        raise SchemaError(
            f"classifier gives task {tasks[row]!r} the probabilities {given[row].tolist()}; give finite numbers of at "
            "least 0, not all 0, or leave its row out"
        )
    rows_of = {text: row for row, text in enumerate(tasks)}
    if len(rows_of) < len(tasks):
        twice = next(text for row, text in enumerate(tasks) if rows_of[text] != row)
        raise SchemaError(f"classifier has task {twice!r} more than once; give a row for each task")
    return np.asarray(given / totals[:, None])


def refuse_strange_tasks(name: str, given: Sequence[str | None], there: str = "") -> NoReturn:
    """Refuse a classifier none of whose tasks is in the log.

    Parameters
    ----------
    name
        What it is called.
    given
        Its tasks.
    there
        What the log has, as a clause.

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
class ClassifierWorth:
    """What the probabilities of a classifier are worth beside the labels of a log.

    Parameters
    ----------
    power
        Power of the probabilities: 0 where they say nothing, 1 where they need no change.
    intercepts
        float64 of shape (n_classes,), nats: what is added to their logarithms.
    prior
        float64 of shape (n_classes,): that of the probabilities that it is compared with.
    """

    power: float
    intercepts: FloatArray
    prior: FloatArray

    @classmethod
    def learn(cls, predictions: FloatArray, probabilities: FloatArray) -> ClassifierWorth:
        """Find the power and intercepts that make the labels of the log most probable.

        Parameters
        ----------
        predictions
            float64 of shape (n_tasks, n_classes), as from `read_classifier`.
        probabilities
            float64 of shape (n_tasks, n_classes): of the classes by the labels alone, calibrated.

        References
        ----------
        Raykar et al. (2010), Learning from crowds, JMLR 11, section 2: labels of workers and a classifier, independent
        given the class; Platt (1999), for the form of the classifier's own calibration.
        """
        from scipy.optimize import minimize

        prior = probabilities.mean(axis=0) + FLOOR
        prior /= prior.sum()
        rows = ~np.isnan(predictions).any(axis=1)
        logs, ratios = _take_logs(predictions[rows]), probabilities[rows] / prior
        usual = np.log(prior)

        def measure(values: FloatArray) -> tuple[float, FloatArray]:
            """Minus the log-probability of the labels and of the values, and its gradient."""
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
        """Probabilities of the classes by labels and classifier, as for `learn`; those by labels where it has none."""
        rows = np.flatnonzero(~np.isnan(predictions).any(axis=1))
        said = _normalise(self.power * _take_logs(predictions[rows]) + self.intercepts)
        together = probabilities.copy()
        both = probabilities[rows] * said / self.prior
        together[rows] = both / both.sum(axis=1, keepdims=True)
        return together


def _take_logs(predictions: FloatArray) -> FloatArray:
    """Log-probabilities about their mean, by row."""
    logs = np.log(np.maximum(predictions, LEAST_PROBABILITY))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))


def _normalise(logs: FloatArray) -> FloatArray:
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
