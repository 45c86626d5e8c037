import math

import pytest

import pmflib as pmf
from pmflib.base import ConfigError
from pmflib.ingest import build_dataset
from pmflib.store import Store, list_layers, read_content
from pmflib_tasks.config import make_config

SCHEMA = pmf.Schema((pmf.Variable("a", ("1", "2")), pmf.Variable("b", ("1", "2"))))
LAYOUT = {"layout": "long", "sample": "who", "variable": "what", "value": "said", "time": "ts"}


def build(folder, days, base=None):
    sections = {"source": {"path": "data", **LAYOUT}, "model": {"rank": 2}, "store": {"folds": 4}}
    window = {} if days is None else {"window": {"days": days}}
    config = make_config(sections | window, base=folder)
    return build_dataset(None, Store(folder / "store"), config.dataset_options, SCHEMA, base=base)


def test_window__rows_that_leave_it_touch_their_samples_only(tmp_path):
    (tmp_path / "data").mkdir()
    base, accounts = None, []
    for day in range(4):
        rows = "".join(f"s{day}-{k},a,1,2024-01-0{day + 1}T12:00\n" for k in range(10))
        rows += f"always,b,{day % 2 + 1},2024-01-0{day + 1}T12:00\n"
        (tmp_path / "data" / f"{day}.csv").write_text(f"who,what,said,ts\n{rows}")
        entry = build(tmp_path, 1.5, base)
        accounts.append(entry.summary)
        base = entry.reference
    assert [each["rows_outside"] for each in accounts] == [0, 0, 11, 22]
    assert [each["samples"] for each in accounts] == [11, 21, 21, 21]
    assert [each["reasons"] for each in accounts] == [{}, *[{"duplicate": 1}] * 3]
    for each in accounts:
        assert (
            each["rows_in"]
            == each["rows_encoded"] + each["rows_outside"] + each["rows_quarantined"]
        )
    # the window is longer again: rows come back
    longer = build(tmp_path, None, base).summary
    assert (longer["rows_outside"], longer["samples"]) == (0, 41)


def test_window__that_nothing_leaves_changes_nothing(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("who,what,said,ts\ns,a,1,100\nt,b,2,2000\n")
    first = build(tmp_path, 90)
    store = Store(tmp_path / "store")
    assert read_content(store, first.reference)["origin"]["since"] == 2000 - 90 * 86_400
    assert build(tmp_path, 90, first.reference) == first
    (tmp_path / "data" / "b.csv").write_text("who,what,said,ts\nu,a,1,3000\n")
    second = build(tmp_path, 90, first.reference)
    layers = list_layers(store, second.reference)
    assert (sum(layer.n_rows for layer in layers), layers[-1].n_rows) == (3, 1)


def test_window__needs_times():
    source = {key: value for key, value in LAYOUT.items() if key != "time"}
    with pytest.raises(ConfigError, match=r"window\.days = 3"):
        make_config(
            {"source": {"path": "x", **source}, "model": {"rank": 1}, "window": {"days": 3}}
        )
    with pytest.raises(ConfigError, match=r"window\.days"):
        make_config(
            {
                "source": {"path": "x", **LAYOUT},
                "model": {"rank": 1},
                "window": {"days": -math.inf},
            }
        )
