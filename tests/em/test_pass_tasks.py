import pytest

from pmflib.em.memory import choose_tasks, plan_pass, share_models
from pmflib.store import sample_blocks
from pmflib.store.sample_blocks import BlockReference, count_groups, group_blocks


def test_plan_pass__ten_thousand_million_rows_on_a_thousand_threads():
    n_groups = count_groups(30 * 10**10, 10**10 // 65_536)
    plan = plan_pass([1 << 26] * n_groups, 1000, 150, 20)
    assert 4000 < n_groups < 5000
    assert plan.n_tasks < 1150
    # parameters and statistics of 24 kB each
    assert (plan.n_runs + 1 + plan.n_values_sent) * 8 * 20 * 151 < 200_000_000


def test_share_models__to_idle_threads():
    assert [share_models(4, n_threads, 6) for n_threads in (1, 4, 8, 9, 100)] == [6, 6, 3, 2, 1]


@pytest.mark.parametrize("n_blocks", [0, 1, 5, 64, 65, 1000, 20_000])
@pytest.mark.parametrize("coarseness", [1, sample_blocks.COUNTING_COARSENESS])
def test_count_groups__as_many_as_are_made(n_blocks, coarseness):
    n_cells = 1_966_080
    blocks = [BlockReference("", 0, 65_536, 0, n_cells, n_cells)] * n_blocks
    assert count_groups(n_cells * n_blocks, n_blocks, coarseness) == len(
        group_blocks(blocks, coarseness)
    )


def test_choose_tasks__more_than_the_usual_ones_are_worth_while():
    few, held_out, training = ([1 << 22] * 60, [1 << 26] * 251, [1 << 26] * 3600)
    assert [choose_tasks(few, n) for n in (1, 16, 1000)] == [1, 16, 64]
    assert [choose_tasks(held_out, n) for n in (16, 1000)] == [16, 125]
    assert choose_tasks(training, 1000) == 1000
    assert choose_tasks([], 8) == 8
