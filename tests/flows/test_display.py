import io
import time
from typing import Any

from rich.console import Console

from flows import display
from tasks.stage import Progress, report


def show(reports, *, terminal, width=100):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width)
    with display.show_progress(console):
        for arguments in reports:
            report(*arguments)
    return file.getvalue()


REPORTS = [
    ("count", 0, 3),
    ("count", 1, 3, "5 samples"),
    ("count", 3, 3, "15 samples [a]"),
    ("fit", 0, 1),
    ("fit", 1, 1),
]


def test_show_progress__a_line_per_stage_without_a_terminal():
    lines = show(REPORTS, terminal=False).splitlines()
    assert lines == ["count: 3 of 3, 0 s, 15 samples [a]", "fit: 1 of 1, 0 s"]


def test_show_progress__long_stages_are_heard_of_without_a_terminal(monkeypatch):
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    reports = [("count", done, 9) for done in range(1, 6)]
    file = io.StringIO()
    printer = display._LinePrinter(Console(file=file))
    for name, done, total in reports:
        printer(Progress(name, done, total))
    assert file.getvalue().splitlines() == ["count: 3 of 9, 40 s", "count: 5 of 9, 80 s"]


def test_show_progress__bars_on_a_terminal():
    text = show(REPORTS, terminal=True)
    last = text.split("\x1b[2K")[-1]
    assert "15 samples [a]" in last
    assert "3/3" in last
    assert "1/1" in last


def test_show_progress__a_narrow_terminal_keeps_the_numbers():
    text = show([("count", 2, 3, "x" * 200)], terminal=True, width=80)
    last = text.split("\x1b[2K")[-1]
    assert "2/3" in last
    assert "0:00:00" in last
    assert "…" in last


def test_make_facts_tables__what_was_not_used_is_named():
    rows: dict[str, Any] = {"samples": 5, "rows_in": 9, "rows_encoded": 7, "rows_quarantined": 2}
    rows |= {"reasons": {"ragged": 2}, "cells_made_missing": {f"v{j}": 1 for j in range(99)}}
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    file = io.StringIO()
    console = Console(file=file, width=100)
    for table in display.make_facts_tables({"rows": rows, "model": model, "scores": {}}):
        console.print(table)
    text = file.getvalue()
    assert "rows in quarantine" in text
    assert "ragged" in text
    assert "v7 1" in text
    assert "v8" not in text


def test_make_facts_tables__why_the_rank_was_chosen():
    model = {"method": "spa", "rank": 2, "passes": 3, "best_pass": 3, "converged": True}
    model["notes"] = ["pseudo-count 0.3: [best]"]
    facts: dict[str, Any] = {
        "rows": {},
        "model": model,
        "scores": {},
        "rank": {"reasons": ["by pairs: [2]"]},
    }
    rows = [[2, 0.1, -1.5, 0.0, 0.0, "← chosen"], [3, 0.1, -1.75, 0.25, 0.1, "███"]]
    facts["rank"]["curves"] = [{"title": "by rank [nats]", "reason": "", "rows": rows}]
    facts["warnings"] = ["rank 2 is above [1]"]
    file = io.StringIO()
    for table in display.make_facts_tables(facts):
        Console(file=file, width=100).print(table)
    assert "why this rank" in file.getvalue()
    assert "by pairs: [2]" in file.getvalue()
    assert "by rank [nats]" in file.getvalue()
    assert "-1.75" in file.getvalue()
    assert "← chosen" in file.getvalue()
    assert "pseudo-count 0.3: [best]" in file.getvalue()
    assert "rank 2 is above [1]" in file.getvalue()
