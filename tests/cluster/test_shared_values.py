import numpy as np
import pytest

from pmflib.cluster.item_maps import is_sent_along, measure_shared
from pmflib.cluster.task_plans import name_range


@pytest.mark.parametrize(
    ("value", "n_bytes"),
    [
        (None, 0),
        (True, 0),
        (7, 0),
        (0.5, 0),
        ("store", 5),
        (name_range, 0),
        (np.zeros(10), 80),
        (lambda: None, None),
        ([1, 2], None),
        ([[(np.zeros(2), np.zeros((3, 2)))]], 64),
        ([(np.zeros(2), lambda: None)], None),
    ],
)
def test_measure_shared__small_values_are_sent_along(value, n_bytes):
    assert measure_shared(value) == n_bytes
    assert is_sent_along(n_bytes, 1000) == (n_bytes is not None)
