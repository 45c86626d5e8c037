"""Several labels per task: tags that go together are found better together, and what is read is what was given."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from benchmarks.crowd.tags import draw, list_rows
from pmflib.apps.crowd.tags.tag_model import (
    Taggings,
    TagModel,
    Tags,
    find_tags,
    fit_tags,
    split_classes,
    start_tags,
)
from pmflib.base import PmfError, SchemaError
from tests.factories import call_command


@pytest.fixture(scope="module")
def drawn():
    tasks, workers, said, truth = draw(500, 3, 3, np.random.default_rng(11))
    return list_rows(tasks, workers, said), said, tasks, truth


def test_aggregate_tags__tags_that_go_together_are_found_better_than_one_by_one(drawn):
    rows, said, tasks, truth = drawn
    found, one = pmf.crowd.aggregate_tags(rows), pmf.crowd.aggregate_tags(rows, rank=1)
    # names of tasks are texts of numbers, as they come
    assert found.log.tasks.to_pylist() == sorted(range(500))
    votes = np.zeros(truth.shape)
    np.add.at(votes, tasks, said)
    wrong = [float((each != truth).mean()) for each in (2 * votes > 3, one.codes, found.codes)]
    assert wrong[2] < 0.9 * wrong[1] < 0.9 * wrong[0]
    assert found.model.rank > 1
    assert "held-out log-likelihood" in found.reason
    # the joint PMF knows how frequent each tag is
    shares = [found.model.marginal([name])[1] for name in found.model.schema.names]
    np.testing.assert_allclose(shares, found.probabilities.mean(axis=0), atol=0.02)
    labels = found.labels.to_pylist()
    names = found.log.tags.to_pylist()
    assert labels[7]["tags"] == [names[tag] for tag in np.flatnonzero(found.codes[7])]
    assert found.labels["n_taggings"].to_pylist() == [3] * 500
    again = pmf.crowd.aggregate_tags(rows)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)


def test_find_tags__is_the_sum_over_all_sets_of_tags():
    rng = np.random.default_rng(3)
    rows = {"task": [0, 0, 0, 1, 1], "worker": [0, 0, 1, 0, 1], "label": ["a", "b", "b", None, "c"]}
    log = pmf.crowd.read_tags(rows)
    taggings = Taggings(log.taggings, log.given, 2, 2, 3)
    workers = start_tags(taggings).workers
    model = TagModel(rng.dirichlet(np.ones(2)), rng.uniform(size=(3, 2)), workers)
    logs = model.take_logs()
    said = np.array([[[1, 1, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 1]]])
    found = find_tags(taggings, model)
    for task in range(2):
        total, shares = 0.0, np.zeros(3)
        for truth in np.ndindex(2, 2, 2):
            of_state = model.prior.copy()
            weight = 1.0
            for tag, value in enumerate(truth):
                chance = model.chances[tag]
                of_state = of_state * (chance if value else 1 - chance)
                for worker in range(2):
                    weight *= np.exp(logs[worker, tag, said[task, worker, tag], value])
            total += weight * of_state.sum()
            shares += weight * of_state.sum() * np.array(truth)
        np.testing.assert_allclose(found[task], shares / total, rtol=1e-12)


def test_tags__statistics_of_parts_of_the_tasks_add_up_and_models_are_packed_exactly(drawn):
    log = pmf.crowd.read_tags(drawn[0])
    halves = []
    for first, last in ((0, 500), (0, 200), (200, 500)):
        rows = (log.taggings[:, 0] >= first) & (log.taggings[:, 0] < last)
        own = rows[log.given[:, 0]]
        numbers = np.cumsum(rows) - 1
        given = np.stack([numbers[log.given[own, 0]], log.given[own, 1]], axis=1)
        moved = log.taggings[rows] - np.array([first, 0])
        halves.append(Taggings(moved, given, last - first, log.n_workers, log.n_tags))
    whole, *parts = halves
    model = fit_tags(whole, start_tags(whole), 3).parameters
    model = split_classes(model, find_tags(whole, model), 2, 0)
    family = Tags()
    expected, found = family.add(model, [whole]), family.add(model, parts)
    for name, value in vars(expected).items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-10, atol=1e-9)
    again = family.unpack(family.pack(model))
    for one, other in zip(again.workers, model.workers, strict=True):
        np.testing.assert_array_equal(one.mass, other.mass)


def test_read_tags__rows_lists_and_taggings_without_a_tag():
    lists = {
        "task": ["x", "x", "y"],
        "worker": ["a", "b", "a"],
        "label": [["k", "l", "k"], [], [" l "]],
    }
    log = pmf.crowd.read_tags(lists)
    assert repr(log).startswith("TagLog(2 tasks, 2 workers, 2 tags, 3 taggings with 3 tags, 0 rows")
    rows = pa.table(
        {
            "task": ["x", "x", "x", "x", "y", None],
            "worker": ["a", "a", "a", "b", "a", "a"],
            "label": ["l", "k", "k", None, " l ", "k"],
        }
    )
    same = pmf.crowd.read_tags(rows)
    np.testing.assert_array_equal(same.given, log.given)
    np.testing.assert_array_equal(same.taggings, log.taggings)
    assert same.quarantine["reason"].to_pylist() == ["no_task"]
    named = pmf.crowd.read_tags(rows, tags=["l"])
    assert named.quarantine["reason"].to_pylist() == ["unknown_label"] * 2 + ["no_task"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"max_passes": 0}, "max_passes is 0"),
        ({"rank": "x"}, "rank is 'x'"),
    ],
)
def test_aggregate_tags__what_cannot_be_is_refused(options, message):
    rows = {"task": [1], "worker": [1], "label": ["a"]}
    with pytest.raises(PmfError, match=message):
        pmf.crowd.aggregate_tags(rows, **options)
    with pytest.raises(SchemaError, match="no row has a task, a worker and a tag"):
        pmf.crowd.aggregate_tags({"task": [1], "worker": [1], "label": [None]})


def test_crowd_command__tags_in_and_a_joint_pmf_out(drawn, tmp_path, monkeypatch, capsys):
    rows = {name: [*map(str, each)] for name, each in drawn[0].items() if name != "label"}
    log = pa.table({**rows, "label": pa.array(drawn[0]["label"], pa.string())})
    nameless = pa.table([pa.array([each]) for each in (None, "0", "t")], schema=log.schema)
    log = pa.concat_tables([log, nameless])
    pq.write_table(log, tmp_path / "log.parquet")
    out = tmp_path / "out"
    assert (
        call_command(monkeypatch, "crowd", tmp_path / "log.parquet", "--tags", "--output", out) == 0
    )
    assert "latent classes: rank" in capsys.readouterr().out
    expected = pmf.crowd.aggregate_tags(log)
    assert pq.read_table(out / "tags.parquet").equals(expected.labels)
    assert pq.read_table(out / "workers.parquet").num_rows == 40
    assert pq.read_table(out / "quarantine.parquet")["reason"].to_pylist() == ["no_task"]
    model = pmf.JointPMF.load(out / "model")
    np.testing.assert_array_equal(model.factors, expected.model.factors)
    for words, reason in (
        (["--known", "gold.csv"], "no use for --known"),
        (["--accept-quality"], "no use for --accept-quality"),
        (["--output", tmp_path / "x.csv"], "need a folder"),
    ):
        command = ["crowd", tmp_path / "log.parquet", "--tags", "--output", out, *words]
        assert call_command(monkeypatch, *command) == 2
        assert reason in capsys.readouterr().err.replace("\n", " ")


def test_aggregate_tags__probabilities_believe_votes_that_err_together_less():
    rng = np.random.default_rng(5)
    truth = rng.random((400, 4)) < 0.4
    # a fifth of the cells tempts everybody
    wrong = np.where(rng.random(truth.shape) < 0.2, 0.6, 0.1)
    tasks, workers = np.repeat(np.arange(400), 8), np.tile(np.arange(8), 400)
    said = truth[tasks] ^ (rng.random((tasks.size, 4)) < wrong[tasks])
    names = [f"tag {each:02}" for each in range(4)]
    found = pmf.crowd.aggregate_tags(list_rows(tasks, workers, said), rank=1, tags=names)
    log = found.log
    taggings = Taggings(log.taggings, log.given, log.n_tasks, log.n_workers, log.n_tags)
    order = np.argsort([int(each) for each in log.tasks.to_pylist()])
    raw = find_tags(taggings, fit_tags(taggings, start_tags(taggings), 200).parameters)
    gaps = []
    for shares in (raw[order], found.probabilities[order]):
        right = (shares > 0.5) == truth
        gaps.append(float(np.maximum(shares, 1 - shares).mean() - right.mean()))
    assert gaps[0] > 0.1
    assert abs(gaps[1]) < 0.5 * gaps[0]


def test_aggregate_tags__single_taggings_leave_nothing_out():
    rows = {"task": [0, 1, 2], "worker": [0, 0, 1], "label": ["a", None, "b"]}
    found = pmf.crowd.aggregate_tags(rows)
    assert np.isfinite(found.probabilities).all()
    assert found.probabilities.shape == (3, 2)
