"""An interruption is one line and an exit code, also while the command is being loaded."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BUSY_READER = """
import sys, time
import zarr.core.sync
from flows import __main__, cli

def end():
    zarr.core.sync._get_loop().call_soon_threadsafe(time.sleep, 1)
    sys.exit(130)

cli.main = end
__main__.main()
"""
"""A command that ends while the thread in which Zarr reads is busy for a second."""


def test_main__what_zarr_reads_at_the_end_prints_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BUSY_READER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.5, 0.9, 1.4, 2.0])
def test_pmf__interrupted_while_it_loads(seconds, tmp_path):
    (tmp_path / "data.csv").write_text("a,b\nx,y\n" * 40)
    config = '[source]\npath = "data.csv"\nlayout = "wide"\n[model]\nrank = 2\n'
    (tmp_path / "pipeline.toml").write_text(config)
    program = "import sys; sys.stderr.write('.'); from flows.__main__ import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "run", "pipeline.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Python itself has started
    assert process.stderr.read(1) == "."
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    # the run may have ended before, by the schema that is not there
    assert process.returncode in (130, 3)
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
