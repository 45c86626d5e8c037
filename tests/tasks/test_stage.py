import pytest

from pmflib.errors import SchemaError
from tasks.stage import is_worth_a_retry


class Ended:
    """A state of a task run that ended with an error, or without."""

    def __init__(self, error=None):
        self._error = error

    def result(self):
        if self._error is not None:
            raise self._error


class LostScheduler(Exception):
    __module__ = "distributed.comm.core"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SchemaError("fix it"), False),
        (OSError("disk"), True),
        (LostScheduler(), True),
        (KeyError("ours"), False),
        (None, False),
    ],
)
def test_is_worth_a_retry__only_what_may_pass(error, expected):
    assert is_worth_a_retry(None, None, Ended(error)) is expected
