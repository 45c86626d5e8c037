import numpy as np
import pandas
import pytest

from pmflib.crowd import CrowdAggregator, DawidSkene, MajorityVote, OneCoinDawidSkene, aggregate
from pmflib.errors import PmfError
from tests.crowd.label_logs import draw_log

CLASSES = {
    CrowdAggregator: "auto",
    DawidSkene: "dawid_skene",
    OneCoinDawidSkene: "one_coin",
    MajorityVote: "majority",
}


@pytest.fixture(scope="module")
def log():
    sizes = {"n_tasks": 100, "n_workers": 8, "n_classes": 2, "n_labels": 3}
    return draw_log(np.random.default_rng(0), **sizes)[0]


@pytest.mark.parametrize(("estimator_class", "method"), CLASSES.items())
def test_fit__is_the_method(log, estimator_class, method):
    estimator = estimator_class(n_iter=500)
    assert estimator.fit(log) is estimator
    expected = aggregate(log, method, max_passes=500)
    np.testing.assert_array_equal(estimator.result_.posterior, expected.posterior)


def test_labels__before_fit():
    with pytest.raises(PmfError, match="DawidSkene is not fitted; call fit first"):
        DawidSkene().labels_  # noqa: B018


def test_labels__without_pandas_say_so(log, monkeypatch):
    import importlib

    find = importlib.import_module

    def refuse(name):
        if name == "pandas":
            raise ImportError(name)
        return find(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(PmfError, match="pandas is not installed"):
        MajorityVote().fit_predict(log)


def test_frames__are_by_task_worker_and_label(log):
    frame = pandas.DataFrame({**log, "task": [f"t{task:03}" for task in log["task"]]})
    estimator = DawidSkene(n_iter=500)
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
    ours = DawidSkene(n_iter=5000, tol=1e-10).fit(frame)
    assert (ours.labels_ == theirs.labels_.loc[ours.labels_.index]).mean() > 0.98
