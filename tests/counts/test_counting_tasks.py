import pytest

from pmflib.counts import choose_n_runs, split_fold_blocks
from pmflib.counts.stored_pairs import count_folds_ahead
from pmflib.store import COUNTING_COARSENESS, BlockReference


@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 8, 16, 30, 64, 100, 1000])
@pytest.mark.parametrize("n_folds", [1, 3, 20])
def test_choose_n_runs__threads_have_work(n_folds, n_threads):
    n_runs = choose_n_runs(n_folds, n_threads)
    n_rounds = -(-n_runs * n_folds // n_threads)
    assert n_runs * n_folds >= 0.9 * n_rounds * n_threads
    # all that a round takes is under way
    n_ahead = count_folds_ahead(n_folds, n_threads, 5000)
    assert n_ahead == n_folds or n_ahead * n_runs > n_threads


@pytest.mark.parametrize("n_threads", [1, 2, 7, 100])
def test_split_fold_blocks__every_block_is_in_one_run(n_threads):
    blocks = [BlockReference("a", n, n + 1, 0, 1 << 24, 1) for n in range(50)]
    runs = split_fold_blocks(blocks, 2, n_threads)
    assert [block for run in runs for block in run] == blocks
    assert len(runs) == min(choose_n_runs(2, n_threads), 50 // COUNTING_COARSENESS + 1)
