"""The section of the configuration on label logs."""

import pytest

from pmflib.apps.crowd import CROWD_METHODS
from pmflib.base import ConfigError, SourceError
from pmflib_tasks.config import make_config
from pmflib_tasks.crowd import CrowdConfig
from pmflib_tasks.crowd.known import list_checks


def make(**sections):
    source = {"path": "x.csv", "layout": "wide"}
    return make_config({"source": source, "model": {"rank": 2}} | sections, base="/data")


def test_make_config__methods_of_label_logs_are_those_in_memory():
    for name, method in CROWD_METHODS.items():
        if method.family != "votes":
            assert make(crowd={"method": name}).section(CrowdConfig).begins_with_pairs == (
                method.family == "pairs"
            )
    with pytest.raises(ConfigError, match=r"crowd\.method"):
        make(crowd={"method": "majority"})
    assert not make(crowd={"method": "robust", "em": False}).section(CrowdConfig).em
    with pytest.raises(ConfigError, match="'mv_em'"):
        make(crowd={"method": "mv_em", "em": False})
    with pytest.raises(ConfigError, match=r"crowd\.classes"):
        make(crowd={"classes": []})


def test_list_checks__files_that_the_section_names(tmp_path):
    columns = {"sample": "task", "variable": "worker", "value": "label"}
    source = {"path": "x.csv", "layout": "long", **columns}

    def check(**crowd):
        content = {"source": source, "model": {"rank": 1}, "crowd": crowd}
        return list(list_checks(make_config(content, base=str(tmp_path))))

    assert check() == []
    known, classifier = check(known="known.csv", classifier="said.csv")
    (tmp_path / "known.csv").write_text("task,label\nt1,cat\n")
    assert known.function().state == "ok"
    (tmp_path / "said.csv").write_text("picture,cat,dog\nt1,.5,.5\n")
    with pytest.raises(SourceError, match="no column 'task'"):
        classifier.function()
    (tmp_path / "said.csv").unlink()
    with pytest.raises(SourceError, match=r"said\.csv"):
        classifier.function()
