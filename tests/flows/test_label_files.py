"""True labels in one file, and what is said of a label log."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from flows.label_files import write_one_file
from flows.label_summary import describe_agreement


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_write_one_file__partitions_in_order_of_tasks(tmp_path, suffix):
    labels = tmp_path / "labels"
    labels.mkdir()
    for place, tasks in enumerate((["t3", "t1"], ["t2"], [])):
        table = pa.table({"task": pa.array(tasks, pa.string()), "confidence": [0.5] * len(tasks)})
        pq.write_table(table, labels / f"part-{place:05}.parquet")
    file = tmp_path / f"found{suffix}"
    file.write_text("an older one")
    write_one_file(labels, file)
    read = pq.read_table if suffix == ".parquet" else pyarrow.csv.read_csv
    assert read(file)["task"].to_pylist() == ["t1", "t2", "t3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "labels"]


def test_describe_agreement__names_tasks_and_workers():
    facts = {
        "alpha": 0.61234,
        "majority_agreement": 0.985,
        "ask_again": [{"task": "t7", "label": "cat", "confidence": 0.51, "n_labels": 2}],
        "suspicious_workers": [
            {
                "worker": "w3",
                "reason": "always 'cat'",
                "n_labels": 40,
                "right": 0.5,
                "by_chance": 0.5,
            }
        ],
    }
    lines = list(describe_agreement(facts))
    assert lines[0].endswith(": 0.612")
    assert lines[1].endswith(": 98.5 %")
    assert lines[2] == "ask again: t7 (cat 51 %, 2 labels)"
    assert lines[3:] == [
        "suspicious workers: 1",
        "  w3: always 'cat'; 50 % of 40 labels right, 50 % by chance",
    ]
