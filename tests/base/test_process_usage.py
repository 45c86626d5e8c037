"""What a process says that it has used."""

import os
import sys

import numpy as np
import pytest

from pmflib.base import ProcessUsage

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")


@on_linux
def test_since__what_was_held_read_and_written_meanwhile(tmp_path):
    before = ProcessUsage.begin()
    block = np.ones(8 << 20)
    held = ProcessUsage.read()
    del block
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    with (tmp_path / "file").open("rb") as stream:
        assert len(stream.read()) == 1 << 20
    used = ProcessUsage.read().since(before)
    assert used.peak_bytes - before.peak_bytes > 60 << 20
    # the system counts pages in batches
    assert used.peak_bytes == pytest.approx(held.peak_bytes, abs=1 << 20)
    assert 1 << 20 <= used.written_bytes < 2 << 20
    assert 1 << 20 <= used.read_bytes < 2 << 20
    assert used.seconds > 0
    # what was held before is forgotten
    assert ProcessUsage.begin().peak_bytes < held.peak_bytes - (30 << 20)


def test_add__of_several_processes():
    found = ProcessUsage.add([ProcessUsage(1.0, 10, 3, 4), ProcessUsage(2.0, 30, 5, 6)])
    assert found == ProcessUsage(3.0, 30, 8, 10)
    assert ProcessUsage.add([]) == ProcessUsage()


def test_read__where_the_system_says_nothing(monkeypatch):
    monkeypatch.setattr("pmflib.base.process_usage._read_fields", lambda path: {})
    found = ProcessUsage.read()
    assert found.peak_bytes > 10 << 20
    assert (found.read_bytes, found.written_bytes) == (0, 0)
    assert os.times().user + os.times().system >= found.seconds - 1
