import time

from pmflib.config import ClusterConfig, SchemaConfig, make_source
from pmflib.ingest import encode_wide, find_sources
from pmflib.running.parallel import hear_counts, map_items, open_client, start_workers, tell_count
from pmflib.schema import Schema, Variable


def tell_twice(item, topic):
    tell_count(topic, item)
    tell_count(topic, 1)
    return item


def wait_for(heard, n):
    deadline = time.monotonic() + 20
    while len(heard) < n and time.monotonic() < deadline:
        time.sleep(0.01)
    return sorted(heard)


def test_hear_counts__from_threads(thread_client):
    heard, others = [], []
    with hear_counts(thread_client, heard.append) as topic:
        with hear_counts(thread_client, others.append):
            assert map_items(thread_client, tell_twice, [5, 7], topic) == [5, 7]
            assert wait_for(heard, 4) == [1, 1, 5, 7]
    assert others == []


def test_hear_counts__from_a_process():
    heard = []
    with (
        start_workers(ClusterConfig(workers=1, processes=True)) as address,
        open_client(address) as client,
        hear_counts(client, heard.append) as topic,
    ):
        assert map_items(client, tell_twice, [5], topic) == [5]
        assert wait_for(heard, 2) == [1, 5]


def test_tell_count__outside_a_worker_does_nothing():
    heard = []
    with hear_counts(None, heard.append) as topic:
        tell_count(topic, 3)
    assert heard == []


def test_encode_wide__tells_the_rows_of_every_batch(tmp_path, monkeypatch):
    monkeypatch.setattr("pmflib.ingest.csv_feed.CSV_BYTES", 1000)
    (tmp_path / "a.csv").write_text("a\n" + "0\n1\n" * 900 + "0,1\n")
    schema = Schema((Variable("a", ("0", "1")),))
    told = []
    account = encode_wide(
        find_sources(str(tmp_path / "a.csv"))[0],
        schema,
        make_source({"path": "a.csv", "layout": "wide"}),
        SchemaConfig(),
        n_folds=2,
        seed=0,
        folder=tmp_path / "out",
        on_rows=told.append,
    )
    assert len(told) > 2
    assert sum(told) == account["rows_in"] == 1801
