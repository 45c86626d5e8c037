"""Nights of a label log: increments, guards, the gate, and erasure, as rating logs have them."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pmflib as pmf
from pmflib.base import QualityError, SchemaError
from pmflib.store import Store, find_live, list_records
from pmflib_flows.crowd.crowd_flow import crowd_flow
from pmflib_flows.doctor import check_columns
from pmflib_tasks.config import load_config
from pmflib_tasks.crowd.steps import STEPS
from tests.erasure.stored_texts import find_texts
from tests.factories import call_command

CONFIG = """
[source]
path = "{path}"
layout = "long"
sample = "task"
variable = "worker"
value = "label"
[model]
rank = 1
"""
LABELS = "pipeline@labels"


def draw(n_tasks, seed=0, *, first=0, n_workers=10):
    """Labels of tasks that nobody else has the names of, by workers who are right in four of five."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, n_tasks)
    return [
        (
            f"picture-{first + task:05}",
            f"person-{worker:03}",
            f"c{truth[task] if rng.random() < 0.8 else rng.integers(0, 3)}",
        )
        for task in range(n_tasks)
        for worker in rng.permutation(n_workers)[:4].tolist()
    ]


class Nights:
    """A folder with a label log and a pipeline."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "log").mkdir(parents=True)
        self.config = folder / "pipeline.toml"
        self.config.write_text(CONFIG.format(path="log"))

    @property
    def store(self):
        return Store(self.folder / "store")

    @property
    def records(self):
        return list_records(self.store, LABELS)

    def deliver(self, name, rows):
        lines = ["task,worker,label", *(",".join(row) for row in rows)]
        (self.folder / "log" / name).write_text("\n".join(lines) + "\n")

    def run(self, **options):
        return crowd_flow.fn(str(self.config), **options)


@pytest.fixture
def nights(tmp_path):
    return Nights(tmp_path / "pipeline")


def test_steps__need_what_those_before_them_give():
    given = set()
    for step in STEPS:
        assert {*step.needs, *step.uses} <= given
        given.add(step.gives)


def read_probabilities(nights, record):
    """Probabilities of the classes of each task, as a run has published them."""
    folder = nights.store.locate(record.stages["labels"])
    table = pq.read_table(f"{folder}/labels")
    names = [name for name in table.column_names if name.startswith("probability.")]
    shares = np.stack([table[name].to_numpy() for name in names], axis=1)
    return dict(zip(table["task"].to_pylist(), shares, strict=True))


def find_stage(nights, stage):
    return nights.records[-1].stages[stage]


def test_crowd_flow__nights_with_new_workers_are_a_full_run_to_the_same_bits(nights, tmp_path):
    rows = draw(200)
    # late labels of tasks that are there, and of a worker whom nobody knew
    late = [row for i, row in enumerate(rows) if i % 9 == 0 or row[1] == "person-003"]
    nights.deliver("a.csv", [row for row in rows if row not in late])
    nights.run(accept_quality=True)
    first = find_stage(nights, "dataset")
    nights.deliver("b.csv", late)
    grown = nights.run(accept_quality=True)
    parts = {entry.reference.identity for entry in nights.store.entries()}
    base = nights.store.find(first.identity).inputs
    kept = nights.store.find(find_stage(nights, "dataset").identity).inputs
    # partitions of the first night are referred to
    assert kept["base"] == first
    assert {each.identity for each in base.values()} <= parts
    whole = Nights(tmp_path / "whole")
    for name in ("a.csv", "b.csv"):
        (whole.folder / "log" / name).write_bytes((nights.folder / "log" / name).read_bytes())
    assert whole.run()["digest"] == grown["digest"]
    models = [find_stage(each, "worker_model").digest for each in (nights, whole)]
    assert models[0] == models[1]
    again = nights.run()
    assert (again["outcome"], again["digest"]) == ("unchanged", grown["digest"])


def test_crowd_flow__a_warm_night_goes_on_from_the_live_model(nights):
    rows = draw(200)
    nights.config.write_text(CONFIG.format(path="log") + "[crowd]\nwarm = true\n")
    nights.deliver("a.csv", rows[:760])
    full = nights.run()
    live = find_live(nights.store, LABELS)
    nights.deliver("b.csv", rows[760:])
    warm = nights.run()
    made = nights.store.find(find_stage(nights, "worker_model").identity)
    assert made.inputs["warm"] == live
    assert warm["passes"] < full["passes"]
    assert warm["tasks"] == 200


def test_crowd_command__holds_a_night_back_and_says_why_in_the_first_line(
    nights, monkeypatch, capsys
):
    nights.deliver("a.csv", draw(150))
    first = nights.run()
    renamed = [(task, f"W{worker}", label) for task, worker, label in draw(40, 1, first=150)]
    nights.deliver("b.csv", renamed)
    # the run makes the schema, and no level is unknown
    assert check_columns(load_config(nights.config)).state == "ok"
    assert call_command(monkeypatch, "crowd", "--output", nights.folder) == 6
    said = capsys.readouterr().err.splitlines()
    held = next(line for line in said if "held back" in line)
    assert "unknown_workers" in held
    record = nights.records[-1]
    assert (record.outcome, record.live.digest) == ("held back", first["gate"]["new"])
    assert "unknown_workers" in record.reason.split("\n")[0]
    assert call_command(monkeypatch, "crowd", "--output", nights.folder, "--accept-quality") == 0
    assert nights.records[-1].outcome == "promoted"
    found = nights.records[-1].facts["quality"]
    accepted = {each["guard"] for each in found if each["action"] == "accepted"}
    # a capital before the name is another alphabet
    assert accepted == {"identifier_form", "unknown_workers"}


def test_crowd_command__new_workers_who_guess_are_held_back_and_named(nights, monkeypatch, capsys):
    for night in range(4):
        nights.deliver(f"{night}.csv", draw(120, night, first=120 * night))
        assert nights.run()["outcome"] == "promoted"
    live = find_live(nights.store, LABELS)
    # of five labels of a task, two are by those who were there, and three are random
    rng, guessers = np.random.default_rng(9), [f"guest-{k}" for k in range(8)]
    rows = draw(120, 4, first=480)
    kept = [row for i, row in enumerate(rows) if i % 4 < 2]
    random = [
        (task, worker, f"c{rng.integers(0, 3)}")
        for task in sorted({row[0] for row in rows})
        for worker in rng.permutation(guessers)[:3].tolist()
    ]
    nights.deliver("4.csv", [*kept, *random])
    assert call_command(monkeypatch, "crowd", "--output", nights.folder) == 6
    said = capsys.readouterr().err
    assert "guesses: 8 unknown workers" in said
    assert nights.records[-1].outcome == "held back"
    assert find_live(nights.store, LABELS) == live
    # the message says which file names them, as it becomes part of a record, and records name nobody
    assert not any(name in said for name in guessers)
    (named_in,) = re.findall(r"named in (\S+) of the store", said)
    findings = json.loads((nights.folder / "store" / named_in).read_text("utf-8"))
    (found,) = [each for each in findings if each["guard"] == "guesses"]
    assert (found["action"], found["named"]) == ("stop", guessers)
    assert found["measured"] == pytest.approx(0.6)
    (nights.folder / "log" / "4.csv").unlink()
    nights.deliver("5.csv", rows)
    night = nights.run()
    assert (night["outcome"], night["tasks"], night["workers"]) == ("promoted", 600, 10)


def test_crowd_flow__labels_that_were_exchanged_are_held_back(nights):
    nights.deliver("a.csv", draw(150))
    nights.run()
    turned = {"c0": "c1", "c1": "c2", "c2": "c0"}
    rows = draw(120, 2, first=150)
    nights.deliver("b.csv", [(t, w, turned[x] if int(w[-1]) % 2 else x) for t, w, x in rows])
    with pytest.raises(QualityError, match="label_agreement"):
        nights.run()


def test_crowd_flow__a_file_that_has_lost_labels_is_held_back(nights):
    rows = draw(150)
    nights.deliver("a.csv", rows)
    nights.run()
    # a worker has left, whom the run no longer knows, and 40 more labels are gone
    nights.deliver("a.csv", [row for row in rows[40:] if row[1] != "person-003"])
    with pytest.raises(QualityError, match=r"lost_answers: a\.csv: \d+ of 600 answers"):
        nights.run()
    assert nights.records[-1].outcome == "held back"
    # the same labels in another order and in two files are all there
    nights.deliver("a.csv", rows[::-2])
    nights.deliver("b.csv", rows[-2::-2])
    assert nights.run()["outcome"] != "held back"
    nights.config.write_text(CONFIG.format(path="log") + "[quality]\nremovals_expected = true\n")
    nights.deliver("a.csv", rows[100::-2])
    (nights.folder / "log" / "b.csv").unlink()
    assert nights.run()["tasks"] < 150


def test_crowd_flow__labels_of_the_future_are_held_back(nights):
    nights.config.write_text(CONFIG.format(path="log").replace("[model]", 'time = "at"\n[model]'))
    times = {"a.csv": "2026-01-02T03:04:05", "b.csv": "2999-01-02T03:04:05"}
    for number, (name, time) in enumerate(times.items()):
        rows = [(*row, time) for row in draw(60, number, first=60 * number)]
        lines = ["task,worker,label,at", *(",".join(row) for row in rows)]
        (nights.folder / "log" / name).write_text("\n".join(lines) + "\n")
        if number == 0:
            assert nights.run()["outcome"] == "promoted"
    with pytest.raises(QualityError, match=r"future_rows: b\.csv: 240 rows"):
        nights.run()


def test_gate__a_worse_model_of_workers_stays_back_and_commands_know_it(
    nights, monkeypatch, capsys
):
    nights.deliver("a.csv", draw(200))
    first = nights.run()
    rows = draw(200, 3, first=200)
    # half of the workers have become guessers
    rng = np.random.default_rng(4)
    spoilt = [(t, w, f"c{rng.integers(0, 3)}" if int(w[-1]) < 5 else x) for t, w, x in rows]
    nights.deliver("b.csv", spoilt)
    kept = nights.run(accept_quality=True)
    assert kept["outcome"] == "kept"
    assert kept["gate"]["reference"]["verdict"] == "worse"
    assert nights.records[-1].live.digest == first["gate"]["new"]
    # all tasks have labels, by the model that is live
    assert kept["tasks"] == 400
    made = nights.store.find(find_stage(nights, "labels").identity)
    assert made.inputs["worker_model"].digest == first["gate"]["new"]
    assert call_command(monkeypatch, "promote", nights.config) == 0
    promoted = nights.run(accept_quality=True)
    assert promoted["outcome"] == "unchanged"
    assert nights.records[-1].live.digest == kept["gate"]["new"]
    assert call_command(monkeypatch, "rollback", nights.config) == 0
    capsys.readouterr()
    assert call_command(monkeypatch, "models", nights.config, "--json") == 0
    models = json.loads(capsys.readouterr().out)
    assert [each["standing"] for each in models] == ["live", "past"]
    back = nights.run(accept_quality=True)
    assert back["outcome"] == "kept"
    assert call_command(monkeypatch, "diff", nights.config, "1", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)["labels"]
    assert (found["n_added"], found["n_removed"]) == (200, 0)
    # the same model labels them; how sure it may be is read off all tasks, and decides where two classes are close
    before, after = (read_probabilities(nights, record) for record in nights.records[:2])
    rows = np.array([[before[task], after[task]] for task in sorted(before)])
    chosen, ordered = rows.argmax(axis=2), np.sort(rows, axis=2)
    changed = chosen[:, 0] != chosen[:, 1]
    assert found["n_same"] == 200 - changed.sum()
    # in both nights, the label is another only where it was among the least certain tenth
    margins = ordered[:, :, 2] - ordered[:, :, 1]
    assert (margins[changed] <= np.quantile(margins, 0.1, axis=0)).all()
    assert len(found["classes"]) == 3


def predict_classes(rows, seed, names=("c0", "c1", "c2")):
    """Table of a classifier that knows the tasks of rows, but one, and is right more often than not."""
    rng = np.random.default_rng(seed)
    tasks = sorted({row[0] for row in rows})[1:]
    found = pmf.crowd.aggregate(
        dict(zip(("task", "worker", "label"), zip(*rows, strict=True), strict=True))
    )
    label = dict(zip(found.labels["task"].to_pylist(), found.codes.tolist(), strict=True))
    scores = rng.normal(0, 1, (len(tasks), 3))
    scores[np.arange(len(tasks)), [label[task] for task in tasks]] += 1.5
    shares = np.exp(2 * scores)
    return pa.table({"task": tasks} | dict(zip(names, shares.T, strict=True)))


def test_crowd_flow__a_classifier_counts_as_in_memory_and_its_file_is_part_of_a_night(nights):
    rows = draw(200)
    nights.deliver("a.csv", rows)
    alone = nights.run()
    nights.config.write_text(CONFIG.format(path="log") + '[crowd]\nclassifier = "said.parquet"\n')
    table = predict_classes(rows, 1)
    file = nights.folder / "said.parquet"
    pq.write_table(table, file)
    found = nights.run()
    assert found["digest"] != alone["digest"]
    columns = dict(zip(("task", "worker", "label"), zip(*rows, strict=True), strict=True))
    expected = pmf.crowd.aggregate(columns, classifier=table)
    labels = pq.read_table(f"{nights.store.locate(find_stage(nights, 'labels'))}/labels")
    labels = labels.sort_by("task")
    assert labels["label"].to_pylist() == expected.labels["label"].to_pylist()
    np.testing.assert_allclose(labels["confidence"].to_numpy(), expected.confidence, atol=1e-5)
    assert found["classifier_power"] == pytest.approx(expected.classifier.power, abs=1e-3)
    # the file is known by its bytes, and the workers are learnt without it
    made = nights.store.find(find_stage(nights, "classifier").identity)
    assert made.summary == {"rows": 199, "tasks": 199}
    assert find_stage(nights, "worker_model") == nights.records[0].stages["worker_model"]
    assert nights.run()["digest"] == found["digest"]
    pq.write_table(predict_classes(rows, 2), file)
    assert nights.run()["digest"] != found["digest"]
    # new tasks, of which it says nothing
    nights.deliver("b.csv", draw(40, 1, first=200))
    assert nights.run(accept_quality=True)["tasks"] == 240
    pq.write_table(predict_classes(draw(9, 3, first=900), 2), file)
    with pytest.raises(SchemaError, match=r"said\.parquet"):
        nights.run(accept_quality=True)


def test_erase__nothing_of_a_worker_and_a_task_is_left_and_nothing_comes_back(
    nights, monkeypatch, capsys
):
    rows = draw(150)
    # a worker who guesses is named as suspicious, and a torn row is in quarantine
    rng = np.random.default_rng(5)
    rows = [(t, w, f"c{rng.integers(0, 3)}" if w == "person-004" else x) for t, w, x in rows]
    nights.deliver("a.csv", [*rows, ("picture-00007", "person-004", "c0", "torn")])
    nights.run()
    names = ["person-004", "picture-00007"]
    assert all(find_texts(nights.folder / "store", [name]) for name in names)
    rejected = nights.folder / "rejected.csv"
    assert call_command(monkeypatch, "quarantine", nights.config, "--output", rejected) == 0
    words = ["erase", nights.config, "--worker", names[0], "--task", names[1], "--json"]
    capsys.readouterr()
    assert call_command(monkeypatch, *words, "--find") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["location"] for each in found] == ["quarantine, a.csv", str(rejected)]
    assert call_command(monkeypatch, *words) == 0
    certificate = json.loads(capsys.readouterr().out)
    assert certificate["samples_found"] == 2
    (outside,) = certificate["written_outside"]
    assert (outside["path"], outside["mentions"]) == (str(rejected), 1)
    assert certificate["mentions_in_store"] == 0
    assert [each["name"] for each in certificate["raw_files"]] == ["a.csv"]
    assert certificate["artefacts"]["worker-model"] == {
        "rows": 0,
        "rewritten": 1,
        "deleted": 1,
        "kept": 0,
    }
    assert not find_texts(nights.folder / "store", names)
    # the others are still answered for
    assert call_command(monkeypatch, "status", nights.config, "--json") == 0
    labels = json.loads(capsys.readouterr().out)["labels"]["path"]
    assert pq.read_table(f"{labels}/labels").num_rows == 149
    assert call_command(monkeypatch, "verify", nights.config) == 0
    after = nights.run()
    assert (after["tasks"], after["workers"]) == (149, 9)
    assert (
        after["rows"]["rows_erased"] == sum(names[0] in row or names[1] in row for row in rows) + 1
    )
    assert not find_texts(nights.folder / "store", names)
    # as if they had never been there
    nights.deliver("a.csv", [row for row in rows if not {*names} & {*row}])
    assert nights.run()["digest"] == after["digest"]
    assert call_command(monkeypatch, "erase", nights.config, "--sample", "x") == 4
    words = ["erase", nights.config, "--forget", "--worker", names[0]]
    assert call_command(monkeypatch, *words) == 0
    nights.deliver("a.csv", rows)
    assert nights.run(accept_quality=True)["workers"] == 10
