from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.core.errors import SchemaError

TABLE: dict[str, list[Any]] = {
    "task": ["b", "a", "b", "a"],
    "worker": [2, 1, 1, 1],
    "label": ["y", "x", "x", "y"],
}


def test_read_labels__codes_are_in_sorted_order():
    log = pmf.crowd.read_labels(TABLE)
    assert log.tasks.to_pylist() == ["a", "b"]
    assert log.workers.to_pylist() == [1, 2]
    assert log.classes.to_pylist() == ["x", "y"]
    assert log.block.indptr.tolist() == [0, 1, 3]
    assert log.block.indices.tolist() == [1, 0, 3]


@pytest.mark.parametrize(("on_repeated", "level"), [("last", 1), ("first", 0)])
def test_read_labels__repeated_goes_to_quarantine(on_repeated, level):
    log = pmf.crowd.read_labels(TABLE, on_repeated=on_repeated)
    assert log.block.indices[0] == level
    (rejected,) = log.quarantine.to_pylist()
    row = 1 if on_repeated == "last" else 3
    assert rejected == {
        "row": row,
        "task": "a",
        "worker": 1,
        "label": TABLE["label"][row],
        "reason": "repeated",
    }


def test_read_labels__repeated_stops_if_asked():
    with pytest.raises(SchemaError, match="1 labels repeat a task and worker"):
        pmf.crowd.read_labels(TABLE, on_repeated="error")


def test_read_labels__what_is_malformed_or_unknown_is_reported():
    table = {
        "task": ["a", None, "a", "a", "c"],
        "worker": ["u", "u", None, "v", "u"],
        "label": ["x", "x", "x", "z", None],
    }
    log = pmf.crowd.read_labels(table, classes=["x", "y"])
    assert log.quarantine["reason"].to_pylist() == ["no_task", "no_worker", "unknown_label"]
    assert log.quarantine["row"].to_pylist() == [1, 2, 3]
    # an task without a label is known, and empty
    assert log.tasks.to_pylist() == ["a", "c"]
    assert log.block.indptr.tolist() == [0, 1, 1]
    with pytest.raises(
        SchemaError, match=r"label 'z' of row 3 is none of the classes \['x', 'y'\]"
    ):
        pmf.crowd.read_labels(table, classes=["x", "y"], on_unknown="error")


def test_read_labels__classes_keep_their_order_and_may_be_unused():
    log = pmf.crowd.read_labels(TABLE, classes=["y", "w", "x"])
    assert log.classes.to_pylist() == ["y", "w", "x"]
    assert log.block.indices.tolist() == [0, 2, 3]


def test_read_labels__arrow_dictionary_and_nan_are_read():
    table = pa.table(
        {
            "task": pa.array(["a", "a"]).dictionary_encode(),
            "worker": pa.array([1.5, float("nan")]),
            "label": pa.array([1, 0]),
        }
    )
    log = pmf.crowd.read_labels(table)
    assert log.workers.to_pylist() == [1.5]
    assert log.quarantine["reason"].to_pylist() == ["no_worker"]


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_read_labels__texts_and_booleans_are_read(arrow_type):
    table = pa.table(
        {
            "task": pa.array(["b", "a"], arrow_type),
            "worker": pa.array([b"u", b"v"]),
            "label": pa.array([True, False]),
        }
    )
    log = pmf.crowd.read_labels(table)
    assert log.tasks.to_pylist() == ["a", "b"]
    assert log.classes.to_pylist() == [False, True]
    assert log.block.indices.tolist() == [2, 1]


def test_read_labels__refuses_what_is_no_table_of_labels():
    with pytest.raises(SchemaError, match=r"columns \['label'\] are absent"):
        pmf.crowd.read_labels({"task": [1], "worker": [1]})
    with pytest.raises(SchemaError, match="no row has a label"):
        pmf.crowd.read_labels({"task": [1], "worker": [1], "label": [None]})
    with pytest.raises(SchemaError, match="all different"):
        pmf.crowd.read_labels(TABLE, classes=["x", "x"])
    with pytest.raises(pmf.PmfError, match="on_repeated is 'all'"):
        pmf.crowd.read_labels(TABLE, on_repeated="all")  # type: ignore[arg-type]
    with pytest.raises(pmf.PmfError, match="on_unknown is 'all'"):
        pmf.crowd.read_labels(TABLE, on_unknown="all")  # type: ignore[arg-type]


def test_read_labels__no_rows_with_classes_are_no_tasks():
    empty = {name: np.array([], np.int64) for name in ("task", "worker", "label")}
    log = pmf.crowd.read_labels(empty, classes=[0, 1])
    assert (log.n_tasks, log.n_workers, log.block.n_rows) == (0, 0, 0)
