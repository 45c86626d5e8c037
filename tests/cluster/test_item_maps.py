import time

import pytest

from pmflib.cluster import map_items, recall_items
from pmflib.cluster.clients import LateClient


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
    assert map_items(client, negate, []) == []


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
