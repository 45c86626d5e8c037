import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pmflib.base import StoreError
from pmflib.fits import PairAgreement, PairDeparture
from pmflib.store import (
    RunRecord,
    Store,
    append_record,
    collect,
    drop_pages,
    keep_page,
    list_records,
    now,
)
from pmflib_tasks.facts import RunFacts
from pmflib_tasks.report import gather_report, list_troubles, render_page, summarise_run, write_page
from pmflib_tasks.report.model_report import gather_model
from pmflib_tasks.report.run_report import choose_run
from pmflib_tasks.report.sentences import write_summary
from pmflib_tasks.wording import as_percent
from tests.report.report_runs import EVIL, RAGGED, SCHEMA


@pytest.fixture(scope="module")
def store(two_nights):
    return Store(two_nights / "store")


@pytest.fixture(scope="module")
def second(store):
    return gather_report(store, "hostile", 2)


def test_gather_report__data(second):
    data = second.data
    assert data.adds_up
    assert 4 in dict(data.destinations).values()
    assert data.examples["ragged"][0].raw == RAGGED
    assert {len(rows) for rows in data.examples.values()} == {2}
    assert [each.name for each in data.variables] == list(SCHEMA.names)
    assert all(0.05 < each.missing < 0.15 for each in data.variables)
    counted = [each.answers for each in data.variables]
    assert np.diagonal(data.support).tolist() == counted
    pairs = data.list_least_supported()
    assert [n for *_, n in pairs] == sorted(data.pair_supports.tolist())[: len(pairs)]


def test_gather_report__model_and_scores(second):
    learnt, scores = second.model, second.scores
    assert {each.state for each in learnt.states} == {0, 1, 2}
    assert sum(each.prior for each in learnt.states) == pytest.approx(1)
    assert learnt.pairs[0].information >= learnt.pairs[-1].information
    assert learnt.pairs[0].in_counts == pytest.approx(learnt.pairs[0].information, rel=0.5)
    cells = sum(each.cells for each in scores.variables)
    assert cells == scores.means["hidden_cells"]
    gain = sum(each.cells * each.gain for each in scores.variables) / cells
    means = scores.means
    assert gain == pytest.approx(means["log_prob_per_cell"] - means["baseline_log_prob_per_cell"])
    assert sum(each["rows"] for each in scores.calibration) == cells
    assert 0 <= scores.calibration_error < 0.3


def test_gather_report__pairs_of_the_variables_observed_most(store, second, monkeypatch):
    monkeypatch.setattr("pmflib_tasks.report.model_report.MAX_LEVELS", 14)
    learnt = gather_report(store, "hostile", 2).model
    kept = learnt.associations.names
    assert 2 <= len(kept) < len(SCHEMA.names)
    answers = {each.name: each.answers for each in second.data.variables}
    assert min(answers[name] for name in kept) >= max(
        n for name, n in answers.items() if name not in kept
    )
    whole = {each.variables: each for each in second.model.pairs}
    in_both = [each for each in learnt.pairs if each.variables in whole]
    assert len(in_both) >= len(learnt.pairs) / 2
    for each in in_both:
        assert each.support == whole[each.variables].support
        assert each.information == pytest.approx(whole[each.variables].information)
        assert each.in_counts == pytest.approx(whole[each.variables].in_counts)


def with_agreement(report, agreement):
    """A report of well calibrated probabilities, whose model agrees so far with the counts of pairs."""
    scores = report.scores
    perfect = [each | {"accuracy": each["probability"]} for each in scores.calibration]
    model = replace(report.model, agreement=agreement)
    return replace(report, model=model, scores=replace(scores, calibration=perfect))


def test_summarise_run__says_what_is_explained_before_what_can_be_believed(second):
    found = second.model.agreement
    assert found == RunFacts(second.record.facts).agreement
    close = replace(found, missed=0.05 * found.information, furthest=None)
    said = " ".join(summarise_run(with_agreement(second, close)))
    assert said.index("explains 95 %") < said.index("believed")


def test_summarise_run__probabilities_of_pairs_that_depart_are_not_believed(second):
    wife = PairDeparture(("relationship", "Wife"), ("sex", "Female"), 0.999, 0.265, 900, 5000)
    pair = ("relationship", "sex")
    departs = PairAgreement(105, 12, 1.0, 0.07, pair, (wife,), wife)
    report = with_agreement(second, departs)
    said = " ".join(summarise_run(report))
    assert all(each in said for each in ("93 %", "12 of 105", "relationship and sex"))
    assert "believed" not in said
    page = " ".join(render_page(report).split())
    assert "relationship = Wife" in page
    assert "99.9 %" in page
    assert "26.5 %" in page
    share = with_agreement(second, replace(departs, missed=0.15, furthest=None))
    assert "believed" not in " ".join(summarise_run(share))


def test_write_summary__what_comes_from_data_is_text(second):
    record = replace(
        second.record, outcome="failed", reason="<img src=x> & `[code](x)` https://x.y www.x.y"
    )
    text = write_summary(replace(second, record=record), "s3://bucket/reports/000002.html")
    assert "000002.html" in text
    escaped, bare = set(re.findall(r"\\(.)", text)), re.sub(r"\\.", "", text)
    assert {"<", ">", "&"} <= escaped
    assert not set("<>`[]_#&") & set(bare)
    # an address alone would become a link
    assert "https:\\//x.y www\\.x.y" in text


def test_summarise_run__wide_schemas_are_not_compared(store, second, monkeypatch):
    monkeypatch.setattr("pmflib_tasks.report.model_report.MAX_COMPARED_LEVELS", 5)
    report = gather_report(store, "hostile", 2)
    assert report.model.agreement is None
    assert "believed" not in " ".join(summarise_run(with_agreement(report, None)))


def test_gather_report__runs_that_recorded_no_agreement_are_compared_now(store, second):
    facts = second.record.facts
    stages, data = second.record.stages, second.data
    old = {**facts, "scores": {k: v for k, v in facts["scores"].items() if k != "pairs"}}
    old["warnings"] = ["known before"]
    found = gather_model(store, stages, RunFacts(old), data.level_counts, data.support)
    assert found.agreement == second.model.agreement
    assert found.warnings == ["known before", *found.agreement.warnings]


def test_gather_report__changes_timings_lineage(second):
    assert second.before.number == 1
    assert [each.name for each in second.changes.files.added] == ["1.csv"]
    stages = ["ingest", "count", "quality", "fit", "refine", "evaluate", "publish"]
    assert [each for each in second.record.seconds if each in stages] == [
        each for each in stages if each in second.record.seconds
    ]
    assert set(second.record.seconds) >= {"ingest", "count", "evaluate"}
    assert sum(second.record.seconds.values()) <= second.seconds + 2
    kinds = {each.kind for each in second.lineage}
    assert {"dataset", "counts", "raw file"} <= kinds
    assert second.n_parts > 0
    assert not second.missing
    assert [each.number for each in second.history] == [2, 1]


def test_summarise_run__says_what_came_in_and_how_good_it_is(second):
    text = " ".join(summarise_run(second))
    accuracy = as_percent(second.scores.means["accuracy"], 1)
    for shown in ("Run 2", "1,404 rows", "2 files", "1,400", "0.3 %", "3 latent", "702", accuracy):
        assert shown in text


def test_render_page__what_comes_from_data_is_text(second):
    page = render_page(second)
    assert EVIL not in page
    assert "&lt;script&gt;alert(" in page
    assert "\u202e" not in page
    assert "<img" not in page
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page
    assert len(page) < 3e6


def test_render_page__same_report_same_text(store, second):
    assert render_page(second) == render_page(gather_report(store, "hostile", 2))


def test_gather_report__run_without_anything(store, tmp_path):
    other = Store(tmp_path / "store")
    time = now()
    record = RunRecord("run", "failed", "no file:\nat all", time, time, "", {})
    append_record(other, "empty", record)
    report = gather_report(other, "empty", 1)
    assert report.model is None
    assert report.scores is None
    assert len(list_troubles(report)) == 1
    assert write_page(report, tmp_path / "page.html") > 1000
    with pytest.raises(StoreError, match="record 2"):
        gather_report(other, "empty", 2)
    assert choose_run(list_records(other, "empty")).number == 1
    assert choose_run([]) is None


def test_gather_report__of_a_collected_run_what_is_left(two_nights, tmp_path):
    store = Store(shutil.copytree(two_nights / "store", tmp_path / "store"))
    for number in (1, 2):
        keep_page(store, "hostile", number, b"page")
    collect(store, 1, older_than=0)
    # the page of the run that is not kept goes too
    assert [each.name for each in (store.root / "reports" / "hostile").iterdir()] == ["000002.html"]
    report = gather_report(store, "hostile", 1)
    assert report.scores is None
    assert any("pmf gc" in each for each in report.missing)
    assert "pmf gc" in render_page(report)
    assert drop_pages(store) == 1
    assert not (store.root / "reports").exists()
    assert drop_pages(store) == 0
