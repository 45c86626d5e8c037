"""A store that an earlier state of the project wrote, before its modules were moved, is read as it is."""

import json
import tarfile
from pathlib import Path

import pytest

from pmflib.counts import PairCounts
from pmflib.store import Store
from pmflib_tasks.guards import PAIRS
from tests.factories import call_command

KEPT = Path(__file__).with_name("kept_store.tar.gz")
"""Pipeline, schema, 120 drawn rows and the store of `pmf run pipeline.toml`."""
MODEL = "ed75ef9b2d7c33b0ef41a556"


@pytest.fixture
def kept(tmp_path):
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def list_artefacts(folder):
    found = [entry.reference for entry in Store(str(folder / "store")).entries()]
    return {(each.kind, each.digest) for each in found}


def read_counts(folder):
    """Tables of all counts of the store; how they are compressed depends on the release of Zarr."""
    store = Store(str(folder / "store"))
    found = [entry.reference for entry in store.entries() if entry.reference.kind == "counts"]
    return {PairCounts.load(store.locate(each) / PAIRS).tables.tobytes() for each in found}


def test_kept_store__another_run_keeps_its_model_and_stays_whole(kept, monkeypatch, capsys):
    before, counts = list_artefacts(kept), read_counts(kept)
    assert call_command(monkeypatch, "run", kept / "pipeline.toml", "--json") == 0
    run = json.loads(capsys.readouterr().out)
    assert run["live_model"][:24] == MODEL
    made = list_artefacts(kept) - before
    # its rows are read again, for what is superseded names by what since; and come to the same counts
    assert "samples" in {kind for kind, _ in made}
    assert read_counts(kept) == counts
    assert call_command(monkeypatch, "verify", kept / "pipeline.toml") == 0


def test_kept_store__its_model_answers_as_it_did(kept, monkeypatch, capsys):
    question = "P(q1=yes | q2=yes)"
    asked = ("query", kept / "pipeline.toml", question, "--json")
    assert call_command(monkeypatch, *asked, "--from", "model") == 0
    known = 0.6357920801882087
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(known, abs=1e-12)
    # nothing was learnt of what it is worth: with its counts it answers by what is assumed
    assert call_command(monkeypatch, *asked) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["levels"]
    n, (m,) = found["support"]["given"][0]["with_targets"], found["equivalent_samples"]
    assert found["equivalent_samples_assumed"]
    assert m > 0
    assert found["value"] == pytest.approx((n * row["counted"] + m * known) / (n + m))
