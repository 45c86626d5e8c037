"""Estimators of true labels with the conventions of scikit-learn and crowd-kit."""

from __future__ import annotations

import importlib
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from pmflib.apps.crowd.aggregation import aggregate
from pmflib.apps.crowd.methods import LABEL_LIMITS
from pmflib.apps.crowd.true_labels import Aggregation
from pmflib.base.errors import PmfError


class CrowdAggregator(BaseEstimator):  # type: ignore[misc]
    """Estimate true labels from the labels of many workers: the default method of `aggregate`.

    Like a clustering, it labels the tasks that it is fitted to. It fits the model of Dawid and Skene with shrunk
    confusion matrices.

    Parameters
    ----------
    n_iter
        Limit of the number of passes, at least 1.
    tol
        Largest share of the labels that the last pass may move between classes.

    Attributes
    ----------
    labels_
        Series by task: the most probable label.
    probas_
        Frame, tasks by labels: probabilities.
    priors_
        Series by label: probabilities.
    errors_
        Frame by worker and given label, with a column for each true label: probabilities of the given labels.
    skills_
        Series by worker: accuracies.
    result_
        The `Aggregation`.

    Notes
    -----
    Attributes are pandas objects, and need pandas. Tasks are sorted; those of an array are its rows in order.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([["a", "a", "b"], ["b", "b", None], [None, "a", "a"], ["b", "b", "b"]], object)
    >>> CrowdAggregator().fit_predict(labels).tolist()
    ['a', 'b', 'a', 'b']
    """

    method: str = "auto"

    def __init__(
        self, n_iter: int = LABEL_LIMITS.max_passes, tol: float = LABEL_LIMITS.tol
    ) -> None:
        self.n_iter = n_iter
        self.tol = tol

    def fit(self, data: object, y: object = None) -> Self:
        """Estimate the true labels.

        Parameters
        ----------
        data
            Columns task, worker, label, or a matrix of tasks by workers with gaps, as for `aggregate`.
        y
            Not used.

        Returns
        -------
        The estimator.
        """
        self.result_: Aggregation = aggregate(
            data, self.method, max_passes=self.n_iter, tol=self.tol
        )
        return self

    def fit_predict(self, data: object, y: object = None) -> Any:
        """Do `fit`, and return ``labels_``."""
        return self.fit(data).labels_

    def fit_predict_proba(self, data: object, y: object = None) -> Any:
        """Do `fit`, and return ``probas_``."""
        return self.fit(data).probas_

    @property
    def labels_(self) -> Any:
        """Most probable label of every task."""
        labels = self._result.labels
        return _pandas().Series(
            labels["label"].to_pylist(), index=self._index("task"), name="agg_label"
        )

    @property
    def probas_(self) -> Any:
        """Probability of every label of every task."""
        return _pandas().DataFrame(
            self._result.probabilities, index=self._index("task"), columns=self._index("label")
        )

    @property
    def priors_(self) -> Any:
        """Probability of every label."""
        return _pandas().Series(self._result.prior, index=self._index("label"), name="prior")

    @property
    def skills_(self) -> Any:
        """Accuracy of every worker."""
        return _pandas().Series(self._result.accuracy, index=self._index("worker"), name="skill")

    @property
    def errors_(self) -> Any:
        """Probability of a worker's label (row) for a task of some true label (column)."""
        log = self._result.log
        rows = _pandas().MultiIndex.from_product(
            [log.workers.to_pylist(), log.classes.to_pylist()], names=["worker", "label"]
        )
        flat = np.ascontiguousarray(self._result.confusion).reshape(len(rows), -1)
        return _pandas().DataFrame(flat, index=rows, columns=self._index("label"))

    @property
    def _result(self) -> Aggregation:
        if not hasattr(self, "result_"):
            raise PmfError(f"{type(self).__name__} is not fitted; call fit first")
        return self.result_

    def _index(self, name: str) -> Any:
        log = self._result.log
        names = {"task": log.tasks, "worker": log.workers, "label": log.classes}[name]
        return _pandas().Index(names.to_pylist(), name=name)


class DawidSkene(CrowdAggregator):
    """Dawid-Skene by maximum likelihood, started from the votes, like crowd-kit's class of this name."""

    method: str = "dawid_skene"


class OneCoinDawidSkene(CrowdAggregator):
    """Dawid-Skene with one accuracy per worker."""

    method: str = "one_coin"


class MajorityVote(CrowdAggregator):
    """Majority vote; the first label wins ties."""

    method: str = "majority"


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise PmfError(
            "attributes of this estimator are pandas objects, and pandas is not installed; install it, or use "
            "result_, which does not need it"
        ) from error
