import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pmflib.base import PairedGain
from pmflib_tasks.config import GateConfig
from pmflib_tasks.gate import GateNumbers
from pmflib_tasks.gate.gate_decision import assess_gain, decide, find_margin

GATE = GateConfig(least_cells=100, standard_errors=2.0, largest_loss=0.02)


def make_gain(gain, error, cells=10_000, samples=1_000):
    return PairedGain(gain, error, cells, samples)


BETTER = make_gain(0.1, 0.001)
EQUAL = make_gain(-0.001, 0.002)
WORSE = make_gain(-0.1, 0.01)
UNSURE = make_gain(-0.005, 0.05)
FEW = make_gain(0.001, 0.001, cells=27, samples=9)
OBSTACLE = "the schema has changed"


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        (BETTER, "better"),
        (EQUAL, "no worse"),
        (make_gain(0.0, 0.0), "no worse"),
        # sure to be worse, and sure not to lose more than is tolerated
        (make_gain(-0.01, 0.001), "no worse"),
        (make_gain(-0.019, 0.001), "worse"),
        (WORSE, "worse"),
        (UNSURE, "unsure"),
        (FEW, "unsure"),
        (make_gain(0.5, math.inf, samples=1), "unsure"),
        (make_gain(0.0, 0.0, cells=0, samples=0), "unsure"),
    ],
)
def test_assess_gain__every_decision(found, decision):
    assessed = assess_gain(found, GATE)
    assert assessed.decision == decision
    assert assessed.passes == (decision in ("better", "no worse"))


def test_assess_gain__of_few_samples_chance_is_as_large_as_t_says():
    for n_samples in (2, 3, 10, 1_000_000):
        margin = find_margin(make_gain(0.0, 0.01, samples=n_samples), GATE.standard_errors, 1.0)
        quantile = stats.t.isf(stats.norm.sf(2.0), n_samples - 1)
        assert margin == pytest.approx(0.01 * quantile, rel=1e-9)
    assert margin == pytest.approx(0.02, rel=1e-5)


def test_assess_gain__cells_that_are_needed():
    """A margin of 0.1 shrinks with the root of the samples: 25 times as many for 0.02."""
    assessed = assess_gain(make_gain(0.0, 0.05), GATE)
    assert assessed.needed is not None
    assert 25 <= assessed.needed / 10_000 <= 25 * 1.1
    assert assess_gain(FEW, GATE).needed == 100
    assert assess_gain(make_gain(0.5, math.inf, samples=1), GATE).needed is None
    sure = GATE.model_copy(update={"largest_loss": 0.0})
    assert assess_gain(UNSURE, sure).needed is None
    assert assess_gain(UNSURE, GATE).to_json() == {
        "gain": -0.005,
        "standard_error": 0.05,
        "cells": 10_000,
        "samples": 1_000,
        "verdict": "unsure",
        "needed": assess_gain(UNSURE, GATE).needed,
    }


def test_assess_gain__without_tolerance_only_what_is_better_passes():
    strict = GATE.model_copy(update={"largest_loss": 0.0})
    assert assess_gain(BETTER, strict).passes
    assert not assess_gain(EQUAL, strict).passes


@pytest.mark.parametrize(
    ("today", "reference", "promoted"),
    [
        (BETTER, None, True),
        (BETTER, EQUAL, True),
        (EQUAL, EQUAL, True),
        (BETTER, WORSE, False),
        (WORSE, BETTER, False),
        (WORSE, None, False),
        (UNSURE, WORSE, False),
        (UNSURE, BETTER, False),
        (BETTER, UNSURE, False),
        (FEW, FEW, False),
        (FEW, None, False),
        (OBSTACLE, None, False),
        (BETTER, "it is gone", False),
        # a log that began small has outgrown its reference: it may object, but need not be sure
        (BETTER, FEW, True),
        (BETTER, make_gain(-1, 0.5, 5_001), False),
        (BETTER, make_gain(-1, 0.5, 5_000), True),
        (BETTER, make_gain(-1, 0.1, 200, 20), False),
        (UNSURE, FEW, False),
    ],
)
def test_decide__every_pair_of_decisions(today, reference, promoted):
    decision = decide(GATE, today, reference)
    assert decision.promoted is promoted
    assert ("`pmf promote`" in decision.reason) is not promoted
    assert decision.numbers.rule == GATE
    assert ("reference" in decision.numbers.sets) == (reference is not None)
    recorded = GateNumbers.read(decision.numbers.to_json())
    assert replace(recorded, rule=GATE) == decision.numbers
    assert decision.is_comparable == (today is not OBSTACLE)


def test_decide__what_a_person_withdrew_stays_back():
    decision = decide(GATE, BETTER, BETTER, "model abc was rolled back by hand in run 7")
    assert not decision.promoted
    assert "model abc was rolled back" in decision.reason
    assert decision.numbers.assessed["today"].found.gain == 0.1


def test_gate_numbers__keys_that_records_have():
    keys = ("gain", "standard_error", "cells", "samples", "verdict", "needed")
    content: Any = decide(GATE, OBSTACLE, BETTER).numbers.to_json()
    assert list(content) == ["reference", "today", "rule"]
    assert content["today"] == {"obstacle": OBSTACLE}
    assert (tuple(content["reference"]), content["rule"]) == (keys, GATE.model_dump())
    assert make_gain(0, np.inf).to_json()["standard_error"] is None


def test_decide__chance_of_passing_is_what_the_rule_says():
    """Models that are as bad as is just tolerated pass in 2.3 % of cases, with few samples and with many."""
    rng = np.random.default_rng(0)
    for n_samples in (4, 200):
        gains = rng.normal(-0.02, 0.1, (4000, n_samples))
        errors = gains.std(axis=1, ddof=1) / math.sqrt(n_samples)
        passed = [
            decide(GATE, make_gain(mean, error, 1000, n_samples), None).promoted
            for mean, error in zip(gains.mean(axis=1), errors, strict=True)
        ]
        assert np.mean(passed) == pytest.approx(stats.norm.sf(2.0), abs=0.01)
