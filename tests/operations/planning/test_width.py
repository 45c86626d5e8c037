import pytest

from pmflib.core.errors import MemoryPlanError
from pmflib.counting.stored_pairs import choose_n_runs, plan_counting
from pmflib.schema import Schema
from pmflib_tasks.config import make_config
from pmflib_tasks.operations.planning.width import check_run_width, check_width

SCHEMA = Schema.from_cardinalities([30, 500, 20])
NEEDED = plan_counting(550, 1, choose_n_runs(1, 1)).join_client().needed


def test_check_width__refused_with_the_sentence_of_a_plan():
    check_width(SCHEMA, room=NEEDED)
    with pytest.raises(
        MemoryPlanError, match=r"^does not fit: count needs .* in a worker, above the "
    ) as caught:
        check_width(SCHEMA, room=NEEDED - 1)
    assert "3 variables have 550 levels in all" in str(caught.value)
    assert "most of them 'v1' (500), 'v0' (30), 'v2' (20)" in str(caught.value)


def test_check_run_width__workers_on_this_machine_and_none_elsewhere():
    data = {
        "source": {"path": "x.csv", "layout": "wide"},
        "store": {"path": "s"},
        "model": {"rank": 2},
    }
    here = {"workers": 1, "memory_limit": 1 << 20}
    with pytest.raises(MemoryPlanError, match="give a worker"):
        check_run_width(make_config(data | {"cluster": here}), SCHEMA)
    away = here | {"address": "tcp://127.0.0.1:1"}
    check_run_width(make_config(data | {"cluster": away}), SCHEMA)
    check_run_width(make_config(data | {"cluster": here | {"memory_limit": 1 << 33}}), SCHEMA)
