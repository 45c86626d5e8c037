"""A store in a bucket of a server on loopback, tried out by this process and by two others."""

import pytest
from distributed import LocalCluster

from pmflib.store.objects import bucket as bucket_module
from pmflib.store.objects.bucket import Bucket
from pmflib_tasks.operations.doctor.clusters import find_cluster_state
from pmflib_tasks.operations.doctor.probes import (
    find_lacking_conditions,
    look_at_store,
    name_probe,
    read_probe_object,
    remove_probe,
    write_probe,
)
from pmflib_tasks.operations.doctor.storage import PipelinePaths, WorkerView, check_store_folder
from tests.object_store import SECRET, read_bucket


@pytest.fixture
def address(bucket):
    return f"s3://{bucket}/store"


def test_look_at_store__in_a_bucket(address):
    found = look_at_store(address)
    assert (found.unwritten, found.lacking) == ("", ())
    assert found.skew is not None
    assert abs(found.skew) < 60
    assert check_store_folder(found).state == "ok"
    assert read_bucket(address) == {}


def test_find_lacking_conditions__of_a_server_that_knows_none(address, monkeypatch):
    monkeypatch.setattr(Bucket, "create", Bucket.put)
    monkeypatch.setattr(Bucket, "replace", lambda self, name, content, _: self.put(name, content))
    name = name_probe()
    write_probe(address, name)
    lacking = find_lacking_conditions(address, name)
    remove_probe(address, name)
    assert [each.rpartition(" ")[2] for each in lacking] == ["(If-None-Match)", "(If-Match)"]


def test_read_probe_object__another_bucket(address):
    assert "it is not there" in read_probe_object(address, name_probe())


def test_look_at_store__no_such_bucket_and_wrong_keys(address, monkeypatch):
    found = look_at_store("s3://no-such-bucket-at-all/store")
    line = check_store_folder(found)
    assert (line.state, line.fault) == ("FAIL", "store")
    assert "no such bucket" in line.found
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(bucket_module.RETRIES, "max_retries", 1)
    monkeypatch.setattr(bucket_module, "INSIST_SECONDS", 0.5)
    monkeypatch.setattr(bucket_module, "CHECK_SECONDS", 0.5)
    assert SECRET not in check_store_folder(look_at_store(address)).found


def test_find_cluster_state__workers_write_to_the_bucket(address, tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    paths = PipelinePaths(address, "", (str(tmp_path / "a.csv"),), (".csv",), skip_empty=False)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        state = find_cluster_state(cluster.scheduler_address, paths)
    assert state.unwritten == ""
    for worker in state.workers:
        assert isinstance(worker.view, WorkerView)
        assert (worker.view.unread, worker.view.unwritten, worker.unseen) == ("", "", "")
    assert read_bucket(address) == {}
