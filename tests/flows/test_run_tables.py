"""Tables of a run: the values they hold, and which are left out."""

import io
from typing import Any

import pytest
from rich.console import Console

from pmflib.base import PairedGain, WeightSums, compare_candidates, to_json
from pmflib.fits import PairAgreement
from pmflib_flows.run_tables import draw_sections
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.gate import AssessedGain
from pmflib_tasks.guards import Finding, Measurement, assess
from pmflib_tasks.sections import describe_quality, list_sections

FITTED: dict[str, Any] = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3}
FITTED |= {"converged": True}


def show(sections):
    """Text of sections in a wide terminal."""
    file = io.StringIO()
    console = Console(file=file, width=250)
    for part in draw_sections(sections):
        console.print(part)
    return file.getvalue()


def show_run(**facts):
    return show(list_sections({"rows": {}, "model": FITTED, "scores": {}} | facts))


def test_list_sections__what_was_not_used_is_named():
    rows: dict[str, Any] = {"samples": 5, "rows_in": 9, "rows_encoded": 7, "rows_quarantined": 2}
    rows |= {"reasons": {"ragged": 2}, "cells_made_missing": {f"v{j}": 1 for j in range(99)}}
    text = show_run(rows=rows)
    assert "ragged" in text
    # the variables with most of them
    assert "v7 1" in text
    assert "v8" not in text


def test_describe_quality__what_crossed_a_limit_and_how_many_passed():
    sentence = "half of [bold] rows"
    found = Finding("quarantine", "all rows", 0.5, 0.2, "warn", False, sentence)
    guards = ("quarantine", "same_bytes", "file_size")
    skipped = [Measurement(guard, "x", None, "") for guard in guards]
    findings = [found, *assess(skipped, QualityConfig())]
    text = show(describe_quality(RunFacts({"quality": to_json(findings)})))
    assert sentence in text
    assert "2 guards" in text
    text = show(describe_quality(RunFacts({"quality": to_json(findings[1:])})))
    assert text.startswith("3 guards")


def test_list_sections__comparisons_notes_and_warnings_are_shown_as_they_are():
    ranks = compare_candidates("pair", [{"rank": 2}, {"rank": 3}], [-1.5, -1.75])
    starts = compare_candidates("sample", [{"start": "auto"}, {"start": "[random]"}], [-9.0, -8.5])
    rank = {"verdict": "fine", "reasons": ["by pairs: [2]"], "comparisons": [ranks.to_json()]}
    model = FITTED | {"notes": ["pseudo-count: [best]"], "comparisons": [starts.to_json()]}
    text = show_run(model=model, rank=rank, warnings=["above [1]"])
    for shown in ("by pairs: [2]", "-1.75", "[random]", "pseudo-count: [best]", "above [1]"):
        assert shown in text
    assert text.count(" chosen ") == 2


def test_list_sections__errors_by_scale():
    def score(error):
        means = {"hidden_cells": 9.0, "accuracy": 0.5, "baseline_accuracy": 0.25}
        names = ("age", "income", *(f"v{n}" for n in range(8)))
        measures = {"rmse": error, "mae": 2.0, "baseline_rmse": 77.0, "baseline_mae": 3.0}
        errors = {name: {"cells": 9 - place} | measures for place, name in enumerate(names)}
        return means | {"errors": errors}

    gate = {"new": "a" * 24, "live": "b" * 24}
    text = show_run(scores=score(41.5), live_scores=score(55.25), gate=gate)
    (line,) = [line for line in text.splitlines() if "rmse of income" in line]
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells[1:] == ["41.5", "55.25", "77"]
    assert "mae of v5" in text
    assert "v6" not in text


def test_list_sections__begin_with_the_dependence_that_is_explained():
    agreement = PairAgreement(105, 12, 1.0, 0.07, ("relationship", "sex"), (), None)
    text = show_run(scores={"pairs": agreement.to_json()})
    assert text.index(agreement.sentence) < text.index("spa")


@pytest.mark.parametrize("weighted", [False, True])
def test_list_sections__gains_of_weighted_answers_say_what_they_allow_for(weighted):
    gain = AssessedGain(PairedGain(0.1, 0.01, 900, 300), "better").to_json()
    weights = WeightSums(6, (2_000_000,), (2_000_000_000_000,)).to_json()
    text = show_run(rows={"weights": weights} if weighted else {}, gate={"today": gain})
    assert ("weights" in text) == weighted
