import pytest

from pmflib.core.errors import MemoryPlanError
from pmflib.counting.stored_pairs import plan_counting


def test_plan_counting__grows_with_the_square_of_the_levels():
    one, two = plan_counting(10_000, 4), plan_counting(20_000, 4)
    assert one.needed > (4 + 8) * 8 * 10_000**2
    assert two.needed - sum(v for k, v in two.parts.items() if "blocks" in k) == 4 * (
        one.needed - sum(v for k, v in one.parts.items() if "blocks" in k)
    )
    with pytest.raises(
        MemoryPlanError, match=r"counting pairs would need .* GiB, above the 1.0 GiB"
    ):
        two.check(1 << 30)
