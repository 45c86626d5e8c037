import pytest

from pmflib.store import list_leases, list_records
from pmflib_flows.recording import record_run
from pmflib_tasks.config import make_config
from pmflib_tasks.stage import open_store


def test_record_run__holds_a_lease_until_the_run_ends(tmp_path):
    sections = {"source": {"path": "a", "layout": "wide"}, "model": {"rank": 2}}
    config = make_config(sections, base=tmp_path)
    store = open_store(config)
    with record_run(config) as run:
        run.outcome = "unchanged"
        (lease,) = list_leases(store.objects)
        assert config.name in lease.purpose
    assert list_leases(store.objects) == []
    with pytest.raises(KeyboardInterrupt), record_run(config):
        raise KeyboardInterrupt
    assert list_leases(store.objects) == []
    assert [record.outcome for record in list_records(store, config.name)] == [
        "unchanged",
        "interrupted",
    ]


def test_record_run__longer_than_what_a_collection_spares_is_said(tmp_path, monkeypatch):
    sections = {"source": {"path": "a", "layout": "wide"}, "model": {"rank": 2}}
    config = make_config(sections, base=tmp_path)
    for hours in (24.0, -1.0):
        monkeypatch.setattr("pmflib_flows.recording.GRACE_HOURS", hours)
        with record_run(config) as run:
            run.outcome = "unchanged"
    short, long = list_records(open_store(config), config.name)
    assert "notices" not in short.facts
    assert str(long.facts["notices"]).count("--older-than") == 1
