import pytest

from pmflib.errors import ConfigError, SchemaError
from tasks.ingest import ingest
from tasks.stage import is_worth_a_retry
from tests.pipelines import make_schema


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


def test_load_schema__a_target_that_is_no_variable_is_found_before_a_file_is_read(pipeline):
    # there is no source at all: nothing has looked for it
    config = pipeline(make_schema(2, 3), {"path": "absent.csv"}, em={"target": "v11"})
    with pytest.raises(ConfigError, match=r"em\.target = 'v11': .*did you mean \['v1'.*correct it"):
        ingest.fn(config)
