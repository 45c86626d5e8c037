import io
from typing import Any

import numpy as np
from rich.console import Console

from flows import fact_tables
from flows.target_tables import make_target_tables
from pmflib.prediction.predictor_comparison import MAJORITY, MODEL, compare_predictions
from pmflib.schema import Variable
from pmflib.selection.comparison import compare


def test_make_facts_tables__what_was_not_used_is_named():
    rows: dict[str, Any] = {"samples": 5, "rows_in": 9, "rows_encoded": 7, "rows_quarantined": 2}
    rows |= {"reasons": {"ragged": 2}, "cells_made_missing": {f"v{j}": 1 for j in range(99)}}
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    file = io.StringIO()
    console = Console(file=file, width=100)
    for table in fact_tables.make_facts_tables({"rows": rows, "model": model, "scores": {}}):
        console.print(table)
    text = file.getvalue()
    assert "rows in quarantine" in text
    assert "ragged" in text
    assert "v7 1" in text
    assert "v8" not in text


def test_make_quality_tables__what_crossed_a_limit_and_how_many_passed():
    found: dict[str, Any] = {"guard": "quarantine", "measured": 0.5, "limit": 0.2, "action": "warn"}
    found |= {"passed": False, "sentence": "half of [bold] rows"}
    findings = [found, *({"guard": guard, "passed": True} for guard in ("quarantine", "a", "b"))]
    file = io.StringIO()
    for table in fact_tables.make_quality_tables(findings):
        Console(file=file, width=100).print(table)
    text = file.getvalue()
    assert "half of [bold] rows" in text
    assert "2 guards of quality passed" in text
    (line,) = fact_tables.make_quality_tables(findings[1:])
    assert str(line) == "3 guards of quality passed"


def test_make_facts_tables__why_the_rank_was_chosen():
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    model["notes"] = ["pseudo-count 0.3: [best]"]
    facts: dict[str, Any] = {
        "rows": {},
        "model": model,
        "scores": {},
        "rank": {"verdict": "rank 2 is fine", "reasons": ["by pairs: [2]"]},
    }
    ranks = compare("pair", [{"rank": 2}, {"rank": 3}], [-1.5, -1.75])
    starts = compare("sample", [{"start": "auto"}, {"start": "[random]"}], [-9.0, -8.5])
    facts["rank"]["comparisons"] = [ranks.to_json()]
    model["comparisons"] = [starts.to_json()]
    facts["warnings"] = ["rank 2 is above [1]"]
    file = io.StringIO()
    for table in fact_tables.make_facts_tables(facts):
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


def test_make_target_tables__scores_differences_confusion_calibration_and_verdict():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 80)
    pmf = rng.dirichlet([1, 1], 80)
    variable = Variable("[class]", ("no", "yes"))
    report = compare_predictions(variable, truth, {MODEL: pmf, MAJORITY: np.full((80, 2), 0.5)})
    file = io.StringIO()
    console = Console(file=file, width=200)
    for table in make_target_tables(report | {"left_out": {"logistic regression": "too many"}}):
        console.print(table)
    text = file.getvalue()
    assert "[class] predicted from the other answers of held-out samples (80)" in text
    assert "log-loss (nats)" in text
    assert "true level by row" in text
    assert "mean probability" in text
    assert "logistic regression was left out: too many" in text
    assert "The model predicts '[class]'" in text
