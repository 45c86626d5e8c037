"""Events of lineage of whole runs, in the file of a store."""

import json
import sys

import pytest

from pmflib.base import QualityError, SourceError
from pmflib.cluster import share_workers
from pmflib.store import list_records, list_sources
from pmflib_flows.recording import record_run
from pmflib_tasks.config import make_config
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.lineage.lineage import EVENTS, unseal_event
from pmflib_tasks.lineage.section import LineageConfig
from pmflib_tasks.stage import open_store
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from tests.lineage.event_schema import check_event
from tests.pipelines import as_wide, draw_codes, make_schema

FINDING = {
    "guard": "drift",
    "subject": "v1",
    "measured": 0.4,
    "limit": 0.25,
    "action": "stop",
    "passed": False,
    "sentence": "v1 has moved",
}
PASSED = {
    "guard": "least_rows",
    "subject": "all rows",
    "measured": None,
    "limit": None,
    "action": "pass",
    "passed": True,
    "sentence": "300 rows",
}


@pytest.fixture
def config(tmp_path):
    """A pipeline of 300 good rows, one with an unknown level, one that is ragged."""
    schema = make_schema(3, 2, 4)
    schema.save(tmp_path / "schema.json")
    rows = as_wide(draw_codes(300, schema.cardinalities)) + "7,0,0\n1,1\n"
    (tmp_path / "a.csv").write_text(rows)
    data = {"source": {"path": "a.csv", "layout": "wide"}, "model": {"rank": 2}}
    return make_config(data | {"name": "nightly", "cluster": {"workers": 1}}, base=tmp_path)


def read_events(config):
    text = (open_store(config).root / EVENTS).read_text("utf-8")
    assert text.endswith("\n")
    for line in text.splitlines():
        check_event(json.loads(line))
    return [unseal_event(line.encode()) for line in text.splitlines()]


def list_states(events):
    return [(event["job"]["name"], event["eventType"]) for event in events]


def list_versions(datasets):
    return {each["name"]: each["facets"]["version"]["datasetVersion"] for each in datasets}


def run_to_start(config):
    """Run the first stages; outside Prefect, as the flow runs them."""
    with record_run(config) as run, share_workers(config.cluster):
        run.stages["dataset"] = ingest.fn(config)
        run.stages["counts"] = count.fn(config, run.stages["dataset"])
        run.stages["start"] = fit.fn(config, run.stages["counts"])
        run.outcome, run.live, run.reason = "promoted", run.stages["start"], "first model"
    return run


def stop_on_findings(config):
    with record_run(config) as run, share_workers(config.cluster):
        run.stages["dataset"] = ingest.fn(config)
        run.facts.note(quality=[FINDING, PASSED])
        raise QualityError("v1 has moved; see password at https://me:pw@host/x")


def read_tags(event):
    return {tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}


def test_record_run__events_in_order_with_the_digests_of_artefacts(config):
    run = run_to_start(config)
    events = read_events(config)
    stages = ("nightly.ingest", "nightly.count", "nightly.fit")
    assert list_states(events) == [
        ("nightly", "START"),
        *((stage, state) for stage in stages for state in ("START", "COMPLETE")),
        ("nightly", "COMPLETE"),
    ]
    assert [event["eventTime"] for event in events] == sorted(e["eventTime"] for e in events)
    digests = {kind: run.stages[kind].digest for kind in ("dataset", "counts", "start")}
    ingested, counted, fitted, ended = events[2], events[4], events[6], events[7]
    (source,) = list_sources(open_store(config), run.stages["dataset"])
    path = str(open_store(config).root.parent / "a.csv")
    assert list_versions(ingested["inputs"]) == {path: source.digest}
    assert list_versions(ingested["outputs"])["nightly.dataset"] == digests["dataset"]
    assert list_versions(counted["inputs"]) == {"nightly.dataset": digests["dataset"]}
    assert list_versions(counted["outputs"]) == {"nightly.counts": digests["counts"]}
    assert list_versions(fitted["inputs"]) == {"nightly.counts": digests["counts"]}
    assert list_versions(ended["inputs"])["nightly.dataset"] == digests["dataset"]
    assert list_versions(ended["outputs"]) == {"nightly.start": digests["start"]}
    assert read_tags(ended) == {"outcome": "promoted", "number": "1", "reason": "first model"}
    # stages name the run that they are part of
    whole = events[0]["run"]["runId"]
    assert ended["run"]["runId"] == whole
    parents = {event["run"]["facets"]["parent"]["run"]["runId"] for event in events[1:-1]}
    assert parents == {whole}
    runs = [event["run"]["runId"] for event in events[1:-1]]
    assert runs[0::2] == runs[1::2]
    assert len({whole, *runs}) == 4
    # rows are those of the account
    written = {each["name"]: each["outputFacets"] for each in ingested["outputs"]}
    n_rows = {name: facets["outputStatistics"]["rowCount"] for name, facets in written.items()}
    assert n_rows == {"nightly.dataset": 300, "nightly.quarantine": 2}
    judged = {each["name"]: each["inputFacets"] for each in ended["inputs"]}
    assert judged["nightly.dataset"]["dataQualityMetrics"]["rowCount"] == 300


def test_record_run__nothing_new_says_the_same_versions(config):
    first = run_to_start(config)
    n_events = len(read_events(config))
    again = run_to_start(config)
    assert again.stages == first.stages
    before, after = read_events(config)[:n_events], read_events(config)[n_events:]
    assert list_states(before) == list_states(after)
    for one, other in zip(before, after, strict=True):
        assert one["outputs"] == other["outputs"]
        assert one["run"]["runId"] != other["run"]["runId"]


def test_record_run__held_back_by_quality(config):
    with pytest.raises(QualityError):
        stop_on_findings(config)
    *_, ended = read_events(config)
    assert (ended["eventType"], read_tags(ended)["outcome"]) == ("FAIL", "held back")
    assert ended["outputs"] == []
    message = ended["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith("QualityError: ")
    assert "https://***@host/x" in message
    judged = ended["inputs"][-1]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["assertion"], each["success"], each["severity"]) for each in judged] == [
        ("drift", False, "error"),
        ("least_rows", True, "warn"),
    ]
    assert judged[0]["actual"] == "0.4"
    (record,) = list_records(open_store(config), "nightly")
    assert RunFacts(record.facts).account.rows_quarantined == 2


def test_record_run__a_stage_that_fails(config):
    (open_store(config).root.parent / "a.csv").unlink()
    with pytest.raises(SourceError), record_run(config), share_workers(config.cluster):
        ingest.fn(config)
    events = read_events(config)
    assert list_states(events) == [
        ("nightly", "START"),
        ("nightly.ingest", "START"),
        ("nightly.ingest", "FAIL"),
        ("nightly", "FAIL"),
    ]
    for event in events[2:]:
        error = event["run"]["facets"]["errorMessage"]
        assert "a.csv" in error["message"]
        assert "stackTrace" not in error


def test_record_run__interrupted(config):
    with pytest.raises(KeyboardInterrupt), record_run(config):
        raise KeyboardInterrupt
    events = read_events(config)
    assert list_states(events) == [("nightly", "START"), ("nightly", "ABORT")]
    assert read_tags(events[1])["outcome"] == "interrupted"


def test_record_run__a_defect_says_where(config):
    with pytest.raises(ZeroDivisionError), record_run(config):
        _ = 1 / 0
    error = read_events(config)[-1]["run"]["facets"]["errorMessage"]
    assert error["message"] == "ZeroDivisionError: division by zero"
    assert "test_run_events.py" in error["stackTrace"]


def test_record_run__no_events_where_they_are_off(config):
    lineage = config.section(LineageConfig).model_copy(update={"events": "off"})
    quiet = config.model_copy(update={"lineage": lineage})
    assert quiet.digest == config.digest
    run_to_start(quiet)
    assert not (open_store(config).root / EVENTS).exists()


def test_record_run__a_file_that_cannot_be_written_is_a_warning(config):
    (open_store(config).root / "lineage").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="lineage"):
        run = run_to_start(config)
    assert run.outcome == "promoted"


def test_record_run__the_library_is_named_where_it_lacks(config, monkeypatch):
    from pmflib.base import ConfigError

    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    lineage = config.section(LineageConfig).model_copy(update={"events": "client"})
    with (
        pytest.raises(ConfigError, match=r"pmflib\[lineage\]"),
        record_run(config.model_copy(update={"lineage": lineage})),
    ):
        pass
