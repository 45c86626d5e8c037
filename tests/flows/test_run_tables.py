import io
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

import pmflib as pmf
from pmflib.core.comparison import PairedGain, compare_candidates
from pmflib.core.weights import WeightSums
from pmflib.fitting.pair_agreement import PairAgreement
from pmflib_flows import run_tables
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.gate_decision import AssessedGain
from pmflib_tasks.guards.findings import Finding, Measurement, assess
from pmflib_tasks.scoring.target_report import LOGISTIC, MAJORITY, MODEL, compare_predictions


def test_make_run_tables__what_was_not_used_is_named():
    rows: dict[str, Any] = {"samples": 5, "rows_in": 9, "rows_encoded": 7, "rows_quarantined": 2}
    rows |= {"reasons": {"ragged": 2}, "cells_made_missing": {f"v{j}": 1 for j in range(99)}}
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    file = io.StringIO()
    console = Console(file=file, width=100)
    for table in run_tables.make_run_tables({"rows": rows, "model": model, "scores": {}}):
        console.print(table)
    text = file.getvalue()
    assert "rows in quarantine" in text
    assert "ragged" in text
    assert "v7 1" in text
    assert "v8" not in text


def test_make_quality_tables__what_crossed_a_limit_and_how_many_passed():
    sentence = "half of [bold] rows"
    found = Finding("quarantine", "all rows", 0.5, 0.2, "warn", False, sentence)
    guards = ("quarantine", "same_bytes", "file_size")
    skipped = [Measurement(guard, "x", None, "") for guard in guards]
    findings = [found, *assess(skipped, QualityConfig())]
    file = io.StringIO()
    for table in run_tables.make_quality_tables(findings):
        Console(file=file, width=100).print(table)
    text = file.getvalue()
    assert "half of [bold] rows" in text
    assert "2 guards of quality passed" in text
    (line,) = run_tables.make_quality_tables(findings[1:])
    assert str(line) == "3 guards of quality passed"


def test_make_run_tables__why_the_rank_was_chosen():
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    model["notes"] = ["pseudo-count 0.3: [best]"]
    facts: dict[str, Any] = {
        "rows": {},
        "model": model,
        "scores": {},
        "rank": {"verdict": "rank 2 is fine", "reasons": ["by pairs: [2]"]},
    }
    ranks = compare_candidates("pair", [{"rank": 2}, {"rank": 3}], [-1.5, -1.75])
    starts = compare_candidates("sample", [{"start": "auto"}, {"start": "[random]"}], [-9.0, -8.5])
    facts["rank"]["comparisons"] = [ranks.to_json()]
    model["comparisons"] = [starts.to_json()]
    facts["warnings"] = ["rank 2 is above [1]"]
    file = io.StringIO()
    for table in run_tables.make_run_tables(facts):
        Console(file=file, width=100).print(table)
    assert "why this rank" in file.getvalue()
    assert "by pairs: [2]" in file.getvalue()
    assert "Held-out log-likelihood by rank, nats per pair" in file.getvalue()
    assert "-1.75" in file.getvalue()
    assert file.getvalue().count(" chosen ") == 2
    assert "by start, nats per sample" in file.getvalue()
    assert "[random]" in file.getvalue()
    assert "pseudo-count 0.3: [best]" in file.getvalue()
    assert "rank 2 is above [1]" in file.getvalue()


def test_make_run_tables__errors_by_scale():
    def score(error):
        means = {"hidden_cells": 9.0, "accuracy": 0.5, "baseline_accuracy": 0.25}
        names = ("age", "income", *(f"v{n}" for n in range(8)))
        measures = {"rmse": error, "mae": 2.0, "baseline_rmse": 77.0, "baseline_mae": 3.0}
        errors = {name: {"cells": 9 - place} | measures for place, name in enumerate(names)}
        return means | {"errors": errors}

    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    facts: dict[str, Any] = {"rows": {}, "model": model, "scores": score(41.5)}
    facts |= {"live_scores": score(55.25), "gate": {"new": "a" * 24, "live": "b" * 24}}
    file = io.StringIO()
    for table in run_tables.make_run_tables(facts):
        Console(file=file, width=140).print(table)
    text = file.getvalue()
    (line,) = [line for line in text.splitlines() if "rmse of income" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        "rmse of income",
        "41.5",
        "55.25",
        "77",
    ]
    assert "mae of v5" in text
    assert "v6" not in text
    assert "errors of 2 more scales are in --json" in text


def test_make_target_tables__scores_differences_confusion_calibration_and_verdict():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 80)
    probabilities = rng.dirichlet([1, 1], 80)
    variable = pmf.Variable("[class]", ("no", "yes"))
    report = compare_predictions(
        variable, truth, {MODEL: probabilities, MAJORITY: np.full((80, 2), 0.5)}
    )
    file = io.StringIO()
    console = Console(file=file, width=200)
    for table in run_tables.make_target_tables(replace(report, left_out={LOGISTIC: "too many"})):
        console.print(table)
    text = file.getvalue()
    assert "[class] predicted from the other answers of held-out samples (80)" in text
    assert "log-loss (nats)" in text
    assert "true level by row" in text
    assert "mean probability" in text
    assert "logistic regression was left out: too many" in text
    assert "The model predicts '[class]'" in text


def test_make_run_tables__begin_with_the_dependence_that_is_explained():
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    agreement = PairAgreement(105, 12, 1.0, 0.07, ("relationship", "sex"), (), None)
    facts = {"rows": {}, "model": model, "scores": {"pairs": agreement.to_json()}}
    file = io.StringIO()
    for table in run_tables.make_run_tables(facts):
        Console(file=file, width=250).print(table)
    text = file.getvalue()
    assert agreement.sentence in text
    assert text.index(agreement.sentence) < text.index("spa")


def test_make_run_tables__gains_of_weighted_answers_say_what_they_allow_for():
    gain = AssessedGain(PairedGain(0.1, 0.01, 900, 300), "better").to_json()
    weights = WeightSums(6, (2_000_000,), (2_000_000_000_000,)).to_json()
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    shown = []
    for rows in ({}, {"weights": weights}):
        facts: dict[str, Any] = {"rows": rows, "model": model, "scores": {}}
        file = io.StringIO()
        for table in run_tables.make_run_tables(facts | {"gate": {"today": gain}}):
            Console(file=file, width=200).print(table)
        shown.append("allow for weights, and not for units" in file.getvalue())
    assert shown == [False, True]
