"""Pages that list what is in the code: messages, exit codes, and the order of pages."""

import ast
import re

import pytest

from pmflib.base import errors
from pmflib_flows import exit_codes
from tests.docs.pages import ROOT

DOCS = ROOT / "docs"
VALUE = "…"
"""Stands for what is filled into a message."""


def as_text(node):
    """Text of a string in the source, with a sign for each value; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else VALUE for each in node.values)
        return "".join(map(str, parts))
    return None


@pytest.fixture(scope="module")
def messages():
    """Texts of the source; and of the errors that are raised with a text, by class."""
    texts, raised = [], []
    for folder in ("pmflib", "tasks", "flows"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if (text := as_text(node)) is not None:
                    texts.append(text)
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                    name = ast.unparse(node.exc.func)
                    text = as_text(node.exc.args[0]) if node.exc.args else None
                    if text is not None and isinstance(getattr(errors, name, None), type):
                        raised.append((getattr(errors, name), text))
    return texts, raised


def list_messages():
    """Messages of the page, with the exit code of their section; None for warnings."""
    code = None
    for line in (DOCS / "troubleshooting.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            found = re.match(r"## Exit code (\d+)", line)
            code = int(found[1]) if found else None
        elif found := re.match(r"\| `(.+?)` \|", line):
            yield pytest.param(found[1], code, id=found[1][:40])


@pytest.mark.parametrize(("message", "code"), [*list_messages()])
def test_troubleshooting__messages_are_those_of_the_source(messages, message, code):
    texts, raised = messages
    # a value of the page may be text of the source, but not the other way round
    pattern = re.compile(".*".join(map(re.escape, message.split(VALUE))), re.DOTALL)
    assert any(pattern.search(text) for text in texts)
    codes = {exit_codes.find_exit_code(error) for error, text in raised if pattern.search(text)}
    if code is not None and codes:
        assert code in codes


def test_exit_codes__page_has_those_of_the_command_line():
    text = (DOCS / "exit-codes.md").read_text("utf-8")
    listed = set(map(int, re.findall(r"^\| (\d+) \|", text, re.MULTILINE)))
    ends = exit_codes.INTERRUPTED, exit_codes.OUTPUT_CLOSED, exit_codes.TERMINATED
    assert listed == {0, exit_codes.DEFECT, *exit_codes.EXIT_CODES.values(), *ends}


def test_index__has_every_page_once():
    text = (DOCS / "index.md").read_text("utf-8")
    listed = [
        re.sub(r".*<(.+)>", r"\1", name)
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for name in block.split("\n")
        if name and not name.startswith(":")
    ]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {page.stem for page in DOCS.glob("*.md")} - {"index"}
