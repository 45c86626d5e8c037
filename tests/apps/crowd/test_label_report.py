import numpy as np
import pytest

from pmflib.apps.crowd.stored.summaries import LabelSummary
from pmflib.store import Store
from pmflib_flows.crowd.crowd_flow import crowd_flow
from pmflib_flows.report.report import report
from pmflib_tasks.crowd.label_report import gather_labels
from pmflib_tasks.report import gather_report, list_troubles, render_page, summarise_run

EVIL = "<b onclick=alert(1)>bob</b>"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Pipeline of a label log: three good workers, and one who always gives the same label."""
    folder = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    lines = ["task,worker,label"]
    for task in range(60):
        truth = rng.integers(2)
        for worker in ("ann", EVIL, "cy"):
            right = rng.random() < 0.9
            lines.append(f"t{task},{worker},{'no' if (truth == 1) == right else 'yes'}")
        lines.append(f"t{task},same,yes")
    (folder / "log.csv").write_text("\n".join([*lines, "t1,ann"]) + "\n")
    file = folder / "pipeline.toml"
    file.write_text(
        'name = "votes"\n[source]\npath = "log.csv"\nlayout = "long"\nsample = "task"\n'
        'variable = "worker"\nvalue = "label"\n[model]\nrank = 1\n'
    )
    crowd_flow.fn(str(file))
    return file


def test_gather_report__of_a_label_log(config):
    store = Store(config.parent / "store")
    found = gather_report(store, "votes@labels", 1)
    made = found.record.stages["labels"]
    entry = store.find(made.identity)
    assert entry is not None
    summary = LabelSummary.find(entry.summary)
    assert summary is not None
    labels = gather_labels(store, made, summary)
    assert found.model is None
    assert not found.missing
    assert labels.workers == sorted(labels.workers)
    assert labels.n_labels.tolist() == [60] * 4
    np.testing.assert_allclose(labels.confusion.sum(axis=1), 1)
    assert dict(labels.classes).keys() == {"no", "yes"}
    assert [name for name, *_ in labels.list_workers()] == labels.workers
    text = " ".join(summarise_run(found))
    assert all(f" {n} " in text for n in (60, 240, 4))
    (trouble,) = list_troubles(found)
    assert "same." in trouble


def test_render_page__of_a_label_log(config, tmp_path):
    report(config, output=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<h1>votes" in page
    assert EVIL not in page
    assert "&lt;b onclick" in page
    assert page.count('role="img"') == 2
    again = gather_report(Store(config.parent / "store"), "votes@labels", 1)
    assert page == render_page(again)


def test_summarise_run__says_what_was_known(config):
    text = config.read_text("utf-8")
    (config.parent / "gold.csv").write_text("task,label\nt1,yes\nt2,no\nnobody,no\n")
    config.write_text(text + '[crowd]\nknown = "gold.csv"\n')
    facts = crowd_flow.fn(str(config))
    assert facts["known_labels"] == {"known": 2, "set_aside": {"unknown_task": 1}}
    found = gather_report(Store(config.parent / "store"), "votes@labels", 2)
    assert "Of 2 tasks" in " ".join(summarise_run(found))
