import numpy as np
import pytest

from pmflib.cluster import plan_tasks


def measure_balance(plan):
    """Cost of the most expensive run, as a multiple of the mean."""
    totals = np.add.reduceat(plan.costs, plan.bounds[:-1])
    return totals.max() / totals.mean()


def test_plan_tasks__a_pass_over_many_groups_on_a_thousand_threads():
    plan = plan_tasks([1 << 26] * 4488, 1000)
    assert plan.n_runs == 1000
    assert measure_balance(plan) < 1.15
    assert plan.n_merges < 100
    assert plan.n_tasks < 1150
    assert len(plan.merge_levels) == 2
    # a level of merges is sent what a task for each group would send, and no task is sent too much
    assert plan.n_values_sent < 1.1 * 4488
    assert plan.n_waiting < 100


@pytest.mark.parametrize("n_threads", [1, 2, 7, 64, 100, 1000])
def test_plan_tasks__runs_are_contiguous_and_balanced(n_threads):
    costs = np.random.default_rng(0).integers(1, 100, 3000)
    plan = plan_tasks(costs, n_threads)
    assert plan.n_runs == n_threads
    assert (plan.bounds[0], plan.bounds[-1]) == (0, 3000)
    assert np.diff(plan.bounds).min() > 0
    mean = costs.sum() / n_threads
    assert measure_balance(plan) <= 1 + 100 / mean


@pytest.mark.parametrize(
    "costs", [[0, 0, 0], [1000, 0, 0, 0], [0, 0, 0, 1000], [0, 0, 500, 500, 0], [7]]
)
@pytest.mark.parametrize("n_threads", [1, 2, 3, 50])
def test_plan_tasks__every_run_has_an_item(costs, n_threads):
    plan = plan_tasks(costs, n_threads)
    assert plan.n_runs == min(n_threads, len(costs))
    assert np.diff(plan.bounds).min() > 0
