from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pmflib.counts import compare_blocks, take_rows
from pmflib.store import BlockReference


def make_block(path, index, gone):
    """A block of ten rows without some; each row has three cells."""
    start = 10 * index
    rows = np.array(sorted(start + row for row in gone), np.int64)
    superseded = rows if rows.size else None
    return BlockReference(path, start, start + 10, 0, 3 * (10 - rows.size), 30, superseded)


# a block all of whose rows are superseded is in no dataset
BLOCKS = st.builds(
    make_block, st.sampled_from("ab"), st.integers(0, 1), st.sets(st.integers(0, 9), max_size=9)
)


def count_samples(blocks):
    return Counter((block.path, row) for block in blocks for row in block.rows.tolist())


@given(st.lists(BLOCKS, max_size=6), st.lists(BLOCKS, max_size=6))
def test_compare_blocks__leads_from_one_dataset_to_the_other(base, new):
    change = compare_blocks(base, new)
    added, removed = count_samples(change.added), count_samples(change.removed)
    start = count_samples(base)
    assert not removed - start
    assert (start - removed) + added == count_samples(new)
    for block in (*change.added, *change.removed):
        assert block.n_rows == block.rows.size > 0
        assert block.n_observed == 3 * block.n_rows


@given(st.lists(BLOCKS, max_size=6))
def test_compare_blocks__of_a_dataset_with_itself_finds_nothing(blocks):
    change = compare_blocks(blocks, blocks)
    assert (change.added, change.removed, change.n_observed) == ((), (), 0)


def test_compare_blocks__refers_to_what_changed_alone():
    base = [make_block("a", 0, {1}), make_block("a", 1, ())]
    new = [make_block("a", 0, {2, 3}), make_block("a", 1, ()), make_block("b", 0, {0})]
    change = compare_blocks(base, new)
    assert [block.rows.tolist() for block in change.added] == [[1], list(range(1, 10))]
    assert [block.rows.tolist() for block in change.removed] == [[2, 3]]
    assert change.n_observed == 3 * 12


def test_take_rows__has_at_least_one_cell():
    block = BlockReference("a", 0, 10, 0, 4, 30)
    assert take_rows(block, np.array([7])).n_observed == 1
    assert take_rows(block, np.array([0, 7])).rows.tolist() == [0, 7]
