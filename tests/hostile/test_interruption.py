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
from pmflib_flows import __main__, cli

def end():
    zarr.core.sync._get_loop().call_soon_threadsafe(time.sleep, 1)
    sys.exit(130)

cli.main = end
__main__.main()
"""
"""A command that ends while the thread in which Zarr reads is busy for a second."""


def run_program(program: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_main__what_zarr_reads_at_the_end_prints_nothing(tmp_path):
    done = run_program(BUSY_READER, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.1, 0.25, 0.5, 0.9, 1.4, 2.0])
def test_pmf__interrupted_while_it_loads(seconds, tmp_path):
    (tmp_path / "data.csv").write_text("a,b\nx,y\n" * 40)
    config = '[source]\npath = "data.csv"\nlayout = "wide"\n[model]\nrank = 2\n'
    (tmp_path / "pipeline.toml").write_text(config)
    program = "import sys; sys.stderr.write('.'); from pmflib_flows.__main__ import main; main()"
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
    assert process.returncode in (130, 3), err
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1, err


INTERRUPTED_CLASS = """
import os, sys
from pmflib_flows import __main__, cli

class Interrupted:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), number)

def load(words, standalone_mode):
    type("Owner", (), {"field": Interrupted()})

number = int(sys.argv.pop())
if sys.argv.pop() == "imported":
    cli.main = lambda: load([], False)
else:
    cli.app = load
__main__.main()
"""
"""A command that is interrupted where a class is being made, which Python 3.11 reports as another error."""


@pytest.mark.parametrize(
    ("where", "number", "code"),
    [
        ("imported", signal.SIGINT, 130),
        ("called", signal.SIGINT, 130),
        ("called", signal.SIGTERM, 143),
    ],
)
def test_main__interrupted_where_a_class_is_made(where, number, code, tmp_path):
    done = run_program(INTERRUPTED_CLASS, tmp_path, where, str(int(number)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert "Traceback" not in done.stderr


LATE_INTERRUPTION = """
import os, sys, threading
from pmflib_flows import __main__, cli

def interrupt():
    os.kill(os.getpid(), number)

def call(words, standalone_mode):
    if where == "waiting":
        ending = threading.main_thread()
        threading.Thread(target=lambda: (ending.join(0.1), interrupt())).start()
    else:
        # modules are taken apart after everything else
        sys.modules["kept"] = kept = Kept()
        kept.interrupt = interrupt
    sys.exit(3)

class Kept:
    def __del__(self):
        self.interrupt()

number, where = int(sys.argv.pop()), sys.argv.pop()
cli.app = call
__main__.main()
"""
"""A command that has ended with code 3, and is interrupted while Python waits for threads or takes itself apart."""


@pytest.mark.parametrize("where", ["waiting", "dismantling"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_main__interrupted_after_its_end_keeps_its_code(where, number, tmp_path):
    done = run_program(LATE_INTERRUPTION, tmp_path, where, str(int(number)))
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
