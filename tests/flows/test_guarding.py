"""Nights that guards hold back, through the command: exit codes, the record, and the live model that stays."""

import json

import pytest

from pmflib.store import Store, find_live, list_records
from tests.pipelines import as_wide, draw_codes, make_schema

SIZES = (3, 2, 4, 2)
CONFIG = """
[source]
path = "data"
layout = "wide"
[model]
rank = 2
[store]
folds = 4
[em]
max_passes = 3
[cluster]
workers = 1
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder of a pipeline."""
    folder = tmp_path_factory.mktemp("guarded")
    make_schema(*SIZES).save(folder / "schema.json")
    (folder / "data").mkdir()
    (folder / "pipeline.toml").write_text(CONFIG)
    return folder


@pytest.fixture
def pmf(home, call):
    """Give a function that runs `pmf run`: exit code, standard output, standard error, last record."""

    def run(*arguments):
        code, out, err = call("run", home / "pipeline.toml", *arguments)
        return code, out, err, list_records(Store(home / "store"), "pipeline")[-1]

    return run


def test_run__nights_in_order(home, pmf):
    data, store = home / "data", Store(home / "store")
    (data / "1.csv").write_text(as_wide(draw_codes(500, SIZES)))
    code, out, _, record = pmf()
    assert (code, record.outcome) == (0, "promoted")
    live = find_live(store, "pipeline")

    # a scale of another unit: nothing is fitted, and the live model stays
    good = as_wide(draw_codes(300, SIZES, seed=1))
    header, body = good.split("\n", 1)
    (data / "2.csv").write_text(header + "\n" + body.replace("0", "20").replace("1", "40"))
    code, out, err, record = pmf()
    assert (code, record.outcome, record.live) == (6, "held back", live)
    assert "file_quarantine: 2.csv" in err
    assert "--accept-quality" in err
    # a line for each finding
    assert [line for line in err.splitlines() if line.startswith("  file_quarantine: 2.csv")]
    assert set(record.stages) == {"dataset", "counts", "quality"}
    assert "stop" in {each["action"] for each in record.facts["quality"]}

    # put right, the next night needs nobody
    (data / "2.csv").write_text(good)
    code, _, _, record = pmf()
    assert code == 0
    assert not [each for each in record.facts["quality"] if not each["passed"]]

    # a person may take data as they are, once, and the record says so
    (data / "3.csv").write_text(good)
    assert pmf()[0] == 6
    code, out, _, record = pmf("--accept-quality", "--json")
    assert code == 0
    accepted = [each for each in record.facts["quality"] if each["action"] == "accepted"]
    assert [each["guard"] for each in accepted] == ["same_bytes"]
    assert json.loads(out)["quality"] == record.facts["quality"]
    live = find_live(store, "pipeline")

    # nothing to learn from is never accepted
    for path in data.glob("*.csv"):
        path.write_text(header + "\n")
    code, _, _, record = pmf("--accept-quality")
    assert (code, record.outcome, record.live) == (3, "failed", live)
    assert "quality" in record.facts
