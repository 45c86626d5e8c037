from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.base import SchemaError, SchemaWarning

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
    with pytest.warns(SchemaWarning, match="'z' of row 3"):
        log = pmf.crowd.read_labels(table, classes=["x", "y"])
    assert log.quarantine["reason"].to_pylist() == ["no_task", "no_worker", "unknown_label"]
    assert log.quarantine["row"].to_pylist() == [1, 2, 3]
    # an task without a label is known, and empty
    assert log.tasks.to_pylist() == ["a", "c"]
    assert log.block.indptr.tolist() == [0, 1, 1]
    with pytest.raises(SchemaError, match=r"label 'z' of row 3 .* classes \['x', 'y'\]"):
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


SPELLED = {
    "task": [" a", "a ", "b", "b", "", " "],
    "worker": ["u", "v ", "u", " v", "u", "u"],
    "label": ["Dog", "dog ", "DOG", "NA", "cat", "cat"],
}


def test_read_labels__blanks_case_and_composition_make_no_difference_and_it_is_said():
    with pytest.warns(SchemaWarning, match="'Dog' for 'DOG', 'dog' for 'DOG'"):
        log = pmf.crowd.read_labels(SPELLED)
    assert log.tasks.to_pylist() == ["a", "b"]
    assert log.workers.to_pylist() == ["u", "v"]
    assert log.classes.to_pylist() == ["DOG", "cat"]
    assert log.block.indices.tolist() == [0, 2, 0]
    assert log.quarantine["reason"].to_pylist() == ["no_task", "no_task"]
    found = pmf.crowd.aggregate(log, known={" b": "dOG"})
    assert found.log.known.codes.tolist() == [-1, 0]
    composed = {"task": [1, 1], "worker": [1, 2], "label": ["e\u0301t", "\u00c9T"]}
    with pytest.warns(SchemaWarning, match="Unicode composition"):
        assert pmf.crowd.read_labels(composed).n_classes == 1


def test_read_labels__named_classes_that_are_spelled_alike_stay_apart():
    table = {"task": [1, 1, 2], "worker": [1, 2, 1], "label": ["a", "A", "b"]}
    with pytest.warns(SchemaWarning, match="'b' of row 2"):
        log = pmf.crowd.read_labels(table, classes=["A", "a", "B"])
    assert log.block.indices.tolist() == [1, 3]
    assert pmf.crowd.read_labels(table, classes=["a", "B"]).block.indices.tolist() == [0, 2, 1]


def test_read_labels__an_ordered_categorical_orders_the_classes():
    pandas = pytest.importorskip("pandas")
    grades = pandas.Categorical(["low", "high", "low"], ["low", "mid", "high"], ordered=True)
    table = pandas.DataFrame({"task": [1, 1, 2], "worker": list("aba"), "label": grades})
    assert pmf.crowd.read_labels(table).classes.to_pylist() == ["low", "high"]
    assert pmf.crowd.aggregate(table, ordinal=True).log.is_ordered
    nominal = table.assign(label=table["label"].astype(str))
    with pytest.raises(SchemaError, match="ordinal"):
        pmf.crowd.aggregate(nominal, ordinal=True)


def test_read_labels__numbers_inside_texts_are_numbers():
    table = {"task": [1, 1], "worker": [1, 2], "label": ["10", "9"]}
    assert pmf.crowd.read_labels(table).classes.to_pylist() == ["9", "10"]


def test_read_labels__hundreds_of_labels_are_warned_of_and_thousands_refused():
    def name(n):
        each = np.arange(5000)
        return {"task": each // 2, "worker": each % 2, "label": [f"x{i % n}" for i in each]}

    with pytest.warns(SchemaWarning, match="there are 120 distinct labels"):
        pmf.crowd.read_labels(name(120))
    with pytest.raises(SchemaError, match="number of distinct labels is 2500; pass at most 1000"):
        pmf.crowd.read_labels(name(2500))


def test_read_labels__the_most_frequent_spelling_is_kept():
    table = {"task": [1, 1, 2, 2], "worker": list("abab"), "label": ["Dog", "dog", "dog", "cat"]}
    with pytest.warns(SchemaWarning, match="'Dog' for 'dog'"):
        log = pmf.crowd.read_labels(table)
    assert log.classes.to_pylist() == ["cat", "dog"]


MATRIX = np.array([[0, 1, -1], [1, -1, 1], [0, 0, 0], [1, 1, 0]])


def test_read_labels__minus_one_in_a_matrix_of_integers_is_a_gap_in_any_table():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(MATRIX, columns=["u", "v", "w"])
    logs = [pmf.crowd.read_labels(each) for each in (MATRIX, frame, pa.Table.from_pandas(frame))]
    assert [log.classes.to_pylist() for log in logs] == [[0, 1]] * 3
    assert [log.block.indices.tolist() for log in logs] == [logs[0].block.indices.tolist()] * 3
    named = pmf.crowd.read_labels(frame, classes=[-1, 0, 1])
    assert named.block.n_observed == MATRIX.size
    # below it, -1 is a step of a scale
    assert pmf.crowd.read_labels(MATRIX - 1).classes.to_pylist() == [-2, -1, 0]


@pytest.mark.parametrize("labels", [[-1, 0, 1], [-1.0, 0.0, 2.0], ["-1", "cat", "dog"]])
def test_read_labels__minus_one_is_asked_about(labels):
    table = {"task": [1, 1, 2], "worker": list("aba"), "label": labels}
    # with one label beside it there would be no choice
    pair = pmf.crowd.read_labels(table | {"label": [-1, 1, 1]})
    assert pair.classes.to_pylist() == [-1, 1]
    with pytest.raises(SchemaError, match=r"label -1 stands beside .* classes"):
        pmf.crowd.read_labels(table)
    assert pmf.crowd.read_labels(table, classes=labels).n_classes == 3
    with pytest.warns(SchemaWarning, match="not among the classes"):
        assert pmf.crowd.read_labels(table, classes=labels[1:]).block.n_observed == 2


NAMES = [("Task", "Worker", "Label"), ("id", "annotator", "choice"), ("item_id", "user", "vote")]


@pytest.mark.parametrize("names", NAMES)
def test_read_labels__a_log_of_other_names_is_no_matrix(names):
    pandas = pytest.importorskip("pandas")
    rows = [(f"t{n // 2}", f"w{n % 2}", "xy"[n % 3 == 0]) for n in range(20)]
    frame = pandas.DataFrame(rows, columns=names)
    with pytest.raises(SchemaError, match=r"name them \['task', 'worker', 'label'\]") as raised:
        pmf.crowd.read_labels(frame)
    renamed = str(raised.value).partition("columns=")[2].removesuffix(")")
    right = dict(zip(names, ("task", "worker", "label"), strict=True))
    assert renamed == str(right)


def test_read_labels__a_frame_with_a_column_of_its_own_values_is_no_matrix():
    pandas = pytest.importorskip("pandas")
    rows = [(f"t{n // 2}", f"w{n % 2}", "xy"[n % 3 == 0]) for n in range(20)]
    with pytest.raises(SchemaError, match="are absent"):
        pmf.crowd.read_labels(pandas.DataFrame(rows, columns=["p", "q", "r"]))
    frame = pandas.DataFrame(MATRIX, columns=["u", "v", "w"])
    keyed = frame.assign(key=[f"k{row}" for row in range(len(frame))])
    with pytest.raises(SchemaError, match=r"table.set_index\('key'\)"):
        pmf.crowd.read_labels(keyed)
    assert pmf.crowd.read_labels(keyed.set_index("key")).n_workers == 3


@pytest.mark.parametrize("kind", [np.uint64, np.int64, np.int8])
def test_read_labels__identifiers_of_any_integers(kind):
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    values = np.array([most, most - 1, most, most - 1], kind)
    table = {"task": values, "worker": np.array([least, least, 1, 1], kind), "label": list("xyxy")}
    log = pmf.crowd.read_labels(table)
    assert log.tasks.to_pylist() == [most - 1, most]
    assert log.workers.to_pylist() == [least, 1]
    assert log.block.indices.tolist() == [1, 3, 0, 2]
