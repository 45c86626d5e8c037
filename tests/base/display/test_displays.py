"""Summaries of what a person looks at in a notebook: what they say, how large they are, hostile labels."""

from html.parser import HTMLParser

import numpy as np
import pytest

import pmflib as pmf
from pmflib.apps import crowd
from pmflib.base import Summary, SummaryTable, percent
from tests.factories import draw_two_states

HOSTILE = '</table><script>alert("x")</script><img src=x onerror=alert(1)>\x1b[31m\u202e[bold]'
VOID = {"img", "br", "meta"}


class Reader(HTMLParser):
    """Reads HTML and checks that elements nest."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.texts = [], set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(html):
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    assert reader.tags <= set(
        "div style p table caption thead tbody tr th td ul li details summary".split()
    )
    assert "http" not in html
    return reader


@pytest.fixture(scope="module")
def codes():
    return draw_two_states(600, 4)


@pytest.fixture(scope="module")
def hostile_schema():
    names = [f"{HOSTILE}{index}" for index in range(4)]
    return pmf.Schema(tuple(pmf.Variable(name, (HOSTILE, "no"), other="no") for name in names))


def show_both(shown):
    html, text = shown._repr_html_(), str(shown.summary())
    assert text == repr(shown.summary())
    assert shown.summary()._repr_html_() == html
    return read(html), text


def test_summary__hostile_labels_are_escaped_everywhere(codes, hostile_schema):
    counts = pmf.count_pairs(codes, hostile_schema)
    result = pmf.fit_em(codes, pmf.fit(counts, 2, method="spa").model, max_passes=5, tol=0.1)
    table = {
        "task": [HOSTILE, 1, 1],
        "worker": [HOSTILE, "a", "b"],
        "label": [HOSTILE, "x", HOSTILE],
    }
    found = crowd.aggregate(table)
    shown = (hostile_schema, hostile_schema[0], counts, result, result.model, found)
    for each in shown:
        reader, text = show_both(each)
        assert "script" not in reader.tags
        assert "\x1b" not in text
        assert "\u202e" not in text + "".join(reader.texts)
        assert "</table>" in text  # as it is written, not as it acts


def test_summary__counts_list_least_supported_pairs_first(codes):
    gappy = codes.copy()
    gappy[10:, 2] = -1
    gappy[:300, 3] = -1
    _, text = show_both(pmf.count_pairs(gappy, [2] * 4))
    rows = [line.split() for line in text.splitlines() if line.startswith("v2")]
    assert rows[0][:3] == ["v2", "v3", "0"]


@pytest.mark.parametrize(
    ("sizes", "codes"), [([2], np.zeros((0, 1), int)), ([1, 1], np.full((3, 2), -1))]
)
def test_summary__counts_of_nothing(sizes, codes):
    show_both(pmf.count_pairs(codes, sizes, n_folds=1))


def test_summary__model_has_the_levels_of_its_states_the_largest_first():
    schema = pmf.Schema((pmf.Variable("smokes", ("no", "yes")),))
    factors = np.array([[0.9, 0.1], [0.1, 0.9]])
    _, text = show_both(pmf.JointPMF(np.array([0.25, 0.75]), factors, schema))
    assert "smokes=no 90 %" in text
    assert text.index("75 %") < text.index("25 %")


def test_summary__fit_has_its_notes_and_what_was_compared(codes):
    result = pmf.fit_em(codes, rank="auto", rng=1)
    reader, text = show_both(result)
    assert "chosen" in text
    assert "details" in reader.tags
    assert all(note in reader.texts for note in result.notes)
    choice = pmf.fits.select_rank(pmf.count_pairs(codes, [2] * 4))
    assert len(repr(choice)) < 300
    assert choice.reason in show_both(choice)[0].texts


def test_summary__bounded_at_500_variables():
    rng = np.random.default_rng(0)
    levels = tuple(f"level {index} " + "x" * 300 for index in range(6))
    schema = pmf.Schema(
        tuple(pmf.Variable(f"variable {n} " + "y" * 300, levels) for n in range(500))
    )
    factors = rng.dirichlet(np.ones(6), (500, 100)).transpose(0, 2, 1).reshape(3000, 100)
    model = pmf.JointPMF(np.full(100, 0.01), factors, schema)
    counts = pmf.count_pairs(pmf.Codes(rng.integers(6, size=(50, 500))), schema, n_folds=2)
    for each in (schema, model, counts):
        reader, text = show_both(each)
        assert "details" in reader.tags
        assert len(each._repr_html_()) < 150_000
        assert len(text) < 20_000


def test_summary__bounded_at_20_000_workers():
    rng = np.random.default_rng(0)
    n = 40_000
    table = {
        "task": rng.integers(4_000, size=n),
        "worker": np.arange(n) // 2,
        "label": rng.integers(3, size=n),
    }
    found = crowd.aggregate(table, "majority")
    show_both(found)
    assert len(found._repr_html_()) < 50_000


def test_summary__width_and_rest():
    rows = [(str(n), "text " * 30) for n in range(300)]
    summary = Summary(
        "head",
        (("name", "value " * 40),),
        (),
        (SummaryTable("t", (">n", "text"), rows, 300, "all"),),
    )
    text = summary.to_text(60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.endswith("290 more: all")
    assert "100 more: all" in summary.to_html()


def test_percent__never_all_or_nothing_of_some():
    assert [percent(x) for x in (0, 1e-9, 0.005, 1 - 1e-9, 1)] == [
        "0 %",
        "<0.1 %",
        "0.5 %",
        ">99.9 %",
        "100 %",
    ]
