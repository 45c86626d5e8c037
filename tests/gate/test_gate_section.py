"""The section of the configuration on the gate."""

import pytest

from pmflib.base import ConfigError
from pmflib_tasks.config import make_config


def make(**sections):
    source = {"path": "x.csv", "layout": "wide"}
    return make_config({"source": source, "model": {"rank": 2}} | sections, base="/data")


def test_make_config__gate():
    gate = make().gate
    assert (gate.least_cells, gate.standard_errors, gate.largest_loss) == (100, 2.0, 0.02)
    assert make(gate={"largest_loss": 0}).gate.largest_loss == 0
    for options in ({"least_cells": 0}, {"standard_errors": 0}, {"largest_loss": -0.1}):
        with pytest.raises(ConfigError, match=f"^gate.{next(iter(options))}: "):
            make(gate=options)
