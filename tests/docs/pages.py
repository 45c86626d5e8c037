"""Pages of the documentation, and how their code blocks are run: sybil with an evaluator for each language."""

import contextlib
import copy
import doctest
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

from pmflib_tasks.config import PipelineConfig

ROOT = Path(__file__).parents[2]
NOT_RUN = ("text", "console")
"""Outputs, and commands that need what a test has not: a server, a bucket, the package index."""
LANGUAGES = ("bash", "python", "toml", "json", *NOT_RUN)
COMPARED = "<!-- compare -->"
"""Before a ```text block that must be what the block before it has printed, but for `...`."""
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LAST_OUTPUT = "last output of the page"
COMMANDS = [Path(sys.executable).parent]
"""Folders of the commands of a block, the first first: those beside this Python."""


def list_pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_page(page):
    return str(page.relative_to(ROOT))


def make_environment():
    """Variables of the shells: this checkout, the commands of `COMMANDS`, one thread, plain output."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")
    }
    return environment | {
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, ROOT / "flows", ROOT / "tasks"])),
        "PATH": ":".join([*map(str, COMMANDS), os.environ["PATH"]]),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


def run_bash(example):
    """Run a block in one shell that stops at the first error; a comment `# exit code 3` says how it ends."""
    found = re.search(r"#.*\bexit code (\d+)", example.parsed)
    expected = int(found[1]) if found else 0
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", str(example.parsed)],
        env=make_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == expected, (
        f"{example.path}:{example.line}: exit code {done.returncode}, not {expected}\n"
        f"{example.parsed}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    )
    # progress and warnings are for people at a terminal
    example.namespace[LAST_OUTPUT] = done.stdout or done.stderr


def run_python(example):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("default")
        PythonEvaluator()(example)
    example.namespace[LAST_OUTPUT] = printed.getvalue()


def compare_text(example):
    before = example.document.text[: example.start].rstrip()
    if not before.endswith(COMPARED):
        return
    printed = example.namespace[LAST_OUTPUT]
    expected = str(example.parsed)
    assert doctest.OutputChecker().check_output(expected, printed, OPTIONS), (
        f"{example.path}:{example.line}: printed was\n{printed}\nand not\n{expected}"
    )


def check_json(example):
    json.loads(example.parsed)


def check_toml(example):
    """Check a fragment of a configuration with what every pipeline must have."""
    fragment = tomllib.loads(example.parsed)
    whole: dict[str, Any] = {"source": {"path": "x.csv", "layout": "wide"}, "model": {"rank": 2}}
    if fragment.get("source", {}).get("layout") == "long" or "window" in fragment:
        names = {"sample": "s", "variable": "v", "value": "x", "time": "t"}
        whole["source"] |= {"layout": "long", **names}
    for section, options in copy.deepcopy(fragment).items():
        if isinstance(options, dict):
            whole[section] = whole.get(section, {}) | options
        else:
            whole[section] = options
    PipelineConfig.model_validate(whole)


EVALUATORS = {
    "bash": run_bash,
    "python": run_python,
    "text": compare_text,
    "toml": check_toml,
    "json": check_json,
}
BLOCKS = Sybil(parsers=[CodeBlockParser(*each) for each in EVALUATORS.items()])


def list_blocks(page):
    return list(BLOCKS.parse(page).examples())
