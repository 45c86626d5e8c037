import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pmflib.base import Block, DenseBlock, sum_pairs
from pmflib.counts import cell_changes, merge_changes
from pmflib.counts.cell_changes import CellChanges, count_changes
from tests.reference import make_codes, offsets_of, pair_table, tables_of_codes


def spread(changes, n_levels):
    """Changes as a table."""
    table = np.zeros((n_levels, n_levels), np.int64)
    changes.add_to(table)
    return table


@pytest.mark.parametrize("listed", [0, 1 << 30], ids=["listed", "in a table"])
@given(case=tables_of_codes(), stop=st.integers(0, 12), sign=st.sampled_from([1, -1]))
def test_count_changes__equal_the_loop(listed, case, stop, sign):
    cardinalities, codes = case
    offsets = offsets_of(cardinalities)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_changes, "LISTED_PER_CELL", listed)
        blocks: list[Block] = [DenseBlock(codes[:stop])]
        blocks.append(DenseBlock(codes[stop:]).to_sparse(offsets))
        changes = count_changes((sign, blocks), offsets)
    expected = sign * pair_table(codes, cardinalities)
    assert np.array_equal(spread(changes, int(offsets[-1])), expected)
    assert (np.diff(changes.positions) > 0).all()
    assert changes.changes.all()
    assert np.array_equal(changes.sum_levels(int(offsets[-1])), expected.diagonal())
    assert np.array_equal(changes.sum_pairs(offsets), sum_pairs(expected, offsets))


def test_merge_changes__what_comes_and_goes_is_no_change():
    offsets = offsets_of([3, 2, 4])
    codes = make_codes(np.random.default_rng(0), 30, [3, 2, 4])
    parts = [
        count_changes((sign, [DenseBlock(codes[:n])]), offsets) for sign, n in ((1, 30), (-1, 20))
    ]
    merged = merge_changes(parts)
    assert np.array_equal(spread(merged, 9), pair_table(codes[20:], [3, 2, 4]))
    assert (
        merge_changes([parts[0], CellChanges(parts[0].positions, -parts[0].changes)]).n_cells == 0
    )
    assert merge_changes([CellChanges.zero(), CellChanges.zero()]).n_cells == 0
    assert merge_changes(parts[:1]) is parts[0]


def test_add_to__says_whether_a_count_fell_below_zero():
    table = np.array([[2, 0], [0, 1]])
    assert CellChanges(np.array([0, 1]), np.array([-2, 5])).add_to(table)
    assert table.tolist() == [[0, 5], [0, 1]]
    assert not CellChanges(np.array([3]), np.array([-2])).add_to(table)
