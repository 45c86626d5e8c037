"""What a file has lost since the last run, by counting its answers; and what new files lack."""

import numpy as np
import pytest

from pmflib.ingest.dataset import build_steps
from pmflib.store import RunRecord, now
from pmflib_tasks.guards import check_quality, read_findings
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.ingest import ingest
from tests.pipelines import as_wide, change, draw_codes, make_schema

SIZES = (3, 2, 4, 2)
LONG = {"layout": "long", "sample": "id", "variable": "item", "value": "answer", "time": "day"}


def as_long(codes, first=0, day=1):
    """Lines of a long log: answers of people with consecutive numbers."""
    return [
        f"u{first + person:04},v{item},{code},{day}"
        for person, row in enumerate(codes.tolist())
        for item, code in enumerate(row)
        if code >= 0
    ]


class Log:
    """A long log of three files, checked after each change."""

    def __init__(self, pipeline, workers, folder, source):
        self.config = pipeline(make_schema(*SIZES), {"path": "data", **source})
        self.workers, self.folder = workers, folder / "data"
        self.files = {}
        self.last = None

    def write(self, name, lines):
        self.files[name] = lines
        header = "id,item,answer,day"
        (self.folder / name).write_text("\n".join([header, *lines]) + "\n")

    def check(self, *guards):
        """Findings of some guards beyond their limits: action and measure, by guard and subject."""
        dataset = ingest.fn(self.config, self.workers)
        stages = {"dataset": dataset, "counts": count.fn(self.config, dataset, self.workers)}
        quality = check_quality.fn(
            self.config, stages["dataset"], stages["counts"], self.last, self.last
        )
        found = [f for f in read_findings(self.config, quality) if f.guard in guards]
        if self.last is None:
            self.last = RunRecord("run", "promoted", "", now(), now(), "", stages)
        return {(f.guard, f.subject): (f.action, f.measured) for f in found if not f.passed}


@pytest.fixture
def log(pipeline, workers, tmp_path):
    log = Log(pipeline, workers, tmp_path, LONG)
    for day in (1, 2, 3):
        codes = draw_codes(150, SIZES, seed=day)
        log.write(f"{day}.csv", as_long(codes, 150 * day, day))
    assert log.check("lost_answers", "superseded_rows", "empty_values", "damaged_rows") == {}
    return log


def tonight():
    return as_long(draw_codes(150, SIZES, seed=4), 600, 4)


def test_measure_losses__a_night_over_the_file_of_the_night_before(log):
    n_before = len(log.files["3.csv"])
    log.write("3.csv", tonight()[:n_before])
    ((guard, (action, measured)),) = log.check("lost_answers").items()
    assert (guard, action) == (("lost_answers", "3.csv"), "stop")
    assert 0.98 < measured <= 1


@pytest.mark.parametrize(("share", "action"), [(0.1, "stop"), (0.05, "stop"), (0.005, None)])
def test_measure_losses__rows_of_an_old_file_are_gone_or_changed(log, share, action):
    log.write("4.csv", tonight())
    lines = log.files["2.csv"]
    step = round(1 / share)
    log.write("2.csv", [line for n, line in enumerate(lines) if n % step])
    found = log.check("lost_answers")
    assert [each[0] for each in found.values()] == ([action] if action else [])
    flipped = [line if n % step else line.replace(",1,2", ",0,2") for n, line in enumerate(lines)]
    n_changed = sum(a != b for a, b in zip(lines, flipped, strict=True))
    log.write("2.csv", flipped)
    for _, measured in log.check("lost_answers").values():
        assert measured <= n_changed / len(lines)


def test_measure_losses__what_grows_moves_or_comes_in_another_order_has_lost_nothing(log):
    log.write("1.csv", [*log.files["1.csv"], *tonight()])
    log.write("2.csv", log.files["2.csv"][::-1])
    # rotated: the rows of one file are in two others now, one of them of the same name
    half = len(log.files["3.csv"]) // 2
    log.write("4.csv", log.files["3.csv"][:half])
    log.write("3.csv", log.files["3.csv"][half:])
    assert log.check("lost_answers") == {}


def test_measure_losses__of_a_file_that_has_another_name_now(log):
    log.write("archive.csv", log.files["3.csv"])
    log.write("3.csv", tonight())
    assert log.check("lost_answers") == {}


def test_measure_losses__rows_that_an_earlier_version_wrote_are_not_read(log, monkeypatch):
    monkeypatch.setattr(build_steps, "NAMED_VERSION", build_steps.NAMED_VERSION + 1)
    for path in (log.folder.parent / "store" / "spill").glob("*/spill.json"):
        path.unlink()
    log.write("3.csv", tonight())
    log.write("4.csv", tonight())
    assert log.check("lost_answers") == {}


def test_measure_losses__removals_that_are_expected(log):
    log.config = change(log.config, quality={"removals_expected": True})
    log.write("3.csv", tonight())
    assert log.check("lost_answers") == {}


def test_measure_losses__a_survey_without_identifiers(pipeline, workers, tmp_path):
    survey = Log(pipeline, workers, tmp_path, {"layout": "wide"})
    for day in (1, 2):
        codes = draw_codes(300, SIZES, seed=day)
        (survey.folder / f"{day}.csv").write_text(as_wide(codes))
    assert survey.check("lost_answers") == {}
    (survey.folder / "2.csv").write_text(as_wide(draw_codes(300, SIZES, seed=3)))
    (survey.folder / "3.csv").write_text(as_wide(draw_codes(300, SIZES, seed=4)))
    assert survey.check("lost_answers")["lost_answers", "2.csv"][0] == "stop"


def test_measure_superseded__corrections_with_times_of_another_zone(log):
    corrected = [
        ",".join([*line.split(",")[:2], str(1 - min(int(line.split(",")[2]), 1)), "2.9"])
        for line in log.files["3.csv"][::2]
    ]
    log.write("4.csv", tonight() + corrected)
    assert log.check("superseded_rows") == {
        ("superseded_rows", "all new files"): ("stop", pytest.approx(0.3, abs=0.1))
    }
    # the same, later than what they correct
    log.write("4.csv", tonight() + [line[:-3] + "3.1" for line in corrected])
    assert log.check("superseded_rows") == {}


def test_measure_superseded__a_night_of_which_nothing_is_left(log):
    aged = [line[:-1] + "2.5" for line in log.files["3.csv"][:100]]
    log.write("4.csv", aged)
    assert log.check("superseded_rows") == {("superseded_rows", "all new files"): ("stop", 1.0)}
    # the same rows beside others change nothing, and spoil nothing
    log.write("4.csv", aged + tonight())
    assert log.check("superseded_rows") == {}


def test_measure_superseded__where_the_first_row_counts(log):
    log.config = change(log.config, schema_={"on_duplicate": "first"})
    log.last = None
    log.check("superseded_rows")
    log.write("4.csv", [line[:-1] + "9" for line in log.files["3.csv"][:100]])
    assert log.check("superseded_rows") == {}


def test_measure_empty__a_third_of_the_values(log):
    lines = tonight()
    emptied = [line if n % 3 else line[:9] + ",4" for n, line in enumerate(lines)]
    log.write("4.csv", emptied)
    ((subject, (action, measured)),) = log.check("empty_values").items()
    assert (subject, action) == (("empty_values", "4.csv"), "stop")
    assert 0.25 < measured <= 1 / 3
    # where earlier files had as many, nothing is wrong
    log.last = None
    log.check("empty_values")
    log.write("5.csv", [line.replace("u0", "u1") for line in emptied])
    assert log.check("empty_values") == {}


@pytest.mark.parametrize("damage", ["zeros", "quotation"])
def test_measure_damage__a_row_that_holds_many(log, damage):
    log.write("4.csv", tonight())
    path = log.folder / "4.csv"
    content = bytearray(path.read_bytes())
    if damage == "zeros":
        content[2000:2600] = bytes(600)
    else:
        lines = content.decode().splitlines()
        lines[100], lines[140] = '"' + lines[100], lines[140] + '"'
        content = bytearray("\n".join(lines).encode())
    path.write_bytes(content)
    assert log.check("damaged_rows")["damaged_rows", "4.csv"][0] == "stop"


def test_measure_damage__short_rows_that_do_not_fit_swallow_nothing(log):
    lines = tonight()
    log.write("4.csv", [*lines[:-10], *(["what,is,this,here"] * 10)])
    assert log.check("damaged_rows") == {}
    assert np.array(log.files["4.csv"]).size == len(lines)
