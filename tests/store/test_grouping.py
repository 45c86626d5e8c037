import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.store import COUNTING_COARSENESS, MAX_GROUP, MIN_GROUP, BlockReference, group_blocks


def make_blocks(sizes):
    return [BlockReference("p", n, n + 1, 0, size, 0) for n, size in enumerate(sizes)]


SIZES = st.lists(st.one_of(st.just(0), st.integers(0, 3 * MAX_GROUP)), max_size=40)


@given(SIZES)
def test_group_blocks__covers_every_block_once_in_order(sizes):
    blocks = make_blocks(sizes)
    groups = group_blocks(blocks)
    assert [block for group in groups for block in group] == blocks
    assert all(groups)


@pytest.mark.parametrize(
    ("size", "n_blocks", "n_groups"),
    [
        (1, 20, 3),
        (1, 1000, 63),
        (1, 100_000, 64),
        (MIN_GROUP, 640, 64),
        (MAX_GROUP // 4, 1000, 250),
    ],
)
def test_group_blocks__tens_of_groups_unless_small_or_huge(size, n_blocks, n_groups):
    assert len(group_blocks(make_blocks([size] * n_blocks))) == n_groups


def test_group_blocks__coarser_ones_are_larger_within_the_limit():
    assert (
        len(group_blocks(make_blocks([MIN_GROUP] * 80), COUNTING_COARSENESS))
        == 64 // COUNTING_COARSENESS
    )
    assert len(group_blocks(make_blocks([MAX_GROUP] * 40), COUNTING_COARSENESS)) == 40
