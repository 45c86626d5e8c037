import io
import time

from rich.console import Console

from flows.stage_bars import show_progress
from pmflib.reporting.progress_bars import LinePrinter
from pmflib.reporting.work_progress import Progress
from tasks.stage_progress import report


def show(reports, *, terminal, width=100):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width)
    with show_progress(console):
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


def test_show_progress__long_stages_are_reported_without_a_terminal(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    file = io.StringIO()
    printer = LinePrinter(Console(file=file))
    for done in range(1, 6):
        printer(Progress("count", done, 9))
        now += 2
    assert file.getvalue().splitlines() == ["count: 4 of 9, 6 s"]
    # nothing more is reported, and the last report is said again
    for _ in range(5):
        printer.remind()
        now += 2
    lines = ["count: 4 of 9, 6 s", "count: 5 of 9, 12 s", "count: 5 of 9, 18 s"]
    assert file.getvalue().splitlines() == lines
    printer(Progress("count", 9, 9))
    now += 100
    printer.remind()
    assert file.getvalue().splitlines() == [*lines, "count: 9 of 9, 20 s"]


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
