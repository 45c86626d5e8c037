import io
import time

from rich.console import Console

from flows.progress_bars import _LinePrinter, show_progress
from tasks.stage_progress import Progress, report


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
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    reports = [("count", done, 9) for done in range(1, 6)]
    file = io.StringIO()
    printer = _LinePrinter(Console(file=file))
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
