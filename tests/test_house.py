"""Documents, benchmarks and CONTRIBUTING name only what exists."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EVERYWHERE = (
    "pmflib",
    "tasks",
    "flows",
    "benchmarks",
    "tests",
    "docs",
    "deploy",
    "README.md",
    "CONTRIBUTING.md",
)


def list_files(paths=EVERYWHERE, suffixes=(".py", ".md", ".toml", ".sh")):
    for each in paths:
        path = ROOT / each
        found = [path] if path.is_file() else path.rglob("*")
        yield from (
            file
            for file in sorted(found)
            if file.suffix in suffixes and "__pycache__" not in file.parts
        )


def module_of(file):
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def list_documents():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"] + [
        file for folder in ("docs", "deploy", "benchmarks") for file in (ROOT / folder).glob("*.md")
    ]


def test_no_two_test_files_have_one_name():
    names = [file.name for file in list_files(("tests",), (".py",)) if file.name != "conftest.py"]
    assert len(names) == len(set(names))


def test_index_lists_every_benchmark_with_its_command():
    index = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    for file in list_files(("benchmarks",), (".py",)):
        path = file.relative_to(ROOT / "benchmarks").as_posix()
        if 'if __name__ == "__main__":' in file.read_text("utf-8"):
            assert f"| `{path}` |" in index
            assert f"`python -m {module_of(file)}" in index
        elif file.name != "__init__.py":
            assert path in index or f"{file.parent.name}/`" in index


@pytest.mark.parametrize("document", list_documents(), ids=lambda file: str(file.relative_to(ROOT)))
def test_documents_name_what_there_is(document):
    text = document.read_text("utf-8")
    for module in re.findall(r"python -m ((?:benchmarks|tests|pmflib)[\w.]*)", text):
        file = Path(*module.split(".")).with_suffix(".py")
        assert any((ROOT / top / file).exists() for top in ("", "flows", "tasks")), module
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (document.parent / link).exists(), link
    if document.name != "CHANGELOG.md":
        for path in re.findall(r"`((?:pmflib|tasks|flows|tests|benchmarks|docs)/[\w/.]*)`", text):
            assert (ROOT / path).exists(), path
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for target in re.findall(r"^    make (\w+)|`make (\w+)`", text, re.MULTILINE):
        assert "".join(target) in targets, target


def list_notation():
    text = (ROOT / "docs" / "notation.md").read_text("utf-8")
    return sorted(set(re.findall(r"`((?:pmflib|tasks|flows)\.[\w.]+)`", text)))


@pytest.mark.parametrize("name", list_notation())
def test_names_of_the_notation_exist(name):
    parts = name.split(".")
    for n_parts in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:n_parts]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[n_parts:]:
        # a field without a default is no attribute of its class
        if isinstance(found, type) and part in getattr(found, "__dataclass_fields__", ()):
            return
        found = getattr(found, part)


def test_benchmarks_can_be_imported_as_far_as_their_peers_are_here():
    modules = [module_of(file) for file in list_files(("benchmarks",), (".py",))]
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        if error.name.split('.')[0] not in ('sklearn',):\n"
        "            raise\n"
    )
    subprocess.run([sys.executable, "-c", code, *modules], cwd=ROOT, check=True)


def test_contributing_names_where_things_are():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| [^|]+ \| `([\w/]+\.py)` \| `(\w+)` \|$", text, re.MULTILINE)
    assert rows
    for path, name in rows:
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")), f"{name} in {path}"
