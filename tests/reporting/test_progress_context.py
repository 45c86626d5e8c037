"""Progress of functions of the library: asked for, drawn, and gone."""

import io
import sys
import threading
import types
import warnings
from typing import Any

import numpy as np
import pytest

import pmflib as pmf
from pmflib.errors import ConvergenceWarning, PmfError
from pmflib.reporting.notebook_bars import draw_in_notebook
from pmflib.reporting.work_progress import Progress, listen_here, report_step, working

LABELS = {"task": [1, 1, 1, 2, 2, 2], "worker": list("abcabc"), "label": list("xxyyyx")}


@pytest.fixture(scope="module")
def codes():
    rng = np.random.default_rng(0)
    state = rng.integers(0, 2, (300, 1))
    return np.where(rng.random((300, 4)) < 0.85, state, 1 - state).astype(np.int8)


@pytest.fixture(scope="module")
def counts(codes):
    return pmf.count_pairs(codes, [2] * 4)


CALLS = {
    "fit": lambda codes, counts: pmf.fit(counts, 2),
    "fit_em": lambda codes, counts: pmf.fit_em(codes, rank=2, max_passes=20),
    "fit_triples": lambda codes, counts: pmf.fit_triples(pmf.count_triples(codes, [2] * 4), 2),
    "distil": lambda codes, counts: pmf.distil(
        pmf.fit(counts, 2, method="spa").model, 2, n_samples=500, max_passes=20
    ),
    "select_rank": lambda codes, counts: pmf.select_rank(counts, ranks=[1, 2]),
    "aggregate": lambda codes, counts: pmf.crowd.aggregate(LABELS),
}


@pytest.mark.parametrize("name", CALLS)
def test_progress__reports_start_steps_and_end(name, codes, counts):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
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
    with pmf.progress(seen.append), pytest.raises(PmfError):
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
    drawn = screen.getvalue()
    assert "fit" in drawn
    # the cursor is back where it was, and the line is erased
    assert drawn.rstrip().endswith("\x1b[2K")


def test_progress__unknown_word():
    with pytest.raises(PmfError, match="to is 'bars'; give 'auto', 'lines', or a function"):
        with pmf.progress("bars"):  # type: ignore[arg-type]
            pass


def test_working__another_thread_is_silent():
    seen = []

    def work():
        with working("there"):
            report_step(1, 2, "x")

    with listen_here(seen.append), working("here", 3, "y") as report:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        report(2, 3, "z")
    assert seen == [
        Progress("here", 0, 3, "y"),
        Progress("here", 2, 3, "z"),
        Progress("here", 3, 3, "z"),
    ]


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


def test_warning__points_at_the_caller(codes):
    model = pmf.fit(pmf.count_pairs(codes, [2] * 4), 2, method="spa").model
    with pytest.warns(ConvergenceWarning) as caught:
        pmf.fit_em(codes, model, max_passes=1)
    assert caught[0].filename == __file__
