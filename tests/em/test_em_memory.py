import pytest

from pmflib.base import MemoryPlanError
from pmflib.em import plan_em


def test_plan_em__holds_statistics_of_every_thread():
    more = plan_em(1000, 10, 8).needed - plan_em(1000, 10, 7).needed
    assert more >= 8 * 1000 * 10
    assert plan_em(1000, 10, 8, 4).needed - plan_em(1000, 10, 8).needed > 3 * 8 * 8000 * 10
    with pytest.raises(MemoryPlanError, match="rank"):
        plan_em(1000, 10, 8).check(1)
