"""What of the house style can be checked: names, words, sizes, and that documents name what there is."""

import importlib
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = ("pmflib", "tasks", "flows")
MAX_TASK_LINES = 120

SAME_NAME = {
    "checkpoint": "one file for each type of state: of EM, and of a label log",
    "crowd": "the flow of label logs, and its command",
    "demo": "a command, and the log that it draws",
    "memory": "what a part of the library takes, before it runs: one file in each",
    "nnls": "a solver, and its kernel",
    "sampling": "a question to a model, and its kernel",
    "score": "a stage, and the flow that schedules it",
}
"""Names that several modules may share, and why."""

EVERYWHERE = (*SHIPPED, "benchmarks", "tests", "docs", "deploy", "README.md", "CONTRIBUTING.md")
CROWD = (
    "pmflib/crowd",
    "pmflib/solvers/crowd",
    "pmflib/synthetic/label_logs.py",
    "pmflib/synthetic/scenarios.py",
    "pmflib/counting/worker_pair_counts.py",
    "benchmarks/crowd",
    "tests/crowd",
    "tests/solvers/crowd",
)
ROTATIONS = (*CROWD, "pmflib/solvers", "pmflib/ranks", "tests/solvers", "benchmarks/ranks")
RETIRED = [
    # word now, pattern, where
    ("pseudo_count, penalty, or a number of its own", r"\bstrengths?\b|_strength\b", EVERYWHERE),
    ("pseudo_count", r"\bsmooth(?:ing|ed)?\b|\bsmoothing_", EVERYWHERE),
    ("worker", r"annotators?", EVERYWHERE),
    ("task", r"\bn_items\b|\b(?:an?|the|each|every|per|of|these|all) items?\b", CROWD),
    ("label", r"\banswers?\b|_answers?\b", CROWD),
    ("AnnotatorModel", r"\bRule\b", CROWD),
    ("subclass, start method, combination", r"\bkinds\b|\bn_kinds\b|split_kinds", CROWD),
    ("start method", r"\bkinds? of (?:a )?starts?\b", EVERYWHERE),
    ("perturbed", r"\bshak(?:en|e|ing)\b|\bshake_", EVERYWHERE),
    ("rotation", r"\bturn(?:s|ed)?\b|\b_?turn_\w+|\w+_turns?\b", ROTATIONS),
    ("BURN_IN, THINNING", r"\bSETTLING\b|\bSTRIDE\b", EVERYWHERE),
    ("log-likelihood, log-density", r"\bheights?\b", EVERYWHERE),
    ("fallback", r"\brefuges?\b", EVERYWHERE),
    ("step length", r"\bstretch(?:es|ed)?\b", EVERYWHERE),
    ("scenario", r"\bflavours?\b|\bhabits?\b", EVERYWHERE),
    ("report, say, distinguish", r"\btell(?:s|ing)?\b|\btold\b|\btell_\w+|\bhear_\w+", EVERYWHERE),
    ("fix, repair", r"\bmend(?:s|ed|ing)?\b", EVERYWHERE),
    ("start, initial parameters", r"\bbegun\b|\bbegin_passes\b", EVERYWHERE),
    ("a whole phrase", r'"""Of\b|^( *)[\w, *]+\n\1    Of\b', (*SHIPPED, "benchmarks")),
]
"""What to write, what not to, and where; without regard to upper and lower case, classes and constants apart."""
ALLOWED = re.compile(
    r"annotator[ _-]?models?|annotator_model\w*|test_annotator_model"  # how confusion matrices are parametrised
    r"|Annotator co-occurrence imputation"  # title of a paper
    r"|\banswers?\.(?:txt|csv)"  # files as they were published
    r"|def tell\(self"  # of files
    r"|in\s+turn\b|turns? out\b|\bturns? .* into\b"  # plain English of another sense
    r"|axes\.height|_HEIGHT\b|\bheight in inches|\"height\": \d+",  # of a picture, of a window
    re.IGNORECASE,
)


def list_files(places=EVERYWHERE, suffixes=(".py", ".md", ".toml", ".sh")):
    for place in places:
        path = ROOT / place
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


def find_words(pattern, places):
    has_capitals = re.search(r"[A-Z]", pattern) is not None
    search = re.compile(pattern, re.MULTILINE | (0 if has_capitals else re.IGNORECASE))
    # here the words are listed, and there they are translated
    apart = {Path(__file__), ROOT / "docs" / "notation.md"}
    for file in list_files(places):
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


@pytest.mark.parametrize(("now", "pattern", "places"), RETIRED, ids=[now for now, _, _ in RETIRED])
def test_retired_words_are_gone(now, pattern, places):
    found = list(find_words(pattern, places))
    assert not found, f"write {now}:\n" + "\n".join(found)


def test_no_two_modules_have_one_name():
    modules = defaultdict(list)
    for file in list_files(SHIPPED, (".py",)):
        if file.stem != "__init__":
            modules[file.stem].append(str(file.relative_to(ROOT)))
    shared = {name: files for name, files in modules.items() if len(files) > 1}
    assert not {name: files for name, files in shared.items() if name not in SAME_NAME}
    # an exception that nothing needs is no exception
    assert set(SAME_NAME) <= set(shared)


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
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").exists(), module
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (document.parent / link).exists(), link
    if document.name != "CHANGELOG.md":
        for path in re.findall(r"`((?:pmflib|tasks|flows|tests|benchmarks|docs)/[\w/.]*)`", text):
            assert (ROOT / path).exists(), path
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for target in re.findall(r"^    make (\w+)|`make (\w+)`", text, re.MULTILINE):
        assert "".join(target) in targets, target


def test_contributing_lists_every_room():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rooms = {f"pmflib/{path.parent.name}/" for path in (ROOT / "pmflib").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(pmflib/\w+/)` \|", text, re.MULTILINE)) == rooms


def list_notation():
    text = (ROOT / "docs" / "notation.md").read_text("utf-8")
    return sorted(set(re.findall(r"`((?:pmflib|tasks|flows)\.[\w.]+)`", text)))


@pytest.mark.parametrize("name", list_notation())
def test_names_of_the_notation_exist(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[cut:]:
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
