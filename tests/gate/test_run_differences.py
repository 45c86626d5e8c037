import pmflib as pmf
from pmflib.store import InputFile
from pmflib_tasks.gate.run_differences import (
    ValueChange,
    compare_schemas,
    compare_values,
)


def file(name, digest, n_bytes=10):
    return InputFile(name, digest, n_bytes)


def test_compare_values__nested_and_absent():
    before = {"em": {"tol": 1e-6, "old": True}, "seed": 0, "list": [1]}
    after = {"em": {"tol": 1e-5}, "seed": 0, "list": [1], "new": "x"}
    assert compare_values(before, after) == [
        ValueChange("em.tol", 1e-6, 1e-5),
        ValueChange("new", None, "x"),
        ValueChange("em.old", True, None),
    ]
    assert ValueChange("seed", 0, 0) in compare_values(before, after, only_changed=False)
    assert compare_values({}, {}) == []


def test_compare_schemas():
    before = pmf.Schema(
        (
            pmf.Variable("same", ("0", "1")),
            pmf.Variable("levels", ("0", "1", "2")),
            pmf.Variable("order", ("0", "1"), (0.0, 1.0)),
            pmf.Variable("gone", ("0",)),
        )
    )
    after = pmf.Schema(
        (
            pmf.Variable("new", ("0",)),
            pmf.Variable("order", ("1", "0"), (1.0, 0.0)),
            pmf.Variable("levels", ("0", "2", "3")),
            pmf.Variable("same", ("0", "1")),
        )
    )
    found = compare_schemas(before, after)
    assert (found.added, found.removed) == (["new"], ["gone"])
    order, levels = found.changed
    assert (order.variable, order.order_changed, order.values_changed) == (
        "order", True, True,
    )  # fmt: skip
    assert (levels.levels_added, levels.levels_removed) == (["3"], ["1"])
    assert (levels.order_changed, levels.missing_changed) == (False, False)
