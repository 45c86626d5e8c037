import time

from pmflib.cluster import listen_to_counts, map_items, open_client, report_count, start_workers
from pmflib_tasks.config import ClusterConfig


def report_twice(item, topic):
    report_count(topic, item)
    report_count(topic, 1)
    return item


def wait_for(received, n):
    deadline = time.monotonic() + 20
    while len(received) < n and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(received)


def test_listen_to_counts__from_threads(thread_client):
    received, others = [], []
    with listen_to_counts(thread_client, received.append) as topic:
        with listen_to_counts(thread_client, others.append):
            assert map_items(thread_client, report_twice, [5, 7], topic) == [5, 7]
            assert wait_for(received, 4) == [1, 1, 5, 7]
    assert others == []


def test_listen_to_counts__from_a_process():
    received = []
    with (
        start_workers(ClusterConfig(workers=1, processes=True)) as address,
        open_client(address) as client,
        listen_to_counts(client, received.append) as topic,
    ):
        assert map_items(client, report_twice, [5], topic) == [5]
        assert wait_for(received, 2) == [1, 5]


def test_report_count__outside_a_worker_does_nothing():
    received = []
    with listen_to_counts(None, received.append) as topic:
        report_count(topic, 3)
    assert received == []
