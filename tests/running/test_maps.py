import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dask.utils import key_split

from pmflib.errors import ConfigError
from pmflib.running.clients import LateClient, count_threads
from pmflib.running.maps import (
    SENT_BYTES,
    is_sent_along,
    keep_loaded,
    map_items,
    measure_shared,
    recall_items,
    run_blocks,
    start_blocks,
)
from pmflib.running.task_names import name_range, name_tasks


@pytest.fixture(params=["alone", "threads"])
def client(request):
    return None if request.param == "alone" else request.getfixturevalue("thread_client")


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
@pytest.mark.parametrize("held", [False, True])
def test_run_blocks__runs_of_items_are_merged_in_the_same_tree(thread_client, n_items, held):
    items = keep_loaded(thread_client, give_back, range(n_items)) if held else range(n_items)
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
    assert first.root.key[0].startswith("crowd-model-give-back")
    assert (first.wait(), second.wait()) == ([1, 2], [1, 2])


def test_run_blocks__shared_values_are_copied_for_many_tasks(thread_client, monkeypatch):
    monkeypatch.setattr("pmflib.running.task_plans.COPY_SHARE", 2)
    monkeypatch.setattr("pmflib.running.maps.COPY_SHARE", 2)
    monkeypatch.setattr("pmflib.running.maps.count_threads", lambda client: 9)
    shared = np.arange(100_000)
    found = run_blocks(
        thread_client, lambda item, array: item * int(array[-1]), range(20), sum, shared
    )
    assert found == 190 * 99_999


@pytest.mark.parametrize(
    ("value", "n_bytes"),
    [
        (None, 0),
        (True, 0),
        (7, 0),
        (0.5, 0),
        ("store", 5),
        (name_range, 0),
        (np.zeros(10), 80),
        (lambda: None, None),
        ([1, 2], None),
    ],
)
def test_measure_shared__small_values_are_sent_along(value, n_bytes):
    assert measure_shared(value) == n_bytes
    assert is_sent_along(n_bytes, 1000) == (n_bytes is not None)


def test_is_sent_along__not_what_is_large_in_all_tasks():
    assert is_sent_along(10_000, 10)
    assert not is_sent_along(10_000, 1000)
    assert not is_sent_along(SENT_BYTES + 1, 1)


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


def test_run_blocks__shared_values_reach_every_item(client):
    def scale(item, factor, shift):
        return item * factor + shift

    assert run_blocks(client, scale, [1, 2, 3], list, 10, 5) == [15, 25, 35]


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


def test_start_blocks__tells_of_progress(thread_client):
    pending = start_blocks(thread_client, lambda item: time.sleep(0.7) or item, [0, 1, 2], list)
    seen = []
    assert pending.wait(lambda: seen.append(pending.n_done())) == [0, 1, 2]
    assert seen
    assert seen[-1] <= pending.n_done() == 2


def test_map_items__keeps_the_order_of_the_items(client):
    done = []
    results = map_items(
        client,
        lambda item, base: time.sleep(0.05 * (item == 0)) or base + item,
        [0, 1, 2],
        100,
        on_result=done.append,
    )
    assert results == [100, 101, 102]
    assert done == [1, 2, 3]
    assert map_items(client, give_back, []) == []


def test_map_items__what_is_known_is_not_asked_again(client):
    known = recall_items(lambda item: item if item % 2 else None, range(6))
    done = []
    asked = map_items(client, negate, range(6), known=known, on_result=done.append)
    assert known == [None, 1, None, 3, None, 5]
    assert asked == [0, 1, -2, 3, -4, 5]
    assert done == [4, 5, 6]


def test_map_items__does_not_use_the_client_where_all_is_known():
    unusable = LateClient(lambda: pytest.fail("there is nothing to do"))
    assert map_items(unusable, negate, [1, 2], known=[3, 4]) == [3, 4]


def negate(item):
    return -item
