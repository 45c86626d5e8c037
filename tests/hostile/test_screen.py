"""What comes from data reaches a terminal visible and inert; JSON stays exact."""

import io
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pmflib.base import draw_progress, report_progress, show_text
from pmflib_flows.console import OutputClosedError, SafeConsole, print_json
from pmflib_flows.tables import make_table
from tests.factories import call_command

ROOT = Path(__file__).parents[2]
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\u2066\u200b\udcff\u2028[red]x[/] [/] :smile: \r\x08"
SHOWN = (
    r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\u2066\u200b\udcff\u2028[red]x[/] [/] :smile: \r\x08"
)


def render(*things, terminal=False, **options):
    file = io.StringIO()
    screen = SafeConsole(
        file=file, force_terminal=terminal, color_system=None, width=300, **options
    )
    for thing in things:
        screen.print(thing)
    return file.getvalue()


def is_inert(text):
    return all(character.isprintable() or character == "\n" for character in text)


def test_show_text():
    assert show_text(EVIL) == SHOWN
    assert (
        show_text("plain, \u00e9, \u6f22\u5b57, \U0001f600, \u00a0")
        == "plain, \u00e9, \u6f22\u5b57, \U0001f600, \u00a0"
    )
    assert show_text("first\nsecond\tthird") == r"first\nsecond\tthird"
    # what was shown is shown as it is
    assert show_text(SHOWN) == SHOWN


def test_safe_console__whatever_is_printed():
    table = Table(EVIL, title=Text(EVIL))
    table.add_row(EVIL)
    table.add_row(Text(EVIL))
    for thing in (EVIL, Text(EVIL), table, make_table(EVIL, (EVIL,), [(EVIL,)])):
        said = render(thing)
        assert is_inert(said)
        # Rich itself drops a few controls of its own texts
        assert r"\x1b]0;owned" in said
    # in a table of ours the widths are right
    lines = render(make_table("t", (EVIL,), [(EVIL,)])).strip().splitlines()[1:]
    assert len({len(line) for line in lines}) == 1


def test_make_table__for_a_console_of_another(capsys):
    file = io.StringIO()
    Console(file=file, width=300).print(make_table(EVIL, ("[/]",), [(EVIL,)]))
    assert is_inert(file.getvalue())
    assert "[/]" in file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_draw_progress__text_of_data(terminal):
    file = io.StringIO()
    with draw_progress(
        SafeConsole(file=file, force_terminal=terminal, color_system=None, width=300)
    ):
        report_progress("[/]", 1, 2, EVIL)
        report_progress("[/]", 2, 2, EVIL)
    said = file.getvalue()
    assert SHOWN in said
    assert "[/]" in said
    for part in ("\x1b]0", "\x9b", "\u202e", "\x1b[2J\\x9b"):
        assert part not in said


def test_print_json__exact(capsys):
    value = {EVIL: [EVIL, "\u00e9"]}
    print_json(value)
    assert json.loads(capsys.readouterr().out) == value


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = call_command(monkeypatch, *words)
        return code, *capsys.readouterr()

    return run


def test_main__errors_and_wrong_usage(call):
    for words in (
        ["run", EVIL],
        ["run", "a", EVIL],
        [EVIL],
        ["status", "--" + EVIL],
        ["infer", EVIL],
        ["infer", "a", "--rank", EVIL],
        ["query", "a", EVIL],
    ):
        code, out, err = call(*words)
        assert code in (2, 3)
        assert out == ""
        assert is_inert(err)
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device"), 4, "No space left"),
        (MemoryError(), 5, "memory"),
        (RuntimeError(EVIL + " https://me:hunter2@host"), 1, "RuntimeError"),
    ],
)
def test_main__other_errors(call, monkeypatch, error, code, said):
    def fail(path):
        raise error

    monkeypatch.setattr("pmflib_flows.commands.run.load_pipeline", fail)
    found, _, err = call("status", "p.toml")
    assert found == code
    assert said in err
    assert is_inert(err)
    assert "hunter2" not in err


def test_main__warnings_are_one_inert_line(call, monkeypatch):
    def fail(path):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(EVIL, stacklevel=1)
        raise OSError(28, "full")

    monkeypatch.setattr("pmflib_flows.commands.run.load_pipeline", fail)
    _, _, err = call("status", "p.toml")
    assert is_inert(err)


def test_print__reader_is_gone(monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    with pytest.raises(OutputClosedError):
        SafeConsole(file=Closed()).print("a")
    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(OutputClosedError):
        print_json({})
    # results are not lost for want of a reader of the progress
    screen = SafeConsole(stderr=True, file=Closed())
    screen.print("a")
    screen.print("b")


def test_main__output_in_a_process(tmp_path):
    (tmp_path / "p.toml").write_text('[source]\npath="a"\nlayout="wide"\n[model]\nrank=2\n')
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "pmflib_flows", "status", "p.toml", *more],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    read, write = os.pipe()
    os.close(read)
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "pmflib_flows", "status", "p.toml", *more],
            cwd=tmp_path,
            env=environment,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert (done.returncode, done.stderr) == (141, "")
    os.close(write)
