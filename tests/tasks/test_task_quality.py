"""The guards on small stored pipelines: what a delivery changed, against the last run and the live model's data."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import pmflib as pmf
from pmflib.base import QualityError
from pmflib.store import RunRecord
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards import check_quality, read_findings, read_nights, stop_on_findings
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import as_wide, draw_codes, make_schema, store_of, summary_of

SIZES = (3, 2, 4, 2)


@pytest.fixture
def home(pipeline, tmp_path, workers):
    """Configuration, a function that writes a file, and one that makes a run of what is there."""
    schema = make_schema(*SIZES)
    config = pipeline(schema, {"path": "data"})

    def deliver(name, codes):
        (tmp_path / "data" / name).write_text(as_wide(codes))

    def run():
        dataset = ingest.fn(config, workers)
        stages = {"dataset": dataset, "counts": count.fn(config, dataset, workers)}
        now = datetime.now(UTC).isoformat()
        return RunRecord("run", "promoted", "", now, now, config.digest, stages)

    return config, deliver, run


def check(config, run, live=None, last=None):
    """Findings that crossed a limit, by guard: action; and all of them."""
    reference = check_quality.fn(config, run.stages["dataset"], run.stages["counts"], live, last)
    findings = read_findings(config, reference)
    return {f.guard: f.action for f in findings if not f.passed}, findings, reference


def test_check_quality__a_first_run_has_nothing_to_compare_with(home):
    config, deliver, run = home
    deliver("a.csv", draw_codes(400, SIZES))
    crossed, findings, reference = check(config, run())
    assert crossed == {}
    assert {f.guard for f in findings if f.action == "off"} == {
        "variable_drift",
        "scale_drift",
        "answer_drift",
        "pair_drift",
        "dependence_drift",
    }
    assert reference.kind == "quality"
    summary = summary_of(config, reference)
    assert (summary["warned"], summary["stopped"]) == (0, 0)
    assert summary["passed"] == len(findings)


def test_check_quality__a_survey_in_another_encoding_is_held_back(pipeline, workers, tmp_path):
    cities = ("Berlin", "Hamburg", "Köln", "München")
    schema = pmf.Schema((pmf.Variable("stadt", cities), pmf.Variable("beruf", ("Arzt", "Lehrer"))))
    rows = "".join(f"{cities[n % 4]},{('Arzt', 'Lehrer')[n % 2]}\n" for n in range(400))
    config = pipeline(schema, {"path": "data"})
    (tmp_path / "data" / "a.csv").write_bytes(("stadt,beruf\n" + rows).encode("latin-1"))
    dataset = ingest.fn(config, workers)
    counts = count.fn(config, dataset, workers)
    findings = read_findings(config, check_quality.fn(config, dataset, counts, None, None))
    with pytest.raises(QualityError, match=r"200 of 400 rows .* undecodable"):
        stop_on_findings(findings)


def test_check_quality__a_new_column_is_warned_of(home, tmp_path):
    config, deliver, run = home
    deliver("a.csv", draw_codes(400, SIZES))
    live = run()
    deliver("b.csv", draw_codes(400, SIZES, seed=1))
    text = (tmp_path / "data" / "b.csv").read_text().splitlines()
    text = [text[0] + ",more", *(line + ",1" for line in text[1:])]
    (tmp_path / "data" / "b.csv").write_text("\n".join(text) + "\n")
    after = run()
    crossed, findings, _ = check(config, after, live, live)
    assert crossed == {"new_columns": "warn"}
    (found,) = [f for f in findings if not f.passed]
    assert (found.subject, "'more'" in found.sentence) == ("b.csv", True)
    assert check(config, run(), after, after)[0] == {"new_rows": "warn"}


def test_check_quality__a_healthy_delivery_and_a_damaged_one(home):
    config, deliver, run = home
    deliver("a.csv", draw_codes(600, SIZES))
    live = run()
    deliver("b.csv", draw_codes(300, SIZES, seed=1))
    crossed, findings, _ = check(config, run(), live, live)
    assert crossed == {}
    judged = {f.guard for f in findings if f.action == "pass"}
    assert {"variable_drift", "scale_drift", "pair_drift", "dependence_drift"} <= judged
    # the scale of every column upside down
    codes = draw_codes(300, SIZES, seed=1)
    codes[:, 0] = np.where(codes[:, 0] >= 0, 0, -1)
    deliver("b.csv", codes)
    crossed, findings, reference = check(config, run(), live, live)
    assert crossed["variable_drift"] == "stop"
    assert any(f.subject == "v0 in b.csv" for f in findings)
    assert summary_of(config, reference)["stopped"]
    # a later run is compared with the run before it, not with its own data
    again = run()
    crossed, _, _ = check(config, again, live, again)
    assert crossed == {"new_rows": "warn"}


def test_check_quality__rows_in_quarantine_and_files_twice(home, tmp_path):
    config, deliver, run = home
    deliver("a.csv", draw_codes(400, SIZES))
    live = run()
    text = as_wide(draw_codes(100, SIZES, seed=1)).replace("\n0", "\nzero")
    (tmp_path / "data" / "b.csv").write_text(text)
    deliver("c.csv", draw_codes(400, SIZES))
    crossed, findings, _ = check(config, run(), live, live)
    assert crossed["file_quarantine"] == "stop"
    assert crossed["same_bytes"] == "stop"
    (bad,) = [f for f in findings if f.guard == "file_quarantine" and not f.passed]
    assert (bad.subject, "unknown_level" in bad.sentence) == ("b.csv", True)
    (twin,) = [f for f in findings if f.guard == "same_bytes"]
    assert (twin.subject, "a.csv" in twin.sentence) == ("c.csv", True)


def test_check_quality__a_file_that_goes_and_one_that_changes(home, tmp_path):
    config, deliver, run = home
    for name in "abcd":
        deliver(f"{name}.csv", draw_codes(200, SIZES, seed=ord(name)))
    live = run()
    (tmp_path / "data" / "d.csv").unlink()
    deliver("c.csv", draw_codes(80, SIZES, seed=9))
    crossed, _, _ = check(config, run(), live, live)
    assert crossed == {
        "missing_files": "warn",
        "rows_lost": "stop",
        "file_size": "warn",
        "lost_answers": "stop",
    }


def test_check_quality__limits_are_part_of_the_identity(home):
    config, deliver, run = home
    deliver("a.csv", draw_codes(100, SIZES))
    done = run()
    _, _, first = check(config, done)
    assert check(config, done)[2] == first
    strict = QualityConfig.model_validate({"least_rows": {"stop": 101}})
    crossed, _, second = check(config.model_copy(update={"quality": strict}), done)
    assert crossed == {"least_rows": "stop"}
    assert second.identity != first.identity
    path = store_of(config).locate(second) / "findings.json"
    assert json.loads(path.read_text())[0]["guard"] == "least_rows"


def test_check_quality__another_schema_is_not_compared(home, tmp_path):
    config, deliver, run = home
    deliver("a.csv", draw_codes(100, SIZES))
    live = run()
    make_schema(3, 2, 4, 3).save(tmp_path / "schema.json")
    crossed, findings, _ = check(config, run(), live, live)
    assert crossed == {"new_rows": "warn"}
    (pairs,) = [f for f in findings if f.guard == "pair_drift"]
    assert pairs.action == "off"


def test_check_quality__duplicates_of_a_long_log(pipeline, tmp_path, workers):
    schema = make_schema(3, 3)
    columns = {"sample": "who", "variable": "what", "value": "how"}
    config = pipeline(schema, {"layout": "long", **columns})
    lines = [f"p{n},v{n % 2},{n % 3}" for n in range(60)]
    (tmp_path / "data").mkdir(exist_ok=True)
    for name, rows in (("a", lines), ("b", lines[:50] + [f"q{n},v0,1" for n in range(10)])):
        (tmp_path / "data" / f"{name}.csv").write_text("\n".join(["who,what,how", *rows]) + "\n")
    dataset = ingest.fn(config, workers)
    stages = {"dataset": dataset, "counts": count.fn(config, dataset, workers)}
    now = datetime.now(UTC).isoformat()
    done = RunRecord("run", "promoted", "", now, now, config.digest, stages)
    crossed, findings, _ = check(config, done)
    assert crossed == {"duplicates": "warn"}
    (found,) = [f for f in findings if f.guard == "duplicates" and not f.passed]
    # the later answers stay
    assert found.subject == "a.csv"
    assert found.measured == 50 / 60


def test_check_quality__a_cumulative_delivery_without_identifiers_is_held_back(home):
    config, deliver, run = home
    first = draw_codes(400, SIZES, seed=1)
    deliver("a.csv", first)
    last = run()
    assert check(config, last)[0] == {}
    deliver("b.csv", draw_codes(400, SIZES, seed=2))
    both = run()
    assert "repeated_rows" not in check(config, both, last, last)[0]
    deliver("c.csv", np.concatenate([first, draw_codes(100, SIZES, seed=3)]))
    crossed, findings, _ = check(config, run(), both, both)
    assert crossed["repeated_rows"] == "stop"
    (found,) = [f for f in findings if f.guard == "repeated_rows"]
    # rows of few levels are known again in long stretches only
    assert 0.5 < found.measured <= 0.8
    # what was accepted is nothing new
    accepted = run()
    deliver("d.csv", draw_codes(200, SIZES, seed=4))
    assert "repeated_rows" not in check(config, run(), accepted, accepted)[0]


LONG = {"layout": "long", "sample": "who", "variable": "what", "value": "said", "time": "ts"}
START = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def log(pipeline, tmp_path, workers):
    """Give a function that delivers a night of a long log, runs to the guards by a clock, and gives what they found."""
    config = pipeline(make_schema(4, 4, 4, 4), {"path": "data", **LONG})
    runs = []

    def deliver(rows, *, name=None, hours=0.0, clock=None):
        night = len(runs)
        moment = START + timedelta(days=night, hours=hours)
        lines = [f"{who},v{what},{said},{moment.timestamp():.0f}" for who, what, said in rows]
        text = "\n".join(["who,what,said,ts", *lines]) + "\n"
        (tmp_path / "data" / (name or f"{night:02}.csv")).write_text(text)
        dataset = ingest.fn(config, workers)
        stages = {"dataset": dataset, "counts": count.fn(config, dataset, workers)}
        last = runs[-1] if runs else None
        clock = clock or START + timedelta(days=night, hours=3)
        stages["quality"] = check_quality.fn(config, dataset, stages["counts"], last, last, clock)
        ended = clock.isoformat()
        findings = read_findings(config, stages["quality"])
        if not any(each.action == "stop" for each in findings):
            runs.append(RunRecord("run", "kept", "", ended, ended, config.digest, stages))
        nights = read_nights(store_of(config), stages["quality"])
        return {f.guard: f.action for f in findings if not f.passed}, findings, nights

    return deliver


def draw_rows(night, *, n_new=200):
    """Rows of people of whom half were there the night before: two new answers each, and one that is not."""
    start, half = 1 + night * n_new // 2, n_new // 2
    pairs = [(start + n, 2 * (n < half) + k) for n in range(n_new) for k in (0, 1)]
    pairs += [(start + n, 0) for n in range(half)] if night else []
    # whatever night it is said in, an answer is the same
    rows = [(who, what, (who * 2654435761 + what * 40503 >> 7) % 4) for who, what in pairs]
    return [rows[k] for k in np.random.default_rng(night).permutation(len(rows))]


def test_check_quality__nights_of_a_log_are_compared_with_those_before(log):
    for night in range(7):
        crossed, _, nights = log(draw_rows(night))
        assert "stop" not in crossed.values()
    assert len(nights) == 6
    last = nights[-1]
    assert (last.samples, last.known) == (200, 100)
    assert (last.rows, last.repeated, last.agreeing) == (500, 100, 100)
    padded = [(f"{who:07}", what, said) for who, what, said in draw_rows(7)]
    crossed, findings, nights = log(padded)
    assert crossed["known_samples"] == crossed["identifier_form"] == "stop"
    assert any("0 of 200" in f.sentence for f in findings)
    # what was held back is nobody's past
    crossed, _, nights = log(draw_rows(7))
    assert "stop" not in crossed.values()
    assert len(nights) == 7


def test_check_quality__one_number_in_two_spellings_within_the_first_night(log):
    rows = [(who, what, said) for who, what, said in draw_rows(0)]
    rows += [(f"{who}.0", 3, said) for who, what, said in rows if what == 0]
    crossed, findings, _ = log(rows)
    assert crossed == {"identifier_spelling": "stop"}
    (found,) = [f for f in findings if f.guard == "identifier_spelling"]
    # 100 of 200 people answered the first question, and are there twice
    assert found.measured == 200 / 300
    assert "9.0'" in found.sentence


def test_check_quality__a_night_from_before_in_another_order_says_nothing_new(log):
    for night in range(3):
        log(draw_rows(night))
    crossed, findings, _ = log(sorted(draw_rows(1)), hours=1)
    assert crossed["fresh_rows"] == crossed["same_answers"] == "stop"
    assert any("01.csv" in f.sentence for f in findings)


def test_check_quality__what_supersedes_all_rows_of_a_file_is_named(log):
    log(draw_rows(0))
    # the same rows, a year ago
    _, findings, _ = log(draw_rows(0), hours=-9000)
    (found,) = (f for f in findings if f.guard == "duplicates" and not f.passed)
    assert (found.measured, "00.csv 400" in found.sentence) == (1.0, True)


def test_check_quality__times_ahead_of_the_clock_and_a_clock_that_goes_back(log):
    for night in range(3):
        assert "stop" not in log(draw_rows(night))[0].values()
    crossed, findings, _ = log(draw_rows(3), hours=24 * 4000)
    assert crossed["future_rows"] == "stop"
    assert any("500 rows" in f.sentence for f in findings if f.guard == "future_rows")
    # the night after next it is no longer ahead: what was found is found anew
    late = START + timedelta(days=4010)
    assert "future_rows" not in log(draw_rows(3), hours=24 * 4000, clock=late)[0]
    crossed, _, _ = log(draw_rows(4), clock=START)
    assert crossed["clock"] == "warn"
    assert "future_rows" not in crossed
