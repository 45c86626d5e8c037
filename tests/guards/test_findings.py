from collections import Counter
from dataclasses import replace

import pytest

from pmflib.base import QualityError, SourceError
from pmflib.ingest import DatasetAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guard_limits import GuardLimits
from pmflib_tasks.guards import (
    GUARDS,
    Finding,
    Measurement,
    accept,
    assess,
    condense,
    refuse_empty,
    stop_on_findings,
    summarise,
)

CONFIG = QualityConfig()


def make_finding(action, guard="quarantine", subject="all rows"):
    return Finding(guard, subject, 0.5, 0.2, action, action in ("pass", "off"), f"{subject}: half")


def test_assess__the_stricter_limit_that_is_crossed():
    limits = GuardLimits(warn=0.1, stop=0.3)
    shares = (0.1, 0.2, 0.3, 0.31)
    found = assess([Measurement("quarantine", "x", each, "", limits) for each in shares], CONFIG)
    assert [(f.action, f.limit, f.passed) for f in found] == [
        ("pass", 0.1, True),
        ("warn", 0.1, False),
        ("warn", 0.1, False),
        ("stop", 0.3, False),
    ]


def test_assess__off():
    measured = Measurement("quarantine", "x", 1.0, "all of it", GuardLimits())
    found, none = assess([measured, Measurement("pair_drift", "all", None, "why")], CONFIG)
    assert (found.action, found.passed, found.limit, found.measured) == ("off", True, None, 1.0)
    assert (none.action, none.passed, none.limit, none.measured) == ("off", True, None, None)


def test_stop_on_findings__names_measured_limit_and_remedy():
    stopped = [make_finding("stop"), make_finding("stop", "same_bytes", "b.csv")]
    with pytest.raises(QualityError) as error:
        stop_on_findings([make_finding("pass"), *stopped, make_finding("warn", "file_size")])
    _, first, second, last = str(error.value).splitlines()
    for shown in ("quarantine", "all rows", "0.5", "0.2", GUARDS["quarantine"].remedy):
        assert shown in first
    assert "b.csv" in second
    assert "file_size" not in str(error.value)
    assert "--accept-quality" in last


def test_stop_on_findings__accepted_and_warned_go_on():
    accepted = accept([make_finding("stop"), make_finding("warn"), make_finding("pass")])
    assert [f.action for f in accepted] == ["accepted", "warn", "pass"]
    assert not accepted[0].passed
    stop_on_findings(accepted)


def test_condense__keeps_what_crossed_and_one_that_passed():
    findings = [make_finding("pass", subject=f"{n}.csv") for n in range(5)]
    findings += [make_finding("warn", subject="x.csv"), make_finding("pass", "same_bytes")]
    kept = condense(findings)
    assert [(f.guard, f.subject) for f in kept] == [
        ("quarantine", "0.csv"),
        ("quarantine", "x.csv"),
        ("same_bytes", "all rows"),
    ]
    assert "4 more" in kept[0].sentence
    summary = summarise(findings)
    assert [summary[key] for key in ("passed", "warned", "stopped")] == [6, 1, 0]


def test_condense__of_many_that_crossed_some():
    findings = [make_finding("stop", subject=f"{n}.csv") for n in range(50)]
    kept = condense(findings, 3)
    assert [f.subject for f in kept] == ["0.csv", "1.csv", "2.csv"]
    assert "47 more" in kept[-1].sentence
    with pytest.raises(QualityError, match=r"50(?s:.)*47 more") as error:
        stop_on_findings(findings)
    assert len(str(error.value).splitlines()) == 5


def test_refuse_empty__names_what_is_in_quarantine():
    rows = DatasetAccount(9, 7)
    refuse_empty(replace(rows, observed=5))
    with pytest.raises(SourceError, match="9 rows"):
        refuse_empty(rows)
    empty = DatasetAccount(9, reasons=Counter(unknown_level=9))
    with pytest.raises(SourceError, match="unknown_level 9"):
        refuse_empty(empty)
