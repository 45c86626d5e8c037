import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import SchemaError


def test_count_pairs__batches_give_the_counts_of_the_whole():
    codes = np.random.default_rng(0).integers(-1, 3, (1000, 4))
    whole = pmf.count_pairs(codes, [3] * 4)
    seen = []
    with pmf.progress(seen.append):
        parts = pmf.count_pairs(
            iter([codes[:1], codes[1:700], codes[700:700], codes[700:]]), [3] * 4
        )
    np.testing.assert_array_equal(parts.tables, whole.tables)
    np.testing.assert_array_equal(parts.n_rows, whole.n_rows)
    assert [each.text for each in seen] == [
        "",
        "1 rows",
        "700 rows",
        "700 rows",
        "1,000 rows",
        "1,000 rows",
    ]


def test_count_pairs__batches_of_tables_and_none():
    schema = pmf.Schema((pmf.Variable("a", ("x", "y")), pmf.Variable("b", ("u", "v"))))
    tables = ({"a": [left], "b": ["u"]} for left in "xxy")
    assert pmf.count_pairs(tables, schema, n_folds=1).count_levels().tolist() == [2, 1, 3, 0]
    assert pmf.count_pairs(iter([]), schema).n_rows.sum() == 0


def test_count_pairs__bad_batch():
    with pytest.raises(SchemaError, match=r"codes\[1, 0\]"):
        pmf.count_pairs(iter([np.zeros((2, 2), int), np.array([[0, 0], [5, 0]])]), [2, 2])
