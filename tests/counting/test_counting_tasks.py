import pytest

from pmflib.counting.stored_pairs import (
    AHEAD_BYTES,
    FOLDS_AHEAD,
    choose_n_runs,
    count_folds_ahead,
    count_small_tables,
    split_fold_blocks,
)
from pmflib.store.sample_blocks import COUNTING_COARSENESS, BlockReference


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 8, 16, 30, 64, 100, 1000])
@pytest.mark.parametrize("n_folds", [1, 3, 20])
def test_choose_n_runs__threads_have_work(n_folds, n_threads):
    n_runs = choose_n_runs(n_folds, n_threads)
    n_rounds = -(-n_runs * n_folds // n_threads)
    assert n_runs * n_folds >= 0.9 * n_rounds * n_threads
    # all that a round takes is under way
    n_ahead = count_folds_ahead(n_folds, n_threads, 5000)
    assert n_ahead == n_folds or n_ahead * n_runs > n_threads


def test_count_folds_ahead__all_where_tables_are_small():
    assert count_folds_ahead(20, 2, 150) == 20
    # tables that wait take memory
    assert count_folds_ahead(20, 2, 5000) == FOLDS_AHEAD
    assert count_folds_ahead(3, 2, 5000) == 3
    assert count_folds_ahead(20, 2, 0) == 20
    assert (FOLDS_AHEAD + count_small_tables(150)) * 8 * 150**2 <= AHEAD_BYTES
    assert count_small_tables(5000) == 0


@pytest.mark.parametrize("n_threads", [1, 2, 7, 100])
def test_split_fold_blocks__every_block_is_in_one_run(n_threads):
    blocks = [BlockReference("a", n, n + 1, 0, 1 << 24, 1) for n in range(50)]
    runs = split_fold_blocks(blocks, 2, n_threads)
    assert [block for run in runs for block in run] == blocks
    assert len(runs) == min(choose_n_runs(2, n_threads), 50 // COUNTING_COARSENESS + 1)
