import pytest

from pmflib.em import plan_pass
from pmflib.store import BlockReference, count_groups, group_blocks, sample_blocks, weigh_blocks


def test_plan_pass__ten_thousand_million_rows_on_a_thousand_threads():
    n_groups = count_groups(30 * 10**10, 10**10 // 65_536)
    plan = plan_pass([1 << 26] * n_groups, 1000, 150, 20)
    assert 4000 < n_groups < 5000
    assert plan.n_tasks < 1150
    # parameters and statistics of 24 kB each
    assert (plan.n_runs + 1 + plan.n_values_sent) * 8 * 20 * 151 < 200_000_000


def test_plan_pass__two_million_rows_of_seven_variables_keep_24_threads_busy():
    # two blocks in each of 14 folds for training
    blocks = [BlockReference("", 0, 62_500, 0, 437_500, 437_500)] * 28
    costs = [weigh_blocks(group) for group in group_blocks(blocks)]
    plan = plan_pass(costs, 24, 35, 8)
    assert plan.n_runs == 24
    # workers merge the statistics of neighbours
    assert plan.n_merges >= 1


@pytest.mark.parametrize("n_blocks", [0, 1, 5, 64, 65, 1000, 20_000])
@pytest.mark.parametrize("coarseness", [1, sample_blocks.COUNTING_COARSENESS])
def test_count_groups__as_many_as_are_made(n_blocks, coarseness):
    n_cells = 1_966_080
    blocks = [BlockReference("", 0, 65_536, 0, n_cells, n_cells)] * n_blocks
    assert count_groups(n_cells * n_blocks, n_blocks, coarseness) == len(
        group_blocks(blocks, coarseness)
    )
