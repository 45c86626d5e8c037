"""The section of the configuration on label logs."""

import pytest

from pmflib.base.errors import ConfigError
from pmflib.base.methods import CROWD_METHODS
from pmflib_tasks.config import make_config
from pmflib_tasks.crowd.section import CrowdConfig


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
