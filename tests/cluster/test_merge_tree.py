import numpy as np
import pytest

from pmflib.cluster import plan_tasks
from pmflib.cluster.task_plans import Node, count_nodes, find_top, merge_nodes


def leaves(start, stop):
    return [Node(0, index, index) for index in range(start, stop)]


@pytest.mark.parametrize(
    ("n_leaves", "tree"),
    [
        (1, 0),
        (2, [0, 1]),
        (4, [[0, 1, 2], [3]]),
        (10, [[[0, 1, 2], [3, 4, 5], [6, 7, 8]], [[9]]]),
    ],
)
def test_merge_nodes__all_leaves_make_the_whole_tree(n_leaves, tree):
    (root,) = merge_nodes(leaves(0, n_leaves), n_leaves, list, fan_in=3)
    assert root == (find_top(n_leaves, 3), 0, tree)


@pytest.mark.parametrize(
    ("start", "stop", "levels"),
    [(1, 9, [0, 0, 1, 1]), (0, 9, [2]), (9, 13, [1, 0]), (9, 14, [2]), (5, 6, [0])],
)
def test_merge_nodes__a_run_gives_the_largest_nodes_inside(start, stop, levels):
    found = merge_nodes(leaves(start, stop), 14, list, fan_in=3)
    assert [node.level for node in found] == levels
    sizes = [3**node.level for node in found]
    assert [node.position * size for node, size in zip(found, sizes, strict=True)] == list(
        start + np.cumsum([0, *sizes[:-1]])
    )


def test_merge_nodes__the_last_nodes_may_be_short():
    # 13 of 14 leaves: the last node of level 1 has two, that of level 2 five
    (first, last) = merge_nodes(leaves(0, 14), 14, list, top=2, fan_in=3)
    assert (first.level, last.level) == (2, 2)
    assert last.value == [[9, 10, 11], [12, 13]]


def test_merge_nodes__waiting_values_are_few():
    most = 0

    def count(parts):
        nonlocal most
        most = max(most, len(parts))
        return 0

    merge_nodes(leaves(0, 4096), 4096, count, fan_in=8)
    assert most == 8


@pytest.mark.parametrize("n_items", [1, 5, 64, 65, 447, 4488])
def test_plan_tasks__same_bits_for_any_number_of_threads(n_items):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=3) * 10.0 ** rng.integers(-8, 9) for _ in range(n_items)]
    costs = rng.integers(1, 1000, n_items)
    found = {
        run_plan(plan_tasks(costs, n_threads, size), values).tobytes()
        for n_threads in (1, 2, 7, 100, 1000)
        for size in (0, 1 << 30)
    }
    level = values
    while len(level) > 1:
        level = [merge_sums(level[i : i + 8]) for i in range(0, len(level), 8)]
    assert found == {level[0].tobytes()}


def merge_sums(parts):
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def run_plan(plan, values):
    """Do all tasks of a plan here, each on what it would be sent."""
    n = plan.n_items
    parts = [
        (start, stop, merge_nodes(
            (Node(0, index, values[index]) for index in range(start, stop)), n, merge_sums, top=plan.run_top
        ))
        for start, stop in plan.runs
    ]  # fmt: skip
    n_sent, waiting = 0, []
    for level in plan.merge_levels:
        above = []
        for index in range(count_nodes(n, level)):
            start, stop = index * 8**level, min((index + 1) * 8**level, n)
            mine = [nodes for first, last, nodes in parts if first < stop and last > start]
            n_sent += sum(map(len, mine))
            waiting.append(sum(map(len, mine)) + 1)
            inside = [
                node
                for nodes in mine
                for node in nodes
                if start <= node.position * 8**node.level < stop
            ]
            above.append((start, stop, merge_nodes(inside, n, merge_sums, top=level)))
        parts = above
    assert n_sent == plan.n_values_sent
    assert max(waiting, default=1) <= plan.n_waiting
    nodes = [node for _, _, mine in parts for node in mine]
    assert plan.is_gathered or len(nodes) == 1
    (root,) = merge_nodes(nodes, n, merge_sums)
    return root.value
