from dataclasses import replace

import pytest

from pmflib.core.errors import ConfigError, SchemaError
from pmflib_tasks.config import make_config
from pmflib_tasks.operations.doctor.pipeline_checks import (
    RunHistory,
    check_configuration,
    check_history,
    check_schema,
)
from tests.operations.doctor.health_cases import states_of
from tests.pipelines import make_schema

RUN = RunHistory(3, "promoted", "it is better", "2026-01-01", rows_in=100, rows_quarantined=1)


def make_pipeline(rank):
    return make_config({"source": {"path": "a.csv", "layout": "wide"}, "model": {"rank": rank}})


def test_check_configuration__mistakes_are_one_line():
    assert check_configuration(make_pipeline(3), "p.toml").state == "ok"
    line = check_configuration(ConfigError("a: wrong\nb: wrong"), "p.toml")
    assert (line.state, line.fault, line.found) == ("FAIL", "configuration", "a: wrong; b: wrong")


def test_check_schema__absent():
    assert check_schema(make_schema(3, 2)).found == "2 variables, 5 levels"
    assert check_schema(SchemaError("no schema")).fault == "source"


def test_check_history__how_the_last_run_ended():
    assert states_of(check_history(RunHistory())) == ["ok"]
    assert states_of(check_history(RUN)) == ["ok", "ok"]
    assert check_history(RUN)[1].found == "1 of 100 rows (1.00%)"
    assert "has changed since" in check_history(replace(RUN, is_current=False))[0].found
    assert states_of(check_history(replace(RUN, rows_quarantined=20))) == ["ok", "warn"]
    assert check_history(RunHistory(error="damaged"))[0].fault == "store"


@pytest.mark.parametrize("outcome", ["failed", "interrupted", "held back"])
def test_check_history__runs_that_did_not_finish(outcome):
    line = check_history(replace(RUN, outcome=outcome))[0]
    assert line.state == "warn"
    assert line.remedy
