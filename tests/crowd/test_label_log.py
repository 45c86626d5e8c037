from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pmflib.crowd import read_answers
from pmflib.errors import PmfError, SchemaError

TABLE: dict[str, list[Any]] = {
    "task": ["b", "a", "b", "a"],
    "worker": [2, 1, 1, 1],
    "label": ["y", "x", "x", "y"],
}


def test_read_answers__codes_are_in_sorted_order():
    answers = read_answers(TABLE)
    assert answers.tasks.to_pylist() == ["a", "b"]
    assert answers.workers.to_pylist() == [1, 2]
    assert answers.classes.to_pylist() == ["x", "y"]
    assert answers.block.indptr.tolist() == [0, 1, 3]
    assert answers.block.indices.tolist() == [1, 0, 3]


@pytest.mark.parametrize(("on_repeated", "level"), [("last", 1), ("first", 0)])
def test_read_answers__repeated_goes_to_quarantine(on_repeated, level):
    answers = read_answers(TABLE, on_repeated=on_repeated)
    assert answers.block.indices[0] == level
    (rejected,) = answers.quarantine.to_pylist()
    row = 1 if on_repeated == "last" else 3
    assert rejected == {
        "row": row,
        "task": "a",
        "worker": 1,
        "label": TABLE["label"][row],
        "reason": "repeated",
    }


def test_read_answers__repeated_stops_if_asked():
    with pytest.raises(SchemaError, match="1 answers repeat a task and worker"):
        read_answers(TABLE, on_repeated="error")


def test_read_answers__what_is_malformed_or_unknown_is_told():
    table = {
        "task": ["a", None, "a", "a", "c"],
        "worker": ["u", "u", None, "v", "u"],
        "label": ["x", "x", "x", "z", None],
    }
    answers = read_answers(table, classes=["x", "y"])
    assert answers.quarantine["reason"].to_pylist() == ["no_task", "no_worker", "unknown_label"]
    assert answers.quarantine["row"].to_pylist() == [1, 2, 3]
    # an unanswered task is known, and empty
    assert answers.tasks.to_pylist() == ["a", "c"]
    assert answers.block.indptr.tolist() == [0, 1, 1]
    with pytest.raises(
        SchemaError, match=r"label 'z' of row 3 is none of the classes \['x', 'y'\]"
    ):
        read_answers(table, classes=["x", "y"], on_unknown="error")


def test_read_answers__classes_keep_their_order_and_may_be_unused():
    answers = read_answers(TABLE, classes=["y", "w", "x"])
    assert answers.classes.to_pylist() == ["y", "w", "x"]
    assert answers.block.indices.tolist() == [0, 2, 3]


def test_read_answers__arrow_dictionary_and_nan_are_read():
    table = pa.table(
        {
            "task": pa.array(["a", "a"]).dictionary_encode(),
            "worker": pa.array([1.5, float("nan")]),
            "label": pa.array([1, 0]),
        }
    )
    answers = read_answers(table)
    assert answers.workers.to_pylist() == [1.5]
    assert answers.quarantine["reason"].to_pylist() == ["no_worker"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_read_answers__texts_and_booleans_are_read(kind):
    table = pa.table(
        {
            "task": pa.array(["b", "a"], kind),
            "worker": pa.array([b"u", b"v"]),
            "label": pa.array([True, False]),
        }
    )
    answers = read_answers(table)
    assert answers.tasks.to_pylist() == ["a", "b"]
    assert answers.classes.to_pylist() == [False, True]
    assert answers.block.indices.tolist() == [2, 1]


def test_read_answers__refuses_what_is_no_table_of_answers():
    with pytest.raises(SchemaError, match=r"columns \['label'\] are absent"):
        read_answers({"task": [1], "worker": [1]})
    with pytest.raises(SchemaError, match="no row has a label"):
        read_answers({"task": [1], "worker": [1], "label": [None]})
    with pytest.raises(SchemaError, match="all different"):
        read_answers(TABLE, classes=["x", "x"])
    with pytest.raises(PmfError, match="on_repeated is 'all'"):
        read_answers(TABLE, on_repeated="all")  # type: ignore[arg-type]
    with pytest.raises(PmfError, match="on_unknown is 'all'"):
        read_answers(TABLE, on_unknown="all")  # type: ignore[arg-type]


def test_read_answers__no_rows_with_classes_are_no_tasks():
    empty = {name: np.array([], np.int64) for name in ("task", "worker", "label")}
    answers = read_answers(empty, classes=[0, 1])
    assert (answers.n_tasks, answers.n_workers, answers.block.n_rows) == (0, 0, 0)
