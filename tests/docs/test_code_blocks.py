"""Every code block of README.md and docs/: a page's blocks run in order, in an empty folder, in one namespace."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs import pages
from tests.docs.pages import (
    EVALUATORS,
    LANGUAGES,
    LAST_OUTPUT,
    ROOT,
    check_toml,
    compare_text,
    list_blocks,
    list_pages,
    make_environment,
    name_page,
    run_bash,
)
from tests.warm_commands import serve_commands

PAGES = list_pages()
SLOW = (
    "docs/class-tests.md",
    "docs/erasure.md",
    "docs/gate.md",
    "docs/history.md",
    "docs/howto-cluster.md",
    "docs/howto-nightly.md",
    "docs/howto-nightly-labels.md",
    "docs/howto-object-store.md",
    "docs/runbook.md",
    "docs/tutorial-national-survey.md",
    "docs/weights.md",
)
"""Pages that take longest, but for what a new user reads first: they are among the slow tests."""
COLD = ("README.md",)
"""Pages whose commands are those that are installed; those of others are forked from a process that has loaded all."""


def mark(page):
    name = name_page(page)
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if name in SLOW else [])


@pytest.fixture(scope="session")
def first_blocks(tmp_path_factory):
    """Folders that first blocks of pages leave, by block: many pages start from the same demonstration."""
    made, printed = {}, {}

    def run_first(block, folder):
        text = str(block.parsed)
        if text not in made:
            made[text] = tmp_path_factory.mktemp("first")
            os.chdir(made[text])
            run_bash(block)
            printed[text] = block.namespace[LAST_OUTPUT]
        block.namespace[LAST_OUTPUT] = printed[text]
        shutil.copytree(made[text], folder, dirs_exist_ok=True)
        os.chdir(folder)

    return run_first


@pytest.fixture(scope="session")
def commands():
    """Folder of a `pmf` that has loaded everything."""
    with serve_commands(make_environment() | {"MPLBACKEND": "agg"}) as folder:
        yield folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [mark(page) for page in PAGES])
def test_blocks_of_a_page_run(page, tmp_path, monkeypatch, commands, first_blocks):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    if name_page(page) not in COLD:
        monkeypatch.setattr(pages, "COMMANDS", [commands, *pages.COMMANDS])
    blocks = list_blocks(page)
    for position, block in enumerate(blocks):
        if position == 0 and str(block.parsed).startswith("pmf demo"):
            first_blocks(block, tmp_path)
        else:
            block.evaluate()
    if name_page(page) == "README.md":
        check_answer(page.read_text("utf-8"), str(blocks[0].parsed).splitlines()[-1])


FIGURES = re.compile(
    r"^\| ([^|]+) \| (\.\d+) \| (\.\d+) to (\.\d+) \| (\d+) \| (\.\d+) \|$", re.MULTILINE
)
"""Rows of the answer that README prints: level, probability, interval, rows, counted share."""


def check_answer(text, command):
    """Check that the answer on a page is that of its command."""
    done = subprocess.run(
        [*shlex.split(command), "--json"], env=make_environment(), capture_output=True, text=True
    )
    found = {tuple(row["level"].values()): row for row in json.loads(done.stdout)["levels"]}
    printed = FIGURES.findall(text)
    assert len(printed) == 3
    for level, *numbers in printed:
        row = found[(level,)]
        told = row["probability"], *row["interval"], row["samples"], row["counted"]
        assert [float(each) for each in numbers] == pytest.approx(told, abs=5.1e-4), level


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_every_block_has_a_language(page):
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8")):
        if token.map is None:
            continue
        position = f"{name_page(page)}:{token.map[0] + 1}"
        assert token.type != "code_block", (
            f"{position}: an indented block; fence it, with a language"
        )
        if token.type == "fence" and not token.info.startswith("{"):
            assert token.info in LANGUAGES, f"{position}: language {token.info!r}"


class Block:
    """What an evaluator needs to know of a block."""

    path, line, start = "page.md", 1, 0

    def __init__(self, parsed):
        self.parsed, self.namespace = parsed, {}
        self.document = type("Document", (), {"text": ""})()


@pytest.mark.parametrize(
    ("source", "passes"),
    [
        ("true", True),
        ("false\ntrue", False),
        ("exit 3  # rows do not fit: exit code 3", True),
        ("true  # exit code 3", False),
        ("echo $UNSET_NAME_OF_THIS_TEST", False),
    ],
)
def test_run_bash__exit_codes(source, passes):
    if passes:
        run_bash(Block(source))
        return
    with pytest.raises(AssertionError, match="exit code"):
        run_bash(Block(source))


def test_compare_text__only_where_it_is_marked(tmp_path):
    text = "```python\nprint('seen', 3)\n```\n{}\n```text\nseen {}\n```\n"
    for marker, number, passes in [
        ("", 4, True),
        ("<!-- compare -->", 3, True),
        ("<!-- compare -->", "...", True),
        ("<!-- compare -->", 4, False),
    ]:
        page = tmp_path / "page.md"
        page.write_text(text.format(marker, number), "utf-8")
        code, output = list_blocks(page)
        code.evaluate()
        if passes:
            output.evaluate()
            continue
        with pytest.raises(AssertionError, match="printed was"):
            output.evaluate()


def test_check_toml__unknown_options_are_refused():
    check_toml(Block("[em]\nmembers = 3\n"))
    with pytest.raises(ValueError, match="member"):
        check_toml(Block("[em]\nmember = 3\n"))


def test_evaluators__one_for_every_language_but_console():
    assert set(EVALUATORS) == set(LANGUAGES) - {"console"}
    assert compare_text in EVALUATORS.values()


BENCHMARKS = r"""
import argparse, json, runpy, sys

class Parsed(Exception):
    pass

parse = argparse.ArgumentParser.parse_args

def stop(self, *arguments):
    parse(self)
    raise Parsed

argparse.ArgumentParser.parse_args = stop
for words in json.loads(sys.argv[1]):
    sys.argv = words
    try:
        runpy.run_module(words[0], run_name="__main__")
    except Parsed:
        continue
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] in ("sklearn", "crowdkit", "stepmix"):
            continue
        raise
    except SystemExit:
        print(words, file=sys.stderr)
        raise
    sys.exit(f"{words[0]} has run without reading its arguments")
"""


def list_benchmark_commands():
    for page in [*PAGES, ROOT / "benchmarks" / "README.md", ROOT / "CONTRIBUTING.md"]:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
            for found in re.findall(r"python -m (benchmarks\.[^`|#\n]*)", line):
                yield f"{name_page(page)}:{number}", shlex.split(found)


def test_benchmarks_that_pages_name_take_these_arguments():
    commands = {}
    for position, words in list_benchmark_commands():
        file = (ROOT / Path(*words[0].split("."))).with_suffix(".py")
        assert file.exists(), position
        source = file.read_text("utf-8")
        if "parse_args" not in source:
            takes_some = "sys.argv" in source
            assert len(words) == 1 or takes_some, f"{position}: {words[0]} takes no arguments"
        elif "--help" not in words:
            commands[tuple(words)] = position
    assert len(commands) > 50
    done = subprocess.run(
        [sys.executable, "-c", BENCHMARKS, json.dumps([*map(list, commands)])],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
