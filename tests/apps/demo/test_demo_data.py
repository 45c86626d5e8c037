import csv

import numpy as np

from pmflib.apps.demo.demo import (
    AGREEMENT,
    CLASSES,
    HEADER,
    SKILLS,
    WRONG_EVERY,
    measure_errors,
    write_demo_labels,
    write_demo_survey,
)
from pmflib.store import write_file


def read_rows(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def test_write_demo_survey__rows_gaps_and_what_is_wrong(tmp_path):
    path = tmp_path / "new" / "survey.csv"
    n_rows = write_demo_survey(path, n_people=3 * WRONG_EVERY, seed=1)
    header, *rows = read_rows(path)
    assert tuple(header) == HEADER
    assert len(rows) == n_rows == 3 * WRONG_EVERY + 1
    assert [row[0] for row in rows].count(rows[-1][0]) == 2
    ragged = [row for row in rows if len(row) != len(header)]
    assert len(ragged) == 1
    whole = [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]
    assert {row["clean"] for row in whole} == {"", "see the other side", *AGREEMENT}
    assert {row["punctual"] for row in whole} == {"", *AGREEMENT}
    assert "refused" in {row["age"] for row in whole}
    gaps = np.mean([row["sex"] == "" for row in whole])
    assert 0.02 < gaps < 0.12


def test_write_demo_survey__same_seed_same_bytes(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_demo_survey(tmp_path / name, n_people=300, seed=seed)
    first, second, other = (tmp_path.joinpath(name).read_bytes() for name in "abc")
    assert first == second != other


def test_write_demo_labels__each_task_by_different_workers(tmp_path):
    crowd = write_demo_labels(tmp_path, n_tasks=400, seed=0)
    header, *rows = read_rows(tmp_path / "labels.csv")
    assert header == ["task", "worker", "label"]
    assert len({(task, worker) for task, worker, _ in rows}) == len(rows) == 4 * 400
    assert len({worker for _, worker, _ in rows}) == len(SKILLS) + 2
    known = dict(read_rows(tmp_path / "known.csv")[1:])
    assert len(known) == 20
    for task, label in known.items():
        assert CLASSES[crowd.truth[int(task[1:]) - 1]] == label
    best = crowd.worker == 0
    right = np.mean(crowd.label[best] == crowd.truth[crowd.task[best]])
    assert right > 0.9
    last = crowd.worker == len(SKILLS) + 1
    assert {CLASSES[k] for k in crowd.label[last]} == {"dog"}


def test_measure_errors__of_the_truth_itself(tmp_path):
    import pyarrow as pa

    crowd = write_demo_labels(tmp_path, n_tasks=100, seed=0)
    names = [f"t{index + 1:04d}" for index in range(100)]
    labels = [CLASSES[k] for k in crowd.truth]
    labels[0] = CLASSES[(crowd.truth[0] + 1) % 3]
    table = pa.table({"task": names, "label": labels})
    (tmp_path / "found").mkdir()
    write_file(tmp_path / "found" / "part.parquet", table.schema, [table])
    errors = measure_errors(tmp_path / "found", crowd)
    assert errors.error == 0.01
    assert 0.01 < errors.majority_error < 0.4
