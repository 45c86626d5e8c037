"""Whether the core, and every other feature, lives without a feature: `make apart`.

In a copy of the tree a feature is deleted: its folder, the folders of its name of tasks, flows and tests, its page, and
its lines in `pmflib.features` and the tables of `pmflib`; with it the features of higher wings that import it, as they
may. What is left must import nothing of it, be importable, keep the contracts of imports, pass its nearest tests, and
run the demonstration of `make demo`. Then all features are deleted at once, and the core must pass its tests and run a
pipeline.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path

import grimp

from pmflib.base import FOLDER_VARIABLE, find_folder, find_offers
from pmflib.features import FEATURES
from tests.choose_tests import Imports, choose, read_seconds

ROOT = Path(__file__).parents[1]
WINGS = tuple(dict.fromkeys(name.split(".")[1] for name in FEATURES))
"""Folders of features, the lowest first."""
PACKAGES = ("pmflib", "pmflib_tasks", "pmflib_flows")
PAGES = {
    "checks": ("class-tests",),
    "crowd": ("library-crowd", "howto-nightly-labels", "howto-tags", "tutorial-labels"),
    "design": ("weights",),
    "drafting": ("drafts",),
    "errors": ("confidence",),
    "estimators": ("estimators", "howto-classifier"),
    "forests": ("dependence",),
    "imputation": ("imputation",),
    "margins": ("margins",),
    "panels": ("waves",),
    "planning": ("plan",),
    "recommending": ("tutorial-recommend",),
    "scoring": ("scoring",),
    "sites": ("tutorial-sites",),
    "statistics_files": ("tutorial-spss",),
    "target": ("targets",),
    "three_steps": ("three-steps",),
}
"""Pages of a feature whose name is not that of the feature."""
ASKED_HOOK = re.compile(r'find_(?:offers|entry)\(\s*"(\w+)"')
"""A call that asks for what features offer under a hook."""
TEST_SECONDS = 20.0
"""Of tests, one after another, beside each feature that is deleted."""
PROCESSES = 2
"""Features that are deleted at once, each in its own copy; and processes of the core's tests."""
EVERYTHING = "all features"
OF_THE_WHOLE = (
    *("benchmarks", "deploy", "docs", "examples", "faults", "fuzz", "hostile", "packaging"),
    "product",
)
"""Folders of tests that are neither of the core nor of a feature, but of all of them together."""


def find_feature(module: str) -> str:
    """Feature that a module belongs to, in any of the packages; "" for the core."""
    parts = module.split(".")
    if parts[0] in ("pmflib", "tests"):
        name = ".".join(("pmflib", *parts[1:3]))
        return name if name in FEATURES else ""
    folders = {each.rpartition(".")[2]: each for each in FEATURES}
    return folders.get(parts[1], "") if len(parts) > 1 else ""


def find_wing(feature: str) -> int:
    """Height of a feature's wing."""
    return WINGS.index(feature.split(".")[1])


@dataclass
class Arrow:
    """An import, or a text that names a module."""

    module: str
    target: str


def list_arrows(graph: grimp.ImportGraph, root: Path) -> list[Arrow]:
    """What modules import of features, in every form, and the modules of features that their texts name."""
    arrows = [
        Arrow(module, target)
        for module in sorted(graph.modules)
        for target in sorted(graph.find_modules_directly_imported_by(module))
        if find_feature(target)
    ]
    faces = list_faces()
    for module in sorted(graph.modules - faces):
        arrows += [
            Arrow(module, name) for name in _list_named(find_path(root, module), graph.modules)
        ]
    return [each for each in arrows if each.module not in faces]


def list_faces() -> set[str]:
    """Tables and faces, whose lines go with a feature."""
    faces = {f"{package}.features" for package in PACKAGES}
    return faces | {"pmflib", *(f"pmflib.{wing}" for wing in WINGS)}


def find_path(root: Path, module: str) -> Path:
    """File of a module of the library, the tasks or the flows."""
    top = {"pmflib_tasks": "tasks", "pmflib_flows": "flows"}.get(module.split(".")[0], "")
    path = root / top / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def list_broken(graph: grimp.ImportGraph, root: Path, gone: Collection[str]) -> dict[str, str]:
    """Modules that are left and import features that are gone when they are loaded, or modules that do."""
    faces = list_faces()
    left = [each for each in sorted(graph.modules - faces) if find_feature(each) not in gone]
    known = frozenset(graph.modules)
    loaded = {each: _list_loaded(find_path(root, each), known) for each in left}
    broken: dict[str, str] = {}
    while True:
        more = {
            module: name
            for module in left
            if module not in broken
            for name in sorted(loaded[module])
            if name in broken or find_feature(name) in gone
        }
        if not more:
            return broken
        broken |= {module: f"imports {name}" for module, name in more.items()}


@cache
def _list_loaded(path: Path, modules: frozenset[str]) -> set[str]:
    """Modules that a file imports when it is loaded."""
    found = set()
    waiting: list[ast.stmt] = [*ast.parse(path.read_bytes()).body]
    for node in waiting:
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            waiting += node.body
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            waiting += [*node.body, *node.orelse]
    return found & modules


def _list_named(path: Path, modules: Collection[str]) -> Iterator[str]:
    """Modules of features that texts of a file name as "module:name" or "module"."""
    tree = ast.parse(path.read_bytes())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if id(node) not in docstrings and name in modules and find_feature(name):
                yield name


def find_dependents(feature: str, arrows: Collection[Arrow]) -> list[str]:
    """Features of higher wings that go with one, because they import it, or one that goes."""
    gone = [feature]
    for each in gone:
        users = {find_feature(a.module) for a in arrows if find_feature(a.target) == each}
        gone += sorted(
            user
            for user in users
            if user and user not in gone and find_wing(user) > find_wing(each)
        )
    return gone[1:]


def copy_tree(folder: Path) -> None:
    """Copy what git knows, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def list_folders(root: Path, feature: str) -> list[Path]:
    """Folders of the code of a feature."""
    _, wing, name = feature.split(".")
    places = (f"pmflib/{wing}/{name}", f"tasks/pmflib_tasks/{name}", f"flows/pmflib_flows/{name}")
    return [root / place for place in places if (root / place).is_dir()]


def count_lines(root: Path, features: Collection[str]) -> int:
    """Count the lines of the code of some features."""
    folders = [folder for feature in features for folder in list_folders(root, feature)]
    return sum(path.read_bytes().count(b"\n") for each in folders for path in each.rglob("*.py"))


def delete(folder: Path, features: Collection[str]) -> None:
    """Delete features from a copy."""
    for feature in features:
        _, wing, name = feature.split(".")
        for place in list_folders(folder, feature):
            shutil.rmtree(place)
        shutil.rmtree(folder / "tests" / wing / name, ignore_errors=True)
        pages = [*PAGES.get(name, ()), name.replace("_", "-")]
        for page in pages:
            (folder / "docs" / f"{page}.md").unlink(missing_ok=True)
        _drop_lines(folder / "docs" / "index.md", rf"^({'|'.join(map(re.escape, pages))})$")
        _drop_lines(folder / "pmflib" / "features.py", rf'"pmflib\.{wing}\.{name}"')
        for face in (folder / "pmflib" / "__init__.py", folder / "pmflib" / wing / "__init__.py"):
            _delete_names(face, feature)
        for table in ("tasks/pmflib_tasks/features.py", "flows/pmflib_flows/features.py"):
            _delete_declarations(folder / table, name)
        _drop_lines(folder / "pyproject.toml", rf'^  ".*\bpmflib\.{wing}\.{name}\b.*->.*",$')
        _drop_lines(folder / "pyproject.toml", rf'^  ".*-> pmflib\.{wing}\.{name}\b.*",$')
        _drop_lines(
            folder / "pyproject.toml", rf'^  ".*\b(pmflib_tasks|pmflib_flows)\.{name}\b.*",$'
        )
        text = (folder / "pyproject.toml").read_text("utf-8")
        text = re.sub(rf'(, )?"pmflib\.{wing}\.{name}"(?=[,\]])', "", text).replace("[, ", "[")
        (folder / "pyproject.toml").write_text(text, "utf-8")


def _drop_lines(path: Path, pattern: str) -> None:
    if path.exists():
        lines = path.read_text("utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not re.search(pattern, line.rstrip("\n"))]
        path.write_text("".join(kept), "utf-8")


def _delete_names(path: Path, feature: str) -> None:
    """Delete the names of a feature from the tables and imports of a face of the library."""
    text = path.read_text("utf-8")
    wing, _, name = feature.rpartition(".")
    names = re.findall(rf'^    "(\w+)": "{re.escape(feature)}[".]', text, flags=re.M)
    for pattern in (
        rf"^    from {re.escape(feature)}(\.[\w.]+)? import (\([^)]*\)|.*)\n",
        rf"^    from {re.escape(wing)} import {name}\n",
        rf'^    "\w+": "{re.escape(feature)}(\.[\w.]+)?",\n',
        *(rf'^    "{each}",\n' for each in names),
    ):
        text = re.sub(pattern, "", text, flags=re.M)
    # the last name of a wing leaves an empty block
    text = re.sub(r"^if TYPE_CHECKING:\n(?! )", "", text, flags=re.M)
    path.write_text(text, "utf-8")


def _delete_declarations(path: Path, name: str) -> None:
    """Delete the declarations of a feature of the pipeline from a table of them."""
    text = path.read_text("utf-8")
    pattern = rf"^from pmflib_\w+\.{name}\.[\w.]+ import \w+ as (\w+)\n"
    for alias in re.findall(pattern, text, flags=re.M):
        text = re.sub(rf"^    {alias},\n|\b{alias}, |, {alias}\b", "", text, flags=re.M)
    path.write_text(re.sub(pattern, "", text, flags=re.M), "utf-8")


IMPORT_ALL = """
import importlib, json, os, sys, pathlib
broken = {}
for top, base in (("pmflib", "."), ("pmflib_tasks", "tasks"), ("pmflib_flows", "flows")):
    for path in sorted(pathlib.Path(base, top).rglob("*.py")):
        name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            broken[name] = f"{type(error).__name__}: {error}"
import pmflib
assert pathlib.Path(pmflib.__file__).is_relative_to(os.getcwd()), pmflib.__file__
for name in pmflib.__all__:
    try:
        getattr(pmflib, name)
    except Exception as error:
        broken["pmflib." + name] = f"{type(error).__name__}: {error}"
print(json.dumps(broken))
"""
"""Imports every module of a copy; prints those that cannot be imported, and why."""

SMOKE = """
import sys
from pathlib import Path
import numpy as np
from pmflib.schema import Schema, Variable
from pmflib_flows.cli import main
rng = np.random.default_rng(0)
side = rng.integers(0, 2, (500, 1))
codes = np.where(rng.random((500, 4)) < 0.8, side, 1 - side)
Path("data").mkdir()
lines = ["a,b,c,d", *(",".join(map(str, row)) for row in codes.tolist())]
Path("data/rows.csv").write_text("\\n".join(lines) + "\\n")
Schema(tuple(Variable(name, ("0", "1")) for name in "abcd")).save("schema.json")
Path("pipeline.toml").write_text('''
name = "core"
[source]
path = "data"
layout = "wide"
[model]
rank = 2
''')
for command in (["run", "pipeline.toml"], ["query", "pipeline.toml", "P(a | b=1)"]):
    sys.argv = ["pmf", *command]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
import pmflib as pmf
schema = Schema.load("schema.json")
fitted = [pmf.fit(pmf.count_pairs(codes, schema, n_folds=5), 2)]
fitted += [pmf.fit_em(codes, rank=rank, schema=schema) for rank in (2, "auto")]
for result in fitted:
    print(result.model.ask("P(a | b=1)"))
"""
"""What the core does without any feature: a pipeline and a question over a small wide CSV, and fits in memory."""
DEMONSTRATION = "pmflib.apps.demo"
"""The feature that `make demo` runs."""
DEMO = """
import sys
from pmflib_flows.cli import main
sys.argv = ["pmf", "demo", "--folder", "demo"]
main()
"""


@dataclass
class TestCounts:
    """How tests ended: the number that passed, names of those that failed, and files that were not collected."""

    n_passed: int = 0
    failed: Collection[str] = ()
    n_uncollected: int = 0

    @property
    def are_green(self) -> bool:
        """Whether all that were chosen passed."""
        return not self.failed and not self.n_uncollected

    def __str__(self) -> str:
        """Write the three numbers."""
        return f"{self.n_passed}/{len(self.failed)}/{self.n_uncollected}"


@dataclass
class Finding:
    """What was found of a feature that was deleted.

    Parameters
    ----------
    feature
        Its package.
    gone
        Features that went with it.
    arrows
        Imports and texts that are left and name it.
    n_lines
        Lines of code deleted.
    broken
        Modules that no longer import, and why.
    contracts
        What import-linter says; "" if it is content.
    tests
        How the tests ended.
    n_left_out
        Test files that need what is gone, and were not run.
    smoke
        Last line of a pipeline or a demonstration that did not run.
    """

    feature: str
    gone: Collection[str] = ()
    arrows: Collection[Arrow] = ()
    n_lines: int = 0
    broken: Mapping[str, str] = field(default_factory=dict)
    contracts: str = ""
    tests: TestCounts | None = None
    n_left_out: int = 0
    smoke: str = ""

    @property
    def is_green(self) -> bool:
        """Whether nothing misses the feature."""
        is_whole = not (self.arrows or self.broken or self.contracts or self.smoke)
        return is_whole and (self.tests is None or self.tests.are_green)

    def describe(self) -> str:
        """A row of the table."""
        tests = str(self.tests or "-")
        name = self.feature.removeprefix("pmflib.")
        said = "apart" if self.is_green else self._find_first()
        return (
            f"{name:26}{self.n_lines:8}{len(self.arrows):8}{len(self.broken):8}{tests:>14}  {said}"
        )

    def show(self) -> None:
        """Print its rows of the table."""
        print(self.describe(), flush=True)
        if self.gone:
            names = (each.removeprefix("pmflib.") for each in self.gone)
            print(f"{'':26}  goes with it: {', '.join(names)}", flush=True)
        if self.n_left_out:
            print(f"{'':26}  left out: {self.n_left_out} test files that need it", flush=True)
        for failed in self.tests.failed if self.tests else ():
            print(f"{'':26}  failed: {failed}", flush=True)

    def _find_first(self) -> str:
        if self.arrows:
            first = next(iter(self.arrows))
            return f"{first.module} names {first.target}"
        if self.broken:
            return "{}: {}".format(*next(iter(self.broken.items())))
        return self.contracts or self.smoke or "tests fail"


def examine(
    features: Collection[str],
    title: str,
    graph: grimp.ImportGraph,
    arrows: Collection[Arrow],
    *,
    only_imports: bool,
    seconds: float,
    parallel: int,
) -> Finding:
    """Delete features, and see what misses them."""
    gone = list(features)
    for feature in features:
        gone += [each for each in find_dependents(feature, arrows) if each not in gone]
    left = [
        each
        for each in arrows
        if find_feature(each.target) in gone and find_feature(each.module) not in gone
    ]
    # its own first, then those of what goes with it
    left.sort(key=lambda each: find_feature(each.target) not in features)
    found = Finding(title, gone[len(features) :], left, count_lines(ROOT, gone))
    if only_imports:
        found.broken = list_broken(graph, ROOT, gone)
        return found
    with tempfile.TemporaryDirectory(prefix="apart-") as name:
        folder = Path(name)
        copy_tree(folder)
        delete(folder, gone)
        done = _run(folder, [sys.executable, "-c", IMPORT_ALL])
        try:
            found.broken = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            found.broken = {"pmflib": _take_last(done.stderr)}
        linted = _run(folder, [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"])
        if linted.returncode:
            found.contracts = "contracts of imports: " + _take_last(linted.stdout + linted.stderr)
        is_all = title == EVERYTHING
        if seconds:
            files = (
                list_core_tests(folder) if is_all else _choose_tests(folder, gone, left, seconds)
            )
            needs = list_needs()
            kept = [each for each in files if not needs.get(each, set()) & {*gone}]
            found.n_left_out = len(files) - len(kept)
            found.tests = run_tests(folder, kept, parallel if is_all else 1)
        if is_all:
            found.smoke = _try(folder, "pmf run", [sys.executable, "-c", SMOKE])
        elif seconds and DEMONSTRATION not in gone:
            found.smoke = _try(folder, "pmf demo", [sys.executable, "-c", DEMO])
    return found


def _try(folder: Path, name: str, command: list[str]) -> str:
    """Run a command in a folder of its own; return why it failed, "" if it did not."""
    (folder / "smoke").mkdir()
    done = _run(folder, command, folder / "smoke")
    return f"{name}: {_take_last(done.stderr + done.stdout)}" if done.returncode else ""


def _run(
    folder: Path, command: list[str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(folder / top) for top in (".", "tasks", "flows"))
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    # copies with the same kernels share their machine code
    environment.setdefault(FOLDER_VARIABLE, str(find_folder() or ""))
    return subprocess.run(
        command, cwd=cwd or folder, env=environment, capture_output=True, text=True
    )


def _take_last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def list_core_tests(folder: Path) -> list[str]:
    """Test files of the rooms of the core, and of the core of the pipeline."""
    paths = sorted((folder / "tests").glob("*/**/test_*.py"))
    named = [path.relative_to(folder) for path in paths]
    return [path.as_posix() for path in named if path.parts[1] not in (*WINGS, *OF_THE_WHOLE)]


def _choose_tests(
    folder: Path, gone: Collection[str], left: Collection[Arrow], seconds: float
) -> list[str]:
    """Test files nearest to what named the features or asks for what they offer, and to the tables of features."""
    imports = Imports(folder)
    changed = {"pmflib/features.py", "pmflib/__init__.py", "pmflib/base/hooks.py"}
    for arrow in left:
        path = imports.paths.get(arrow.module)
        if path is not None:
            changed.add(path.relative_to(folder).as_posix())
    tops = (folder / top for top in ("pmflib", "tasks", "flows"))
    for module in chain.from_iterable(top.rglob("*.py") for top in tops):
        hooks = ASKED_HOOK.findall(module.read_text())
        places = chain.from_iterable(find_offers(hook).places.values() for hook in hooks)
        if any(place.startswith(f"{feature}.") for place in places for feature in gone):
            changed.add(module.relative_to(folder).as_posix())
    return choose(imports, sorted(changed), read_seconds(ROOT), seconds)[0]


def run_tests(folder: Path, files: Collection[str], parallel: int) -> TestCounts:
    """Run test files of a copy."""
    if not files:
        return TestCounts()
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", f"--junitxml={report}", *files]
    if parallel > 1:
        command += ["-n", str(parallel), "--dist", "loadfile"]
    _run(folder, command)
    if not report.exists():
        return TestCounts(n_uncollected=len(files))
    passed, failed, uncollected = 0, list[str](), 0
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if "error" in kinds and not case.get("classname"):
            uncollected += 1
        elif kinds & {"error", "failure"}:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" not in kinds:
            passed += 1
    return TestCounts(passed, failed, uncollected)


@cache
def list_needs() -> dict[str, set[str]]:
    """Features that each test file needs: those that it imports or names, by itself or by other modules of tests."""
    imports = Imports(ROOT)
    found: dict[str, set[str]] = {}
    for name, path in imports.paths.items():
        if not (name.startswith("tests.") and path.name.startswith("test_")):
            continue
        reached = [name]
        for each in reached:
            used = imports.list_used(each)
            reached += [one for one in used if one.startswith("tests.") and one not in reached]
        used = {one for each in reached for one in imports.list_used(each)}
        found[path.relative_to(ROOT).as_posix()] = {find_feature(one) for one in used} - {""}
    return found


def _list_names(title: str) -> list[str]:
    """Names that a feature is called by: with its wing or without, and in full."""
    return [title, title.removeprefix("pmflib."), title.rpartition(".")[2], title.split()[0]]


def main() -> None:
    """Delete each feature in turn and then all; the exit code is 0 only if nothing misses any of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--feature", action="append", help=f"A feature, such as traits; or {EVERYTHING!r}."
    )
    parser.add_argument("--imports", action="store_true", help="Read imports alone.")
    parser.add_argument(
        "--tests", action="store_true", help="List core tests that import features."
    )
    parser.add_argument(
        "--seconds", type=float, default=TEST_SECONDS, help="Of tests by feature; 0 runs no tests."
    )
    parser.add_argument(
        "--parallel", type=int, default=PROCESSES, help="Features at once, and processes of tests."
    )
    given = parser.parse_args()
    if given.tests:
        needs = list_needs()
        users = [each for each in list_core_tests(ROOT) if needs.get(each)]
        for file in users:
            print(file, *(each.removeprefix("pmflib.") for each in sorted(needs[file])))
        sys.exit(bool(users))
    jobs = [([each], each) for each in FEATURES] + [([*FEATURES], EVERYTHING)]
    if given.feature:
        known = {name: job for job in jobs for name in _list_names(job[1])}
        if unknown := sorted({*given.feature} - known.keys()):
            parser.error(f"there is no feature {unknown[0]!r}; there are {', '.join(FEATURES)}")
        jobs = [known[each] for each in given.feature]
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    arrows = list_arrows(graph, ROOT)
    options = {"only_imports": given.imports, "seconds": given.seconds, "parallel": given.parallel}
    print(f"{'feature':26}{'lines':>8}{'arrows':>8}{'broken':>8}{'tests p/f/n':>14}", flush=True)
    are_green = True
    single = [job for job in jobs if job[1] != EVERYTHING]
    with ThreadPoolExecutor(max(1, given.parallel)) as pool:
        findings = [pool.submit(examine, *job, graph, arrows, **options) for job in single]
        # all features at once use the processes by themselves
        rest = (examine(*job, graph, arrows, **options) for job in jobs if job not in single)
        for found in chain((each.result() for each in findings), rest):
            are_green &= found.is_green
            found.show()
    sys.exit(not are_green)


if __name__ == "__main__":
    main()
