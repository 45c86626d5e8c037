import pytest

from pmflib.base import MemoryPlanError
from pmflib.cluster import MemoryPlan


def test_check__refuses_with_both_numbers_what_takes_most_and_a_remedy():
    plan = MemoryPlan("counting", {"tables": 3 << 30, "blocks": 1 << 30}, "Use fewer levels.")
    plan.check(4 << 30)
    with pytest.raises(MemoryPlanError, match=r"counting .*4\.0 GiB.*tables.*Use fewer levels"):
        plan.check((4 << 30) - 1)


def test_take_larger__of_each_side_the_larger_part():
    first = MemoryPlan("first", {"tables": 10}, "Use less.", {"counts": 3})
    second = MemoryPlan("second", {"pairs": 7}, "Use less.", {"pairs": 9})
    for larger in (first.take_larger(second), second.take_larger(first)):
        assert (larger.stage, larger.needed) == ("first", 10)
        assert larger.client_parts == {"pairs": 9}
