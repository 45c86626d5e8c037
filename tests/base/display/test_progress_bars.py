"""Progress of functions of the library: asked for, drawn, and gone."""

import io
import sys
import threading
import time
import types
import warnings
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import pmflib as pmf
from pmflib.base import (
    Notice,
    Progress,
    divert_functions,
    draw_progress,
    listen,
    report_progress,
    report_step,
    send_event,
    working,
)
from pmflib.base.display.progress_bars import LinePrinter, draw_in_notebook
from tests.factories import draw_two_states

LABELS = {"task": [1, 1, 1, 2, 2, 2], "worker": list("abcabc"), "label": list("xxyyyx")}


@pytest.fixture(scope="module")
def codes():
    return draw_two_states(300, 4)


@pytest.fixture(scope="module")
def counts(codes):
    return pmf.count_pairs(codes, [2] * 4)


CALLS = {
    "fit": lambda codes, counts: pmf.fit(counts, 2),
    "fit_em": lambda codes, counts: pmf.fit_em(codes, rank=2, max_passes=20),
    "fit_triples": lambda codes, counts: pmf.fits.fit_triples(
        pmf.counts.count_triples(codes, [2] * 4), 2
    ),
    "distil": lambda codes, counts: pmf.fits.distil(
        pmf.fit(counts, 2, method="spa").model, 2, n_samples=500, max_passes=20
    ),
    "select_rank": lambda codes, counts: pmf.fits.select_rank(counts, ranks=[1, 2]),
    "aggregate": lambda codes, counts: pmf.crowd.aggregate(LABELS),
    "class_regression": lambda codes, counts: pmf.inference.class_regression(
        pmf.fit(counts, 2).model, codes, {"x": np.linspace(0, 1, 300)}
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_progress__reports_start_steps_and_end(name, codes, counts):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
        with pmf.progress(seen.append):
            CALLS[name](codes, counts)
        silent = list(seen)
        CALLS[name](codes, counts)
    assert seen == silent  # nobody listens any more
    mine = [each for each in seen if each.stage == name]
    assert mine[0].done == 0
    assert mine[-1].done == mine[-1].total > 0
    if name != "fit_triples":
        assert len(mine) > 2
        assert mine[1].text


def test_progress__changes_no_bit(codes):
    with pmf.progress(lambda each: None):
        watched = pmf.fit_em(codes, rank=2, max_passes=20)
    alone = pmf.fit_em(codes, rank=2, max_passes=20)
    np.testing.assert_array_equal(watched.model.factors, alone.model.factors)


def test_progress__failure_ends_the_bar(counts):
    seen = []
    with pmf.progress(seen.append), pytest.raises(pmf.PmfError):
        pmf.fit(counts, 0)
    assert [(each.done, each.total) for each in seen] == [(0, 1), (1, 1)]
    report_step(1, 2, "after the end")
    assert len(seen) == 2


def test_progress__nothing_is_printed_in_batch_jobs(counts, capsys):
    with pmf.progress():
        pmf.fit(counts, 2)
    pmf.fit(counts, 2)
    assert capsys.readouterr() == ("", "")


def test_progress__lines_where_they_are_asked_for(counts, capsys):
    with pmf.progress("lines"):
        pmf.fit(counts, 2, method="spa")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("fit: 1 of 1, ")


def test_progress__bars_are_gone_at_the_end(counts, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with pmf.progress():
        pmf.fit(counts, 2)
    text = screen.getvalue()
    assert "fit" in text
    # the cursor is back where it was, and the line is erased
    assert text.rstrip().endswith("\x1b[2K")


def test_progress__unknown_word():
    with pytest.raises(pmf.PmfError, match="to"):
        with pmf.progress("bars"):  # type: ignore[arg-type]
            pass


def test_working__another_thread_is_silent():
    seen = []

    def work():
        with working("there"):
            report_step(1, 2, "x")

    with listen(seen.append, Progress), working("here", 3, "y") as send:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        send(2, 3, "z")
    assert seen == [
        Progress("here", 0, 3, "y"),
        Progress("here", 2, 3, "z"),
        Progress("here", 3, 3, "z"),
    ]


def test_report_progress__reaches_all_listeners_and_no_more():
    first, second = [], []
    with listen(first.append, Progress), listen(second.append, Progress):
        report_progress("count", 1, 2, "x")
    report_progress("count", 2, 2)
    assert first == second == [Progress("count", 1, 2, "x")]


def test_listen__to_one_kind_of_event():
    progress, numbers = [], []
    with listen(progress.append, Progress), listen(numbers.append, int):
        send_event(3)
        report_progress("count", 1, 2)
    assert (progress, numbers) == ([Progress("count", 1, 2)], [3])


def test_divert_functions__leaves_reports_by_name():
    seen, inner = [], []
    with listen(seen.append, Progress):
        with working("outer"), divert_functions():
            report_step(1, 2, "not of the outer piece")
            with working("function") as silent:
                assert silent is None
            with divert_functions(inner.append), working("function"):
                report_progress("stage", 1, 2)
    assert [each.stage for each in seen] == ["outer", "stage", "outer"]
    assert [(each.stage, each.done) for each in inner] == [("function", 0), ("function", 1)]


def test_draw_in_notebook__updates_one_cell_and_leaves_it_clean(monkeypatch):
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    fake: Any = types.ModuleType("IPython.display")
    fake.HTML = str
    fake.display = lambda html, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    with draw_in_notebook() as drawer:
        drawer(Progress("fit_em", 3, 200, "<b>"))
        text = drawer.write()  # type: ignore[attr-defined]
        drawer(Progress("fit_em", 200, 200))
    assert '<progress value="3" max="200"></progress>' in text
    assert "3 of 200" in text
    assert "&lt;b&gt;" in text
    assert shown[-1] == ""


def show(reports, *, terminal, width=100):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width)
    with draw_progress(console):
        for arguments in reports:
            report_progress(*arguments)
    return file.getvalue()


REPORTS = [
    ("count", 0, 3),
    ("count", 1, 3, "5 samples"),
    ("count", 3, 3, "15 samples [a]"),
    ("fit", 0, 1),
    ("fit", 1, 1),
]


def test_draw_progress__a_line_per_stage_without_a_terminal():
    lines = show(REPORTS, terminal=False).splitlines()
    assert [line.split(",")[0] for line in lines] == ["count: 3 of 3", "fit: 1 of 1"]
    assert lines[0].endswith("15 samples [a]")


def test_draw_progress__long_stages_are_reported_without_a_terminal(monkeypatch):
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


def test_line_printer__what_a_stage_waits_for_stands_in_place_of_its_progress(monkeypatch):
    now, file = 0.0, io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    printer = LinePrinter(Console(file=file))
    printer(Progress("refine", 3, 200, "at most 38 s left"))
    printer.print_notice(Notice("worker tcp://a:1 lost, 0 left"))
    now = 40
    printer.print_notice(Notice("no workers for 40 s", is_waiting=True))
    now = 50
    printer.remind()
    printer.print_notice(Notice("worker tcp://b:2 joined: 1 now"))
    now = 60
    printer.remind()
    assert file.getvalue().splitlines() == [
        "worker tcp://a:1 lost, 0 left",
        "refine: 3 of 200, 40 s, no workers for 40 s",
        "refine: 3 of 200, 50 s, no workers for 40 s",
        "worker tcp://b:2 joined: 1 now",
        "refine: 3 of 200, 60 s, at most 38 s left",
    ]


def test_draw_progress__notices_above_the_bars():
    file = io.StringIO()
    with draw_progress(Console(file=file, force_terminal=True, width=90)):
        report_progress("refine", 3, 200, "at most 38 s left")
        send_event(Notice("worker tcp://a:1 lost, 0 left"))
        send_event(Notice("no workers for 40 s", is_waiting=True))
    text = file.getvalue()
    assert "worker tcp://a:1 lost, 0 left" in text
    assert "no workers for 40 s" in text.split("\x1b[2K")[-1]


def test_draw_progress__bars_on_a_terminal():
    text = show(REPORTS, terminal=True)
    last = text.split("\x1b[2K")[-1]
    assert "15 samples [a]" in last
    assert "3/3" in last
    assert "1/1" in last
