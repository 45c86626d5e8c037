import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dask.utils import key_split

from pmflib.base import ConfigError
from pmflib.cluster import (
    count_threads,
    keep_loaded,
    name_tasks,
    run_blocks,
    start_blocks,
    start_maps,
)
from pmflib.cluster.item_maps import SENT_BYTES
from pmflib.cluster.task_plans import name_range


def give_back(item):
    return item


@pytest.mark.parametrize(
    ("n_items", "tree"),
    [
        (1, 0),
        (2, [0, 1]),
        (3, [0, 1, 2]),
        (4, [[0, 1, 2], [3]]),
        (7, [[0, 1, 2], [3, 4, 5], [6]]),
        (10, [[[0, 1, 2], [3, 4, 5], [6, 7, 8]], [[9]]]),
    ],
)
def test_run_blocks__tree_depends_on_the_number_of_items_alone(client, n_items, tree):
    assert run_blocks(client, give_back, range(n_items), list, fan_in=3) == tree


@pytest.mark.parametrize("n_items", [1, 2, 3, 27, 49, 100])
@pytest.mark.parametrize("loaded", [False, True])
def test_run_blocks__runs_of_items_are_merged_in_the_same_tree(thread_client, n_items, loaded):
    items = keep_loaded(thread_client, give_back, range(n_items)) if loaded else range(n_items)
    pending = start_blocks(thread_client, give_back, items, list, fan_in=3)
    assert pending.wait() == run_blocks(None, give_back, range(n_items), list, fan_in=3)
    assert len(pending.leaves) == min(n_items, count_threads(thread_client))


def test_start_blocks__runs_are_balanced_by_cost(thread_client):
    pending = start_blocks(
        thread_client, count_items, [1, 1, 1, 3], merge_sums, costs=[1, 1, 1, 3], name="by-cost"
    )
    assert pending.wait() == 6
    groups = {leaf.key[0] for leaf in pending.leaves}
    assert [leaf.key[1] for leaf in pending.leaves] == ["items-0000-0002", "items-0003"]
    (group,) = groups
    assert re.fullmatch(r"by-cost-\d{4}-[0-9a-f]{8}", group)


def count_items(item):
    return item


def merge_sums(parts):
    return sum(parts)


def test_start_blocks__tasks_are_named_after_the_stage(thread_client):
    with name_tasks("crowd model"):
        first, second = (start_blocks(thread_client, give_back, [1, 2], list) for _ in range(2))
    names = [pending.leaves[0].key[0] for pending in (first, second)]
    assert names[0] != names[1]
    assert {key_split((name, "")) for name in names} == {"crowd-model-give-back"}
    assert (first.wait(), second.wait()) == ([1, 2], [1, 2])


def test_start_blocks__small_values_are_no_tasks(thread_client):
    pending = start_blocks(thread_client, give_first, [1, 2], list, None, 3, name_range, "word")
    assert pending.wait() == [1, 2]
    keys = thread_client.run_on_scheduler(lambda dask_scheduler: [*map(str, dask_scheduler.tasks)])
    mine = pending.leaves[0].key[0]
    assert not [key for key in keys if mine in key and "shared" in key]


def give_first(item, *shared):
    return item


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_run_blocks__shared_arrays_of_any_size(client, size):
    shared = np.arange(size)
    assert (
        run_blocks(client, lambda item, array: int(array[-1]) + item, [0, 1], sum, shared)
        == 2 * size - 1
    )


def test_run_blocks__first_items_may_come_last(client):
    def wait(item):
        time.sleep(0.1 * (item == 0))
        return item

    assert run_blocks(client, wait, range(4), list, fan_in=2) == [[0, 1], [2, 3]]


def test_run_blocks__items_may_be_kept_by_the_workers(client):
    kept = keep_loaded(client, lambda item: [item], [1, 2, 3])
    function: Callable[..., Any] = sum
    assert len(kept) == 3
    assert run_blocks(client, function, kept, list) == [1, 2, 3]
    assert run_blocks(client, function, kept, sum) == 6


def test_run_blocks__failing_task_is_tried_again(thread_client, tmp_path):
    def fail_at_first(item):
        if not (tmp_path / str(item)).exists():
            (tmp_path / str(item)).touch()
            raise OSError("worker lost its disk")
        return item

    assert run_blocks(thread_client, fail_at_first, [0, 1], list) == [0, 1]


def test_run_blocks__error_of_a_task_is_the_callers(client):
    def fail(item):
        raise ConfigError(f"item {item}")

    with pytest.raises(ConfigError, match="item 7"):
        run_blocks(client, fail, [7], list)


@pytest.mark.parametrize(("size", "is_gathered"), [(0, True), (1 << 17, True), (1 << 20, False)])
def test_start_blocks__few_small_results_are_merged_by_the_client(thread_client, size, is_gathered):
    pending = start_blocks(thread_client, give_back, range(8), list, result_bytes=size, fan_in=3)
    assert (pending.parts == pending.leaves) == is_gathered
    assert pending.wait() == run_blocks(None, give_back, range(8), list, fan_in=3)


@pytest.mark.parametrize("sizes", [[1], [1, 1], [3, 1, 10], [100, 2, 90]])
def test_start_maps__each_is_merged_in_a_tree_of_its_own(client, sizes):
    items = {f"map-{n}": [(n, index) for index in range(size)] for n, size in enumerate(sizes)}
    pending = start_maps(client, give_back, items, list)
    expected = [run_blocks(None, give_back, each, list) for each in items.values()]
    assert [each.wait() for each in pending] == expected
    if client is not None:
        assert [len(each.leaves) for each in pending] == sizes


def test_start_maps__share_values_once(thread_client):
    # names that no other test gives: its tasks may not be forgotten yet
    items = {"shared-by-first": [1, 2], "shared-by-second": [3]}
    shared = "x" * (SENT_BYTES + 1)
    pending = start_maps(thread_client, count_letters, items, sum, shared)
    assert [each.wait() for each in pending] == [2 * len(shared) + 3, len(shared) + 3]
    keys = thread_client.run_on_scheduler(lambda dask_scheduler: [*map(str, dask_scheduler.tasks)])
    mine = [key for key in keys if "shared-by-" in key]
    assert len([key for key in mine if "-shared'" in key]) == 1, mine


def count_letters(item, word):
    return item + len(word)
