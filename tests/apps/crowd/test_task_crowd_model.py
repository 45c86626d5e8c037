import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.apps.crowd import PAIRS, WorkerPairCounts, model_choice
from pmflib.apps.crowd import fitting as fits
from pmflib.apps.crowd.pairs import worker_marginals
from pmflib.apps.crowd.stored import fitting
from pmflib.apps.crowd.stored.stored_labels import StoredLabels
from pmflib.apps.crowd.worker_pair_counts import count_worker_pairs
from pmflib.base import MemoryPlanError
from pmflib.cluster import start_workers
from pmflib_tasks.config import ClusterConfig
from pmflib_tasks.crowd import find_labels, list_log_names, make_crowd, worker_pairs
from pmflib_tasks.crowd.crowd_model import crowd_model
from pmflib_tasks.crowd.worker_model import worker_model
from pmflib_tasks.stages.ingest import ingest
from tests.apps.crowd.label_logs import draw_log
from tests.factories import write_label_log
from tests.pipelines import make_schema, store_of, summary_of, write_pipeline

SOURCE = {"layout": "long", "sample": "task", "variable": "worker", "value": "label"}
EM = {"max_passes": 100}
K = 3


@pytest.fixture(autouse=True)
def short_screening(monkeypatch):
    """Six passes from each start, stored labels' and those in memory alike: what is compared is the same bits.

    So small a log has too few labels for passes from pairs, which are made here all the same.
    """
    screening = replace(fits.SCREENING, n_passes=6)
    monkeypatch.setattr(fits, "SCREENING", screening)
    monkeypatch.setattr(model_choice, "SIMPLER_ERRORS", np.inf)


@pytest.fixture(scope="module")
def log():
    """Labels of workers of whom the last two share no task."""
    rng = np.random.default_rng(8)
    table, _ = draw_log(rng, n_tasks=150, n_workers=9, n_classes=K, n_labels=4)
    apart = (table["worker"] == 8) & (table["task"] % 2 == 0)
    apart |= (table["worker"] == 7) & (table["task"] % 2 == 1)
    return {name: column[~apart] for name, column in table.items()}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory, log):
    """Configuration of a pipeline of the log, whose store all tests share."""
    folder = tmp_path_factory.mktemp("crowd")
    write_label_log((folder / "data").with_suffix(".csv"), log)
    return write_pipeline(folder, make_schema(2), SOURCE | {"path": "data.csv"}, em=EM)


def run(config, workers):
    """References by stage."""
    found = {"dataset": ingest.fn(config, workers, list_log_names.fn(config, workers))}
    found["pairs"] = worker_pairs.fn(config, found["dataset"], workers)
    found["crowd_model"] = crowd_model.fn(config, **found, address=workers)
    model = worker_model.fn(config, found["dataset"], found["crowd_model"], workers)
    labels = find_labels.fn(config, found["dataset"], model, workers)
    return found | {"labels": labels}


def choose(config, method, em=True, **store):
    """The same pipeline with a method, and a store of its own where options of it are given."""
    kept = config.store.model_copy(update={"path": f"store-{store}", **store} if store else {})
    return config.model_copy(
        update={"crowd": make_crowd({"method": method, "em": em}), "store": kept}
    )


def locate(config, reference):
    return store_of(config).locate(reference)


def read_probabilities(config, reference):
    labels = pq.read_table(locate(config, reference) / "labels").sort_by("task")
    return np.stack([labels[f"probability.c{k}"].to_numpy() for k in range(K)], axis=1)


def read_confusion(config, reference):
    people = pq.read_table(locate(config, reference) / "workers.parquet")
    cells = [[people[f"probability.c{a}|c{k}"].to_numpy() for k in range(K)] for a in range(K)]
    return np.array(cells).transpose(2, 0, 1)


@pytest.mark.parametrize("method", ["multispa", "cnmf"])
def test_crowd_model__of_pairs_alone_is_that_in_memory_to_the_same_bits(
    crowd, log, workers, method
):
    config = choose(crowd, method, em=False)
    found = run(config, workers)["labels"]
    expected = pmf.crowd.aggregate(log, method, em=False)
    np.testing.assert_array_equal(read_confusion(config, found), expected.confusion)
    # sums of the calibration are made in the order of the blocks here and there: the last bits differ
    np.testing.assert_allclose(read_probabilities(config, found), expected.probabilities, atol=1e-9)
    summary = summary_of(config, found)
    assert (summary["em"], summary["passes"], summary["converged"]) == (False, 0, True)


def test_crowd_model__of_two_named_workers_is_that_in_memory(crowd, log, workers):
    names = ["w00", "w01"]
    options = {"annotators": names, "rotation": "shifted"}
    crowd_options = {"method": "designated", "method_options": options, "em": False}
    config = crowd.model_copy(update={"crowd": make_crowd(crowd_options)})
    found = run(config, workers)["labels"]
    method = {"name": "designated", **options, "annotators": [0, 1]}
    expected = pmf.crowd.aggregate(log, method, em=False)
    np.testing.assert_array_equal(read_confusion(config, found), expected.confusion)
    other = run(choose(crowd, "designated", em=False), workers)["labels"]
    assert not np.array_equal(read_confusion(config, found), read_confusion(config, other))


@pytest.mark.parametrize("method", ["robust", "designated"])
def test_crowd_model__judged_by_passes_is_that_in_memory(crowd, log, workers, method):
    # sums over tasks are made in the order of the blocks here and there: the last bits differ
    for em in (False, True):
        config = choose(crowd, method, em)
        found = run(config, workers)["labels"]
        expected = pmf.crowd.aggregate(log, method, em=em, max_passes=100, tol=1e-4)
        np.testing.assert_allclose(
            read_probabilities(config, found), expected.probabilities, atol=1e-9
        )
        np.testing.assert_allclose(read_confusion(config, found), expected.confusion, atol=1e-9)
        assert summary_of(config, found)["passes"] == expected.n_passes


@pytest.mark.slow
def test_worker_pairs__same_bits_whatever_the_cuts_and_the_workers(crowd, log, workers):
    table = pmf.crowd.read_labels(log)
    expected = count_worker_pairs(table.block, 9, K)
    assert (7, 8) not in set(zip(expected.first.tolist(), expected.second.tolist(), strict=True))
    with start_workers(ClusterConfig(workers=1)) as alone:
        one, other = (
            run(choose(crowd, "symnmf", path=path), address)
            for path, address in (("two", workers), ("one", alone))
        )
    # the passes that judge add up in the order of the blocks: the same for the same chunks
    assert one == other
    config = choose(crowd, "symnmf", folds=4, buckets=12)
    dataset = ingest.fn(config, workers, list_log_names.fn(config, workers))
    assert dataset.digest != one["dataset"].digest
    counted = worker_pairs.fn(config, dataset, workers)
    assert counted.digest == one["pairs"].digest
    counts = WorkerPairCounts.load(locate(config, counted) / PAIRS)
    np.testing.assert_array_equal(counts.counts, expected.counts)
    np.testing.assert_array_equal(counts.n_labels, expected.n_labels)


def test_worker_pairs__are_counted_once_for_all_methods_and_runs(crowd, workers, monkeypatch):
    first = run(choose(crowd, "symnmf"), workers)
    monkeypatch.setattr(fitting, "write_pairs", None)
    second = run(choose(crowd, "multispa"), workers)
    assert second["pairs"] == first["pairs"]
    assert second["crowd_model"] != first["crowd_model"]
    # without passes: the same crowd model
    third = run(choose(crowd, "symnmf", em=False), workers)
    assert third["crowd_model"] == first["crowd_model"]
    assert third["labels"] != first["labels"]
    monkeypatch.setattr(fitting, "fit_worker_pairs", None)
    monkeypatch.setattr("pmflib.apps.crowd.stored.fitting.fit_labels", None)
    assert run(choose(crowd, "symnmf"), workers) == first


@pytest.mark.filterwarnings("ignore:workers gave too few labels")
def test_crowd_model__empty_partitions_and_workers_without_a_common_task(
    pipeline, tmp_path, workers
):
    config = pipeline(make_schema(2), SOURCE, em=EM, store={"folds": 4, "buckets": 8})
    lines = ["task,worker,label", "1,a,x", "2,b,y", "3,c,x", "4,c,y"]
    (tmp_path / "data" / "a.csv").write_text("\n".join(lines))
    for method, em in (("robust", True), ("multispa", False)):
        found = run(choose(config, method, em), workers)
        assert summary_of(config, found["pairs"])["pairs"] == 0
        labels = pq.read_table(locate(config, found["labels"]) / "labels")
        assert sorted(labels["task"].to_pylist()) == ["1", "2", "3", "4"]
        sums = labels["probability.x"].to_numpy() + labels["probability.y"].to_numpy()
        np.testing.assert_allclose(sums, 1)


@pytest.mark.slow
def test_crowd_model__goes_on_where_it_was_interrupted(crowd, workers, monkeypatch):
    config = choose(crowd, "symnmf", path="first")
    found = {"dataset": ingest.fn(config, workers, list_log_names.fn(config, workers))}
    found["pairs"] = worker_pairs.fn(config, found["dataset"], workers)

    def judge(config):
        return crowd_model.fn(config, **found, address=workers)

    judged, model, again, n_left, n_made = run_interrupted(monkeypatch, judge, config, 6)
    assert (again, n_made) == (model, n_left)

    def label(config):
        passed = worker_model.fn(config, found["dataset"], model, workers)
        return find_labels.fn(config, found["dataset"], passed, workers)

    # among the first passes, of which those from the votes are the second; and among those that go on
    for stop_at in (9, 16):
        _, expected, again, n_left, n_made = run_interrupted(monkeypatch, label, judged, stop_at)
        assert (again, n_made) == (expected, n_left)


def run_interrupted(monkeypatch, work, config, stop_at):
    """Run a stage whole, and broken off at one of its passes and then again, on copies of the store.

    The pipeline after the whole run, what it made, what the second made, and the passes that were left and were made.
    """
    map_each = StoredLabels.map_each
    passes = []

    def map_counted(self, function, *rest, name, **options):
        if name == "pass":
            passes.append(1)
            if len(passes) == limit:
                raise KeyboardInterrupt
        return map_each(self, function, *rest, name=name, **options)

    first = config.resolve(config.store.path)
    stores = [f"{first}-{stop_at}-{which}" for which in ("whole", "broken")]
    whole, broken = (
        config.model_copy(update={"store": config.store.model_copy(update={"path": store})})
        for store in stores
    )
    for store in stores:
        shutil.copytree(first, store)
    with monkeypatch.context() as patch:
        patch.setattr(StoredLabels, "map_each", map_counted)
        limit = 0
        expected = work(whole)
        n_whole = len(passes)
        passes.clear()
        limit = stop_at
        with pytest.raises(KeyboardInterrupt):
            work(broken)
        passes.clear()
        limit = 0
        again = work(broken)
    # the pass that never ended is the first that is left
    return whole, expected, again, n_whole - (stop_at - 1), len(passes)


def test_worker_pairs__refuse_what_does_not_fit(crowd, workers, monkeypatch):
    config = choose(crowd, "designated", path="apart")
    dataset = ingest.fn(config, workers, list_log_names.fn(config, workers))
    small = config.model_copy(update={"cluster": ClusterConfig(memory_limit=1 << 16)})
    with pytest.raises(MemoryPlanError, match="memory_limit"):
        worker_pairs.fn(small, dataset, workers)
    # as if all workers shared tasks it would not, but few do
    tight = config.model_copy(update={"cluster": ClusterConfig(memory_limit=1 << 26)})
    n_pairs, count = [], StoredLabels.count_label_pairs
    monkeypatch.setattr(
        StoredLabels, "count_label_pairs", lambda self: n_pairs.append(count(self)) or n_pairs[-1]
    )
    counted = worker_pairs.fn(tight, dataset, workers)
    assert n_pairs == [summary_of(config, counted)["label_pairs"]]
    with pytest.raises(MemoryPlanError, match="'robust'"):
        crowd_model.fn(small, dataset, counted, workers)
    # before anything is counted
    monkeypatch.setattr(worker_marginals, "MAX_LEVELS", 20)
    with pytest.raises(MemoryPlanError, match="27 levels"):
        worker_pairs.fn(config, dataset, workers)
