import pytest

from pmflib.base import ConfigError, SchemaError
from pmflib_tasks.stage import stage
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import make_schema


class LostScheduler(Exception):
    __module__ = "distributed.comm.core"


@pytest.mark.parametrize(
    ("error", "n_runs"),
    [(OSError("disk"), 3), (LostScheduler(), 3), (SchemaError("fix it"), 1), (KeyError("ours"), 1)],
)
def test_stage__runs_again_where_a_failure_may_pass(monkeypatch, error, n_runs):
    waits = []
    monkeypatch.setattr("pmflib_tasks.stage.time.sleep", waits.append)
    calls = []

    @stage(name="one")
    def one(config):
        calls.append(config)
        raise error

    with pytest.raises(type(error)):
        one("config")
    assert calls == ["config"] * n_runs
    assert waits == [2, 10][: n_runs - 1]


def test_load_schema__a_target_that_is_no_variable_is_found_before_a_file_is_read(pipeline):
    # there is no source at all: nothing has looked for it
    config = pipeline(make_schema(2, 3), {"path": "absent.csv"}, em={"target": "v11"})
    with pytest.raises(ConfigError, match=r"em\.target = 'v11'"):
        ingest.fn(config)
