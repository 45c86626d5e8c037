import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.errors import MemoryPlanError
from pmflib.running.memory_plan import (
    BLOCK_COST,
    COUNTING,
    MAX_GROUP,
    MIN_GROUP,
    WANTED_GROUPS,
    MemoryPlan,
    format_bytes,
    group_blocks,
    plan_counting,
)
from pmflib.store.sample_blocks import BlockReference


def make_blocks(sizes):
    return [BlockReference("p", n, n + 1, 0, size, 0) for n, size in enumerate(sizes)]


SIZES = st.lists(st.one_of(st.just(0), st.integers(0, 3 * MAX_GROUP)), max_size=40)


@given(SIZES)
def test_group_blocks__covers_every_block_once_in_order(sizes):
    blocks = make_blocks(sizes)
    groups = group_blocks(blocks)
    assert [block for group in groups for block in group] == blocks
    assert all(groups)


@given(SIZES)
def test_group_blocks__a_group_is_full_with_its_last_block_and_not_before(sizes):
    groups = group_blocks(make_blocks(sizes))
    total = sum(sizes) + BLOCK_COST * len(sizes)
    target = min(MAX_GROUP, max(MIN_GROUP, total // WANTED_GROUPS))
    for group in groups[:-1]:
        costs = [block.n_observed + BLOCK_COST for block in group]
        assert sum(costs[:-1]) < target <= sum(costs)


@pytest.mark.parametrize(
    ("size", "n_blocks", "n_groups"),
    [
        (1, 20, 1),
        (1, 1000, 8),
        (1, 100_000, 64),
        (MIN_GROUP, 640, 64),
        (MAX_GROUP // 4, 1000, 250),
    ],
)
def test_group_blocks__tens_of_groups_unless_small_or_huge(size, n_blocks, n_groups):
    assert len(group_blocks(make_blocks([size] * n_blocks))) == n_groups


def test_group_blocks__coarser_ones_are_larger_within_the_limit():
    assert len(group_blocks(make_blocks([MIN_GROUP] * 80), COUNTING)) == 64 // COUNTING
    assert len(group_blocks(make_blocks([MAX_GROUP] * 40), COUNTING)) == 40


def test_check__refuses_with_both_numbers_what_takes_most_and_a_remedy():
    plan = MemoryPlan("counting", {"tables": 3 << 30, "blocks": 1 << 30}, "Use fewer levels.")
    plan.check(4 << 30)
    with pytest.raises(
        MemoryPlanError,
        match=r"counting would need 4.0 GiB, above the 4.0 GiB .* \(3.0 GiB\) is tables. Use fewer levels.",
    ):
        plan.check((4 << 30) - 1)


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


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_format_bytes__for_people(n, text):
    assert format_bytes(n) == text
