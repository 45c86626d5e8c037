"""The tests that are nearest to a change, by the imports of files: what `make check` runs.

A test file's distance from a change is the number of imports between them: 0 is a test file that has changed, 1 one
that imports what has. Names count, not packages: who uses `pmf.fit` imports the module that defines it. Nearest files
come first; among equals those of a folder that is named like the changed one's, then short ones. They are taken as long
as their measured seconds fit; what is left out is named, for `make test` runs it.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_DISTANCE = 3
"""Imports between a test and a change, at most. Farther off are commands and flows, which import nearly everything."""
MAX_SECONDS = 120.0
"""Of tests, one after another: a minute for two processes."""
UNMEASURED_SECONDS = 0.5
"""Of a test function that no run has measured: somewhat above the mean of all."""


class Imports:
    """Which files of a repository use which.

    Parameters
    ----------
    root
        Of the repository. Its pyproject.toml says where code is (files of mypy), and from where it is imported
        (pythonpath of pytest).
    """

    def __init__(self, root: Path) -> None:
        tools = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
        self.root = root
        self._bases = sorted(tools["pytest"]["ini_options"]["pythonpath"], key=len, reverse=True)
        tops = [root / top for top in tools["mypy"]["files"]]
        files = [path for top in tops for path in sorted(top.rglob("*.py"))]
        self.paths = {self.name_module(path.relative_to(root).as_posix()): path for path in files}
        self._codes = {name: Code(path) for name, path in self.paths.items()}
        self._exports = {
            name: {alias: (module, each) for module, each, alias in self._read_face(name).imported}
            for name, path in self.paths.items()
            if path.name == "__init__.py"
        }
        self._users: dict[str, set[str]] = defaultdict(set)
        self._package_users: dict[str, set[str]] = defaultdict(set)
        for name, code in self._codes.items():
            homes, packages = self._find_used(code)
            for used in {*homes, *self._find_fixtures(name, code)} - {name}:
                self._users[used].add(name)
            for package in packages - {name}:
                self._package_users[package].add(name)
        self._add_users_of_hooks()

    def _read_face(self, package: str) -> Code:
        """Read what a package says that it has: its stub, if there is one, for names that are imported when used."""
        stub = self.paths[package].with_suffix(".pyi")
        return Code(stub) if stub.exists() else self._codes[package]

    def name_module(self, path: str) -> str:
        """Name under which a file is imported; of a package, that of its folder."""
        for base in self._bases:
            inside = path if base == "." else path.removeprefix(f"{base}/")
            if base == "." or inside != path:
                break
        return inside.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_modules(self, path: str) -> set[str]:
        """Find what a changed file is, or what uses it: who names it, or its folder, in a text."""
        if path.endswith(".py"):
            return {self.name_module(path)}
        parts = Path(path).parts
        for word in (parts[-1], *reversed(parts[:-1])):
            if users := {name for name, code in self._codes.items() if word in code.texts}:
                return users
        return set()

    def measure_distances(self, changed: Collection[str]) -> dict[str, int]:
        """Imports between each module and the nearest of some, which have 0.

        A package counts where it has changed itself; who imports through it imports what it takes its names from.
        """
        distances = dict.fromkeys(changed, 0)
        reached = list(changed)
        for name in reached:
            users = set(self._users.get(name, ()))
            if name in changed:
                users |= self._package_users.get(name, set())
            for user in sorted(users):
                if user not in distances:
                    distances[user] = distances[name] + 1
                    reached.append(user)
        return distances

    def list_used(self, name: str) -> set[str]:
        """Modules that one uses by itself: it imports them, or names from them."""
        return self._find_used(self._codes[name])[0]

    def holds_tests(self, name: str) -> bool:
        """Whether a module has tests that are run without being asked for by a mark."""
        return bool(self._codes[name].n_tests) and not self._codes[name].is_slow

    def count_tests(self, name: str) -> int:
        """Count the test functions of a module."""
        return self._codes[name].n_tests

    def _add_users_of_hooks(self) -> None:
        """Let the tests of a feature's folder use its hooks: the core loads them by tables, which no import shows."""
        for name in self.paths:
            _, _, feature = name.removesuffix(".hooks").partition(".")
            if name.endswith(".hooks"):
                tests = (test for test in self.paths if test.startswith(f"tests.{feature}."))
                self._users[name].update(tests)

    def _find_home(self, package: str, names: list[str]) -> str:
        """Module that defines what is written ``package.name.name``."""
        while names:
            inside = f"{package}.{names[0]}"
            if inside in self.paths:
                package, names = inside, names[1:]
            elif names[0] in self._exports.get(package, ()):
                module, name = self._exports[package][names[0]]
                package, names = module, [name, *names[1:]]
            else:
                break
        return package

    def _find_used(self, code: Code) -> tuple[set[str], set[str]]:
        """Modules that some code uses, and the packages through which it does."""
        # loaded by its name: an entry of a table, the program of another process
        homes = {name for text in code.texts if (name := text.partition(":")[0]) in self.paths}
        packages, aliases = set(), {}
        for module, name, alias in code.imported:
            home = self._find_home(module, [name] if name else [])
            if home in self._exports:
                aliases[alias] = home
            else:
                homes.add(home)
            if module in self._exports:
                packages.add(module)
        for chain in code.chains:
            if chain[0] in aliases:
                packages.add(aliases[chain[0]])
                homes.add(self._find_home(aliases[chain[0]], list(chain[1:])))
        # what a package is used for otherwise, its list of names perhaps
        return homes - self._exports.keys(), packages | {*aliases.values()}

    def _find_fixtures(self, name: str, code: Code) -> Iterator[str]:
        """Find the modules `conftest` above a module that have a fixture it asks for."""
        parts = name.split(".")
        for end in range(1, len(parts)):
            above = ".".join([*parts[:end], "conftest"])
            if above in self._codes and self._codes[above].functions & (
                code.arguments | code.texts
            ):
                yield above


class Code:
    """What a file says of others.

    Attributes
    ----------
    imported
        Module, name in it (or nothing), and the name under which it is used here.
    chains
        Names with their attributes, ``("pmf", "fit")``.
    texts
        Texts, and the parts of those that are paths.
    """

    def __init__(self, path: Path) -> None:
        self.imported: list[tuple[str, str, str]] = []
        self.chains: set[tuple[str, ...]] = set()
        self.texts: set[str] = set()
        self.functions: set[str] = set()
        self.arguments: set[str] = set()
        self.is_slow = False
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Attribute):
                self.chains.add(_read_chain(node))
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and "\n" not in node.value:
                    self.texts.update([node.value, *node.value.split("/")])
            elif isinstance(node, ast.FunctionDef):
                self.functions.add(node.name)
            elif isinstance(node, ast.arg):
                self.arguments.add(node.arg)
            elif isinstance(node, ast.ImportFrom):
                names = [
                    (node.module or "", each.name, each.asname or each.name) for each in node.names
                ]
                self.imported += names
            elif isinstance(node, ast.Import):
                self.imported += [(each.name, "", each.asname or each.name) for each in node.names]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
                self.is_slow = "mark.slow" in ast.unparse(node.value)
        self.n_tests = sum(name.startswith("test_") for name in self.functions)


def choose(
    imports: Imports,
    changed: Collection[str],
    seconds: Mapping[str, float],
    max_seconds: float = MAX_SECONDS,
) -> tuple[list[str], list[str]]:
    """Choose the test files for a change.

    Parameters
    ----------
    changed
        Paths in the repository, of files that are there or were.
    seconds
        Of test files that were measured, by path.

    Returns
    -------
    Paths of test files, nearest first; and of those that are near enough, but for which there is no time.
    """
    modules = set().union(*map(imports.find_modules, changed))
    folders = {part for name in modules for part in name.split(".")[:-1]}
    found = []
    for name, distance in imports.measure_distances(modules).items():
        path = imports.paths.get(name)
        if path is None or not path.name.startswith("test_") or not imports.holds_tests(name):
            continue
        if distance > MAX_DISTANCE:
            continue
        file = path.relative_to(imports.root).as_posix()
        length = seconds.get(file, UNMEASURED_SECONDS * imports.count_tests(name))
        found.append((distance, path.parent.name not in folders, length, file))
    chosen, left = [], []
    for distance, _, length, file in sorted(found):
        # who changes a test wants to see it
        if distance == 0 or length <= max_seconds:
            chosen.append(file)
            max_seconds -= length
        else:
            left.append(file)
    return chosen, left


def list_changed(root: Path, since: str) -> list[str]:
    """Paths of the files that differ from a revision, those that git does not know yet included."""
    commands = (
        ["git", "diff", "--name-only", "--no-renames", since],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    found = [
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout
        for command in commands
    ]
    return sorted({*"".join(found).splitlines()})


def read_seconds(root: Path) -> dict[str, float]:
    """Seconds of test files, as `tests.conftest` has recorded them in the last runs."""
    file = root / ".pytest_cache" / "v" / "seconds"
    total: dict[str, float] = defaultdict(float)
    for test, length in (json.loads(file.read_text("utf-8")) if file.exists() else {}).items():
        total[test.partition("::")[0]] += length
    return total


def main() -> None:
    """Print the files that a checker gets: types those that changed, tests those that are near."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checker", choices=["types", "tests"])
    parser.add_argument(
        "--since", default="HEAD", help="Revision that the files are compared with."
    )
    words = parser.parse_args()
    imports = Imports(ROOT)
    changed = list_changed(ROOT, words.since)
    there = [path for path in changed if ROOT / path in {*imports.paths.values()}]
    if words.checker == "types":
        print(*there, sep="\n")
        return
    chosen, left = choose(imports, changed, read_seconds(ROOT))
    examples = [
        path for path in there if path not in chosen and ">>> " in (ROOT / path).read_text("utf-8")
    ]
    if left:
        print("no time for", *left, sep="\n  ", file=sys.stderr)
    print(*chosen, *examples, sep="\n")


def _read_chain(node: ast.expr) -> tuple[str, ...]:
    """Names of ``a.b.c``; what is not a name is empty."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else "", *reversed(names))


if __name__ == "__main__":
    main()
