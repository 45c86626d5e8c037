"""How many requests nights on a store in a bucket make, by a proxy that counts them."""

import os

import pytest

from pmflib.store import leases
from pmflib.store.bucket import bucket as buckets
from pmflib.store.bucket import caches
from pmflib_tasks.lineage import lineage
from tests.faults.faulty_server import FaultyServer
from tests.flows.nights import Nights, draw_ratings, make_movies
from tests.object_store import forget_cache

FIRST, UNCHANGED = 79, 15
"""Of the first, 19 are those of the marginals: 17 files, which are not packed, their list and their entry."""


@pytest.fixture
def proxy(object_server, bucket, monkeypatch):
    """A server before the object server, which counts requests."""
    server = FaultyServer(int(object_server.rpartition(":")[2]), 0)
    # a machine that does much else is no reason for more of them
    monkeypatch.setattr(buckets, "LACKING_SECONDS", 1e9)
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 1e9)
    monkeypatch.setattr(caches, "UPLOAD_SECONDS", 1e9)
    monkeypatch.setattr(lineage, "WRITE_SECONDS", 1e9)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    yield server
    server.close()


def run(proxy, nights):
    """Outcome of a run, its digests, and its number of requests."""
    proxy.reset()
    found = nights.run()
    return found["outcome"], found["live_model"], proxy.seen["requests"]


def test_run__few_requests(proxy, bucket, tmp_path, monkeypatch):
    store = {"path": f"s3://{bucket}/nights"}
    nights = Nights(tmp_path / "pipeline", make_movies(6), monkeypatch, store=store)
    nights.deliver("a.csv", draw_ratings(2000, 6), range(2000))
    # what is known of a file that was written just now is not remembered
    os.utime(nights.log / "a.csv", (1e9, 1e9))
    outcome, model, n_requests = run(proxy, nights)
    assert (outcome, n_requests <= FIRST) == ("promoted", True), n_requests
    for machine in ("the same", "another"):
        if machine == "another":
            forget_cache(monkeypatch, tmp_path / machine)
        outcome, again, n_requests = run(proxy, nights)
        assert (outcome, again) == ("unchanged", model)
        assert n_requests <= UNCHANGED, machine


def test_run__in_a_bucket_that_is_too_large_to_list(proxy, bucket, tmp_path, monkeypatch):
    """The same results by more requests; what was known of a bucket that has changed is not used."""
    store = {"path": f"s3://{bucket}/nights"}
    nights = Nights(tmp_path / "pipeline", make_movies(4), monkeypatch, store=store)
    nights.deliver("a.csv", draw_ratings(100, 4), range(100))
    _, model, n_first = run(proxy, nights)
    with monkeypatch.context() as patch:
        patch.setattr(buckets, "LISTED_OBJECTS", 10)
        outcome, again, n_requests = run(proxy, nights)
    assert (outcome, again) == ("unchanged", model)
    assert n_requests > UNCHANGED
    objects = nights.store.objects
    # a person has deleted an artefact, and an entry, to have them built again
    gone = [each.name for each in objects.list_objects("counts") if each.name.endswith(".digests")]
    entries = [each.name for each in objects.list_objects("manifest")]
    # of which guards' findings of the first night are not made again in a night without change
    made = [each for each in entries if b'"quality"' not in objects.read(each)[0]]
    objects.delete([*gone, *made[:5]])
    forget_cache(monkeypatch, tmp_path / "another")
    assert run(proxy, nights)[1] == model
    assert {each.name for each in objects.list_objects("counts")} == set(gone)
    assert [each.name for each in objects.list_objects("manifest")] == entries
    assert n_first > UNCHANGED
