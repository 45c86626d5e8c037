"""Mistakes of new users with labels are errors that name what was given or what is near it."""

import importlib
from typing import Any

import pytest

from pmflib.base import PmfError

# the mistakes are of types, among others
crowd: Any = importlib.import_module("pmflib.apps.crowd")

ONE = {"task": [1, 1], "worker": ["a", "b"], "label": ["x", "y"]}
MISTAKES = [
    (lambda: crowd.aggregate({"Task": [1], "worker": ["a"], "Label": ["x"]}), "task"),
    (lambda: crowd.aggregate([(1, "a", "x")]), "DataFrame"),
    (lambda: crowd.aggregate(ONE, method="dawid-skene"), "dawid_skene"),
    (lambda: crowd.aggregate(ONE, classes=2), "labels"),
    (lambda: crowd.aggregate(ONE, classes=["p", "q"], on_unknown="error"), "'x'"),
    (lambda: crowd.aggregate({**ONE, "label": [["x"], ["y"]]}), "label"),
]


@pytest.mark.parametrize(("call", "named"), MISTAKES)
def test_aggregate__names_what_is_meant(call, named):
    with pytest.raises(PmfError, match=named):
        call()
