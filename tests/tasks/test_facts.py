"""Facts of a run: sections of its record, with their types."""

import json

import pytest

from pmflib.base import PairedGain
from pmflib.store import StageTiming
from pmflib_tasks.facts import Refit, RunFacts
from pmflib_tasks.gate import AssessedGain, GateNumbers
from pmflib_tasks.guards import Finding

FINDING = Finding("rows", "all rows", 3.0, 5.0, "warn", passed=False, sentence="few rows")


def test_run_facts__sections_are_noted_as_plain_json_in_order():
    facts = RunFacts()
    facts.note(refit=Refit("warm", "warm from run 1", "ab"), labels={"tasks": 3})
    facts.note(quality=[FINDING], timings=[StageTiming("fit", 1.5)])
    assert list(facts) == ["refit", "labels", "quality", "timings"]
    written = json.loads(json.dumps(dict(facts)))
    assert written["refit"] == {"way": "warm", "reason": "warm from run 1", "options": "ab"}
    assert written["quality"][0]["named"] == []
    read = RunFacts(written)
    assert (read.refit, read.findings) == (facts.refit, [FINDING])


def test_run_facts__without_sections_nothing_is_known():
    facts = RunFacts({"rows": {}, "gate": {}})
    assert (facts.account, facts.refit, facts.agreement) == (None, None, None)
    assert (facts.findings, facts.warnings, facts.gate) == ([], [], GateNumbers())
    assert facts.name_model("new") is None


def test_run_facts__gate():
    gain = AssessedGain(PairedGain(0.1, 0.01, 900, 300), "better")
    gate = {"new": "ab", "live": None, "today": gain.to_json(), "reference": {"obstacle": "gone"}}
    facts = RunFacts({"gate": gate})
    assert facts.gate == GateNumbers(gain, "gone")
    assert (facts.name_model("new"), facts.name_model("live")) == ("ab", None)


def test_run_facts__a_damaged_section_is_named_when_it_is_read():
    facts = RunFacts({"refit": {"way": "warm", "options": 3}, "warnings": ["few rows"]})
    assert facts.warnings == ["few rows"]
    with pytest.raises(ValueError, match=r"Refit\.options is 3, expected str"):
        facts.refit  # noqa: B018
