import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone

import pmflib as pmf
from pmflib.base import SchemaError
from tests.apps.crowd.label_logs import draw_log

CLASSES = {
    pmf.crowd.CrowdAggregator: "auto",
    pmf.crowd.DawidSkene: "dawid_skene",
    pmf.crowd.OneCoinDawidSkene: "one_coin",
    pmf.crowd.MajorityVote: "majority",
}


@pytest.fixture(scope="module")
def log():
    sizes = {"n_tasks": 100, "n_workers": 8, "n_classes": 2, "n_labels": 3}
    return draw_log(np.random.default_rng(0), **sizes)[0]


@pytest.mark.parametrize(("estimator_class", "method"), CLASSES.items())
def test_fit__is_the_method(log, estimator_class, method):
    estimator = estimator_class(n_iter=500)
    assert estimator.fit(log) is estimator
    expected = pmf.crowd.aggregate(log, method, max_passes=500)
    np.testing.assert_array_equal(estimator.result_.posterior, expected.posterior)


def test_labels__before_fit():
    with pytest.raises(pmf.PmfError, match="DawidSkene is not fitted; call fit first"):
        pmf.crowd.DawidSkene().labels_  # noqa: B018


def test_labels__without_pandas_say_so(log, monkeypatch):
    import importlib

    find = importlib.import_module

    def refuse(name):
        if name == "pandas":
            raise ImportError(name)
        return find(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(pmf.PmfError, match="pandas is not installed"):
        pmf.crowd.MajorityVote().fit_predict(log)


def test_frames__are_by_task_worker_and_label(log):
    frame = pandas.DataFrame({**log, "task": [f"t{task:03}" for task in log["task"]]})
    estimator = pmf.crowd.DawidSkene(n_iter=500)
    labels = estimator.fit_predict(frame)
    assert labels.index.name == "task"
    assert labels["t007"] == estimator.result_.labels["label"][7].as_py()
    assert estimator.probas_.loc["t007"].sum() == pytest.approx(1)
    assert estimator.errors_.index.names == ["worker", "label"]
    np.testing.assert_allclose(estimator.errors_.groupby("worker").sum(), 1)
    assert estimator.priors_.sum() == pytest.approx(1)
    assert estimator.skills_.between(0, 1).all()


@pytest.mark.filterwarnings("ignore")  # of crowd-kit about pandas
def test_frames__agree_with_crowd_kit(log):
    peers = pytest.importorskip("crowdkit.aggregation")
    frame = pandas.DataFrame(log)
    theirs = peers.DawidSkene(n_iter=200, tol=1e-10).fit(frame)
    ours = pmf.crowd.DawidSkene(n_iter=5000, tol=1e-10).fit(frame)
    assert (ours.labels_ == theirs.labels_.loc[ours.labels_.index]).mean() > 0.98


def make_matrix(log):
    """Labels of a log, tasks by workers."""
    result = pmf.crowd.MajorityVote().fit(log).result_
    matrix = np.full((result.log.n_tasks, result.log.n_workers), None, object)
    owners, codes = np.divmod(result.log.block.indices, result.log.n_classes)
    rows = np.repeat(np.arange(result.log.n_tasks), np.diff(result.log.block.indptr))
    matrix[rows, owners] = codes.astype(object)
    return matrix


@pytest.mark.parametrize(
    "convert",
    [
        lambda matrix: matrix,
        lambda matrix: np.where(matrix == None, np.nan, matrix).astype(float),  # noqa: E711
        lambda matrix: np.where(matrix == None, -1, matrix).astype(int),  # noqa: E711
        lambda matrix: pandas.DataFrame(matrix),
        lambda matrix: pandas.DataFrame(matrix).astype("Int64"),
        lambda matrix: polars.DataFrame(
            {f"w{index}": list(column) for index, column in enumerate(matrix.T)}
        ),
    ],
    ids=["objects", "floats", "integers", "pandas", "nullable", "polars"],
)
def test_fit__matrix_is_the_log(log, convert):
    matrix = make_matrix(log)
    matrix[3] = None
    given = convert(matrix)
    estimator = pmf.crowd.CrowdAggregator().fit(given)
    rows, columns = np.nonzero(matrix != None)  # noqa: E711
    # a task without a label is known, and gets the prior and no class
    table = {
        "task": [*rows.tolist(), 3],
        "worker": [*columns.tolist(), 0],
        "label": [*matrix[rows, columns].tolist(), None],
    }
    expected = pmf.crowd.aggregate(table, max_passes=estimator.n_iter, tol=estimator.tol)
    np.testing.assert_allclose(estimator.result_.posterior, expected.posterior)
    np.testing.assert_allclose(estimator.probas_.to_numpy(), expected.probabilities)
    np.testing.assert_allclose(expected.posterior[3], estimator.priors_)
    assert estimator.labels_.index.tolist() == list(range(len(matrix)))
    assert estimator.labels_.isna().tolist() == [task == 3 for task in range(len(matrix))]
    assert set(estimator.labels_.dropna()) <= {0, 1}


def test_fit__matrix_with_tasks_that_have_names():
    frame = pandas.DataFrame(
        {"ann": ["x", "y", None], "bob": ["x", "y", "y"]}, index=["t1", "t2", "t3"]
    )
    labels = pmf.crowd.CrowdAggregator().fit_predict(frame)
    assert labels.to_dict() == {"t1": "x", "t2": "y", "t3": "y"}
    with pytest.raises(SchemaError, match="a task twice in its index"):
        pmf.crowd.aggregate(pandas.concat([frame, frame]))
    with pytest.raises(SchemaError, match=r"shape \(0, 3\); pass one of shape"):
        pmf.crowd.aggregate(np.empty((0, 3)))
    with pytest.raises(SchemaError, match=r"shape \(3,\); pass one of shape"):
        pmf.crowd.aggregate(np.empty(3))
    # a log that lacks a column is no matrix
    with pytest.raises(SchemaError, match=r"columns \['worker'\] are absent"):
        pmf.crowd.aggregate(pandas.DataFrame({"task": [1], "label": [1], "who": [2]}))


def test_clone__same_parameters_not_fitted(log):
    estimator = pmf.crowd.CrowdAggregator(n_iter=500).fit(log)
    copied = clone(estimator)
    assert copied.get_params() == {"n_iter": 500, "tol": estimator.tol}
    assert not hasattr(copied, "result_")
    assert repr(copied) == "CrowdAggregator(n_iter=500)"
