"""What of the house style can be checked: names, words, sizes, and that documents name what there is."""

import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ("pmflib", "tasks", "flows")
MAX_TASK_LINES = 120

EVERYWHERE = (*SHIPPED, "benchmarks", "tests", "docs", "deploy", "README.md", "CONTRIBUTING.md")
CROWD = (
    "pmflib/crowd",
    "pmflib/solvers/crowd",
    "pmflib/synthetic/planted_models.py",
    "pmflib/counting/worker_pair_counts.py",
    "benchmarks/crowd",
    "tests/crowd",
    "tests/solvers/crowd",
)
RETIRED = [
    # word now, pattern, where
    ("pseudo_count, penalty, or a number of its own", r"\bstrengths?\b|_strength\b", EVERYWHERE),
    ("pseudo_count", r"\bsmooth(?:ing|ed)?\b|\bsmoothing_", EVERYWHERE),
    ("worker", r"annotators?", EVERYWHERE),
    ("task", r"\bn_items\b|\b(?:an?|the|each|every|per|of|these|all) items?\b", CROWD),
    ("label", r"\banswers?\b|_answers?\b", CROWD),
    ("perturbed", r"\bshak(?:en|e|ing)\b|\bshake_", EVERYWHERE),
    ("report, say, distinguish", r"\btell(?:s|ing)?\b|\btold\b|\btell_\w+|\bhear_\w+", EVERYWHERE),
    ("fix, repair", r"\bmend(?:s|ed|ing)?\b", EVERYWHERE),
    ("a whole phrase", r'"""Of\b|^( *)[\w, *]+\n\1    Of\b', (*SHIPPED, "benchmarks")),
    # identifiers: as plain English these words may stay
    (
        "index, position, path, location",
        r"(?<!in)(?<!\bn)_places?\b|\bplaces_|\bplaces?: (?:int|str|Sequence)",
        (*SHIPPED, "benchmarks"),
    ),
    ("fit specification", r"\brecipes?\b|_recipes?\b|\brecipe_", EVERYWHERE),
    ("value counts", r"\bcensuses\b|_census\b|\bcensus_|[a-z]Census\b", SHIPPED),
    ("observed, held out, kept", r"\bfind_held\b|[a-z]Held\b|\bHeldItems\b", SHIPPED),
    ("evaluate, score, assess", r"_judge\b|\bjudge_\w+", SHIPPED),
    ("chunk, split", r"(?<!\bon)_pieces?\b|\bpieces?_", EVERYWHERE),
    ("assign, split", r"\bdealt?_|_dealt?\b", EVERYWHERE),
    ("grid", r"\bladders?\b|_ladders?\b|\bladder_", EVERYWHERE),
]
"""What to write, what not to, and where; without regard to upper and lower case, classes and constants apart."""
ALLOWED = re.compile(
    r"annotator[ _-]?models?|annotator_model\w*|test_annotator_model"  # how confusion matrices are parametrised
    r"|Annotator co-occurrence imputation"  # title of a paper
    r"|\banswers?\.(?:txt|csv)"  # files as they were published
    r"|def tell\(self",  # of files
    re.IGNORECASE,
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


@cache
def read_words(file):
    """Text of a file without the words that are allowed, and its lines."""
    written = file.read_text("utf-8")
    text = ALLOWED.sub(lambda found: "\n" * found.group().count("\n"), written)
    return text, written.splitlines()


def find_words(pattern, paths):
    has_capitals = re.search(r"[A-Z]", pattern) is not None
    search = re.compile(pattern, re.MULTILINE | (0 if has_capitals else re.IGNORECASE))
    # here the words are listed, and there they are translated
    apart = {Path(__file__), ROOT / "docs" / "notation.md"}
    for file in list_files(paths):
        if file in apart:
            continue
        text, lines = read_words(file)
        numbers = dict.fromkeys(text.count("\n", 0, found.end()) for found in search.finditer(text))
        for number in numbers:
            yield f"{file.relative_to(ROOT)}:{number + 1}: {lines[number].strip()[:100]}"


def module_of(file):
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def list_documents():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"] + [
        file for folder in ("docs", "deploy", "benchmarks") for file in (ROOT / folder).glob("*.md")
    ]


@pytest.mark.parametrize(("now", "pattern", "paths"), RETIRED, ids=[now for now, _, _ in RETIRED])
def test_retired_words_are_gone(now, pattern, paths):
    found = list(find_words(pattern, paths))
    assert not found, f"write {now}:\n" + "\n".join(found)


def test_no_two_test_files_have_one_name():
    names = [file.name for file in list_files(("tests",), (".py",)) if file.name != "conftest.py"]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("file", [*list_files(("tasks",), (".py",))], ids=lambda file: file.name)
def test_tasks_are_short(file):
    assert len(file.read_text("utf-8").splitlines()) < MAX_TASK_LINES


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
    assert len(rows) == 20
    for path, name in rows:
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")), f"{name} in {path}"
