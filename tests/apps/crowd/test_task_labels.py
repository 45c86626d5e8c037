from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from pmflib.apps.crowd import aggregate
from pmflib.apps.crowd.stored import log_names
from pmflib.base import ConfigError, SchemaError, SourceError
from pmflib.em import Checkpoint
from pmflib_tasks.crowd import (
    CrowdConfig,
    find_known_labels,
    find_labels,
    list_log_names,
    make_crowd,
    worker_pairs,
)
from pmflib_tasks.crowd.crowd_model import crowd_model
from pmflib_tasks.crowd.worker_model import worker_model
from pmflib_tasks.stages.ingest import ingest
from tests.apps.crowd.label_logs import draw_log
from tests.factories import write_label_log
from tests.pipelines import make_schema, store_of, summary_of, write_pipeline

SOURCE = {"layout": "long", "sample": "task", "variable": "worker", "value": "label"}
EM = {"max_passes": 500}


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(1)
    sizes = {"n_tasks": 400, "n_workers": 15, "n_classes": 3, "n_labels": 4}
    return draw_log(rng, **sizes)


def run(config, workers, **crowd):
    config = with_crowd(config, **crowd)
    dataset = ingest.fn(config, workers, list_log_names.fn(config, workers))
    model = known = None
    if config.section(CrowdConfig).known is not None:
        known = find_known_labels.fn(config, dataset, workers)
    if config.section(CrowdConfig).begins_with_pairs:
        pairs = worker_pairs.fn(config, dataset, workers)
        model = crowd_model.fn(config, dataset, pairs, workers, known)
    model = worker_model.fn(config, dataset, model, workers, known)
    return find_labels.fn(config, dataset, model, workers, known)


def with_crowd(config, **crowd):
    return config.model_copy(update={"crowd": make_crowd(crowd)})


def elsewhere(config, store, **more):
    """The same pipeline with a store of its own."""
    return config.model_copy(
        update={"store": config.store.model_copy(update={"path": store, **more})}
    )


def list_spills(config):
    """Manifest entries of spills, by file."""
    entries = store_of(config).entries()
    spills = [entry for entry in entries if entry.reference.kind == "spill"]
    return sorted((entry.options["name"], entry.reference.identity) for entry in spills)


def read_labels(config, reference):
    folder = store_of(config).locate(reference)
    return pq.read_table(folder / "labels").sort_by("task"), pq.read_table(
        folder / "workers.parquet"
    )


@pytest.fixture(scope="module")
def crowd(tmp_path_factory, log):
    """Configuration of a pipeline of the log, whose store all tests share."""
    folder = tmp_path_factory.mktemp("crowd")
    config = write_pipeline(folder, make_schema(2), SOURCE, em=EM)
    write_label_log(folder / "data" / "a.csv", log[0])
    return config


@pytest.mark.parametrize("method", ["auto", "dawid_skene"])
def test_find_labels__equals_the_table_in_memory(crowd, log, workers, method):
    reference = run(crowd, workers, method=method)
    labels, people = read_labels(crowd, reference)
    expected = aggregate(log[0], method, max_passes=500)
    found = np.stack([labels[f"probability.c{k}"].to_numpy() for k in range(3)], axis=1)
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-8)
    np.testing.assert_allclose(labels["confidence"], expected.confidence, atol=1e-8)
    assert labels["label"].to_pylist() == [f"c{code}" for code in expected.codes]
    assert labels["n_labels"].to_pylist() == [4] * 400
    np.testing.assert_allclose(people["accuracy"], expected.accuracy, atol=1e-8)
    assert people["n_labels"].to_pylist() == np.bincount(log[0]["worker"]).tolist()
    np.testing.assert_allclose(people["probability.c0|c2"], expected.confusion[:, 0, 2], atol=1e-8)
    summary = summary_of(crowd, reference)
    assert (summary["tasks"], summary["labels"], summary["workers"]) == (400, 1600, 15)
    assert summary["power"] == pytest.approx(expected.calibration.power, abs=1e-6)


@pytest.mark.filterwarnings(
    "ignore:workers gave too few labels:pmflib.base.errors.IdentificationWarning"
)
@pytest.mark.parametrize(("method", "em"), [("auto", True), ("robust", True), ("robust", False)])
def test_find_labels__known_labels_equal_those_in_memory(crowd, tmp_path, log, workers, method, em):
    table, truth = log
    known = {task: int(truth[task] + (task % 2)) % 3 for task in range(0, 400, 19)}
    # classes have intercepts where several of them are known
    assert {*known.values()} == {0, 1, 2}
    lines = [f"t{task:03},c{label},me" for task, label in known.items()]
    (tmp_path / "gold.csv").write_text("\n".join(["task,label,by", *lines]) + "\n")
    reference = run(crowd, workers, method=method, em=em, known=str(tmp_path / "gold.csv"))
    labels, people = read_labels(crowd, reference)
    expected = aggregate(table, method, em=em, max_passes=500, known=known)
    found = np.stack([labels[f"probability.c{k}"].to_numpy() for k in range(3)], axis=1)
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-8)
    np.testing.assert_allclose(people["accuracy"], expected.accuracy, atol=1e-6)
    assert np.flatnonzero(labels["known"].to_pylist()).tolist() == [*known]
    summary = summary_of(crowd, reference)
    assert summary["majority_agreement"] == expected.tally.majority_agreement
    assert summary["confidence"] == pytest.approx(expected.confidence.mean())
    assert summary["known"] == len(known) == 22
    assert not {row["task"] for row in summary["ask_again"]} & {f"t{task:03}" for task in known}


def test_find_labels__ordered_classes_equal_those_in_memory(crowd, log, workers):
    plain, reference = (
        run(crowd, workers, classes=("c2", "c0", "c1"), ordinal=each) for each in (False, True)
    )
    assert plain != reference
    labels, _ = read_labels(crowd, reference)
    expected = aggregate(log[0], classes=[2, 0, 1], ordinal=True, max_passes=500)
    found = np.stack([labels[f"probability.c{k}"].to_numpy() for k in (2, 0, 1)], axis=1)
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-8)
    with pytest.raises(SchemaError, match="ordinal"):
        run(crowd, workers, ordinal=True)
    with pytest.raises(ConfigError, match="ordinal"):
        make_crowd({"ordinal": True, "method": "robust"})


def test_find_labels__changed_known_labels_make_labels_again_and_nothing_else(
    crowd, tmp_path, log, workers
):
    gold = tmp_path / "gold.csv"

    def find(text):
        gold.write_text(text)
        return run(crowd, workers, known=str(gold))

    def count():
        entries = store_of(crowd).entries()
        return Counter(entry.reference.kind for entry in entries)

    plain = run(crowd, workers)
    first = find("task,label\nt000,c1\n")
    before = count()
    assert find("task,label\nt000,c1\n") == first != plain
    assert count() == before
    assert find("task,label\nt000,c2\n") not in (first, plain)
    assert count() - before == {
        "known-labels": 1,
        "labels": 1,
        "source": 1,
        "worker-model": 1,
    }


def test_find_known_labels__every_row_is_used_or_set_aside(crowd, tmp_path, workers):
    gold = tmp_path / "gold.csv"
    rows = ["t000,c1", " t001 ,c2 ", ",c1", "t002,", "t003,c9", "t004,c0", "t004,c1", "t000,c1"]
    gold.write_text("\n".join(["task,label", *rows, "nobody,c1", "t005"]) + "\n")
    config = with_crowd(crowd, known=str(gold))
    dataset = ingest.fn(config, workers, list_log_names.fn(config, workers))
    reference = find_known_labels.fn(config, dataset, workers)
    folder = store_of(config).locate(reference)
    assert pq.read_table(folder / "known.parquet").num_rows == 2
    table = pq.read_table(folder / "quarantine.parquet").to_pydict()
    assert dict(zip(table["row"], table["reason"], strict=True)) == {
        3: "no_task",
        4: "no_label",
        5: "unknown_label",
        6: "contradictory",
        7: "contradictory",
        8: "repeated",
        9: "unknown_task",
        10: "malformed",
    }
    assert summary_of(config, reference)["known"] == 2


def test_find_known_labels__refuses_what_belongs_to_something_else(crowd, tmp_path, workers):
    gold = tmp_path / "gold.csv"
    config = with_crowd(crowd, known=str(gold))
    dataset = ingest.fn(config, workers, list_log_names.fn(config, workers))
    with pytest.raises(SourceError):
        find_known_labels.fn(config, dataset, workers)
    gold.write_text("task,label\nT1,c1\nT2,c2\n")
    with pytest.raises(SchemaError, match=r"gold\.csv"):
        find_known_labels.fn(config, dataset, workers)
    gold.write_text("task,label\n")
    with pytest.raises(SchemaError, match=r"gold\.csv"):
        find_known_labels.fn(config, dataset, workers)
    gold.write_text("task,truth\nt000,c1\n")
    with pytest.raises(SourceError, match="'label'"):
        find_known_labels.fn(config, dataset, workers)


def test_find_labels__new_labels_equal_a_full_run(pipeline, tmp_path, log, workers, monkeypatch):
    table, _ = log
    config = pipeline(make_schema(2), SOURCE, em=EM)
    write_label_log(tmp_path / "data" / "a.csv", table, slice(0, 1200))
    run(config, workers)
    write_label_log(tmp_path / "data" / "b.csv", table, slice(1200, None))
    read, take = [], log_names.find_log_names
    monkeypatch.setattr(
        log_names, "find_log_names", lambda s, c, e: read.append(s) or take(s, c, e)
    )
    grown = run(config, workers)
    assert [source.name for source in read] == ["b.csv"]
    labels, people = read_labels(config, grown)
    expected = aggregate(table, max_passes=500)
    assert labels["label"].to_pylist() == [f"c{code}" for code in expected.codes]
    np.testing.assert_allclose(people["accuracy"], expected.accuracy, atol=1e-8)
    # once more: nothing is left to do
    monkeypatch.setattr("pmflib.apps.crowd.stored.fitting.fit_labels", None)
    assert run(config, workers) == grown


@pytest.mark.parametrize("classes", [None, ("c2", "c0", "c1")])
def test_find_labels__new_workers_and_labels_leave_old_files_alone(
    pipeline, tmp_path, log, workers, classes
):
    table, _ = log
    config = pipeline(make_schema(2), SOURCE, em=EM)
    known = (table["worker"] >= 3) & (table["label"] < 2)
    early, late = (
        np.flatnonzero(known)[:700],
        np.setdiff1d(np.arange(1600), np.flatnonzero(known)[:700]),
    )
    # a task has labels in both files, and one of them is given again
    late = np.append(late, early[0])
    write_label_log(tmp_path / "data" / "a.csv", table, early)
    run(config, workers, classes=classes)
    before = list_spills(config)
    write_label_log(tmp_path / "data" / "b.csv", table, late)
    grown = run(config, workers, classes=classes)
    after = list_spills(config)
    assert [name for name, _ in after] == ["a.csv", "b.csv"]
    assert set(before) < set(after)
    # all at once, to the same bits
    apart = elsewhere(config, "other")
    assert run(apart, workers, classes=classes).digest == grown.digest
    # and as if each file had been encoded with the whole schema
    whole = with_crowd(elsewhere(config, "whole"), classes=classes)
    list_log_names.fn(whole, workers)
    dataset = ingest.fn(whole, workers)
    model = worker_model.fn(whole, dataset, address=workers)
    found = find_labels.fn(whole, dataset, model, workers)
    assert found.digest == grown.digest
    labels, _ = read_labels(config, grown)
    assert labels["n_labels"].to_pylist() == [4] * 400


def test_find_labels__passes_go_on_where_they_were_interrupted(crowd, workers, monkeypatch):
    # of another store: nothing is left to do in the first one
    expected = run(crowd, workers, method="dawid_skene")
    apart = elsewhere(crowd, "other")
    save = Checkpoint.save

    def keep(self, fit):
        save(self, fit)
        if fit.n_passes == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", keep)
    with pytest.raises(KeyboardInterrupt):
        run(apart, workers, method="dawid_skene")
    seen = []
    monkeypatch.setattr(Checkpoint, "save", lambda self, fit: seen.append(fit.n_passes))
    assert run(apart, workers, method="dawid_skene").digest == expected.digest
    assert seen[0] == 4


def test_find_labels__what_does_not_fit_goes_to_quarantine(pipeline, tmp_path, workers):
    config = pipeline(make_schema(2), SOURCE, em=EM)
    lines = ["task,worker,label", "1,a,x", "1,a,y", "1,b,y", "2,a,z", ",a,x", "2,b", "3,b,"]
    (tmp_path / "data" / "a.csv").write_text("\n".join(lines))
    reference = run(config, workers, classes=("x", "y"))
    labels, _ = read_labels(config, reference)
    # the last label counts; a task whose only label is unknown, or empty, is still known where a row of it fits
    assert labels["task"].to_pylist() == ["1", "3"]
    assert labels["label"].to_pylist()[0] == "y"
    assert labels["n_labels"].to_pylist() == [2, 0]


def test_find_labels__refuses_other_methods_and_schemas(pipeline, tmp_path, log, workers):
    config = pipeline(make_schema(2), SOURCE, em=EM)
    write_label_log(tmp_path / "data" / "a.csv", log[0], slice(0, 50))
    with pytest.raises(ConfigError, match="'best'"):
        with_crowd(config, method="best")
    dataset = ingest.fn(config, workers)
    make_schema(2, 3).save(config.resolve("schema.json"))
    with pytest.raises(SchemaError, match="labels"):
        worker_model.fn(config, dataset, address=workers)
