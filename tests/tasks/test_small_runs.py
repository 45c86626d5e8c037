"""Which runs do without workers: by the size of files, less where the rank is chosen; label logs by new files."""

import os

import pytest

from pmflib_flows.crowd.crowd_flow import crowd_flow
from pmflib_tasks import small_runs
from pmflib_tasks.config import load_config
from pmflib_tasks.small_runs import describe_place, is_small, is_small_night

CONFIG = """
[source]
path = "log"
layout = "long"
sample = "task"
variable = "worker"
value = "label"
[model]
rank = 1
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    return tmp_path / "pipeline.toml"


def deliver(config, name, first):
    rows = [f"t{first + i},w{i % 3},c{i % 2}" for i in range(60)]
    file = config.parent / "log" / name
    file.write_text("\n".join(["task,worker,label", *rows]))
    # digests of files that were written just now are not remembered
    os.utime(file, (1e9, 1e9))


def test_is_small_night__files_that_the_last_run_has_read_do_not_count(config, monkeypatch):
    deliver(config, "a.csv", 0)
    size = (config.parent / "log" / "a.csv").stat().st_size
    monkeypatch.setattr(small_runs, "SMALL_BYTES", size + 50)
    crowd_flow.fn(str(config))
    deliver(config, "b.csv", 10)
    assert is_small_night(load_config(config))
    deliver(config, "c.csv", 20)
    assert not is_small_night(load_config(config))
    (config.parent / "log" / "c.csv").unlink()
    monkeypatch.setattr(small_runs, "SMALL_LABELS", 59)
    assert not is_small_night(load_config(config))
    monkeypatch.setattr(small_runs, "SMALL_LABELS", 60)
    config.write_text(CONFIG + "[cluster]\nworkers = 2\n")
    assert not is_small_night(load_config(config))


def test_is_small__choosing_the_rank_has_lower_limits(config, monkeypatch):
    deliver(config, "a.csv", 0)
    size = (config.parent / "log" / "a.csv").stat().st_size
    monkeypatch.setattr(small_runs, "SEARCH_BYTES", size - 1)
    assert is_small(load_config(config))
    config.write_text(CONFIG.replace("rank = 1", 'rank = "auto"'))
    assert not is_small(load_config(config))
    monkeypatch.setattr(small_runs, "SEARCH_BYTES", size)
    assert is_small(load_config(config))
    assert "50,000 stored rows" in describe_place(load_config(config), alone=True)
