"""Faces of rooms and features: what others use of them, written to each package's ``__init__.pyi``.

`python -m tests.faces` writes the stubs. A name belongs to a face if code or a test of another room or feature imports
it, or if the stub has it already. A module keeps its name: ``pmflib_tasks.stages.ingest`` is the module, whose function
is imported from there.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOPS = {
    "pmflib": "pmflib",
    "pmflib_tasks": "tasks/pmflib_tasks",
    "pmflib_flows": "flows/pmflib_flows",
}
WINGS = ("surveys", "inference", "families", "apps")


def find_room(module: str) -> str:
    """Room of the core, or feature, that a module belongs to; "" for a wing, and for what stands above all rooms."""
    parts = module.split(".")
    depth = 3 if parts[:1] == ["pmflib"] and parts[1:2] and parts[1] in WINGS else 2
    return (
        ".".join(parts[:depth]) if len(parts) >= depth and find_path(parts[:depth]).is_dir() else ""
    )


def find_path(parts: list[str]) -> Path:
    """Path of a module, without its suffix."""
    return ROOT.joinpath(TOPS[parts[0]], *parts[1:])


def list_imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each ``from`` import of the project's packages in a file."""
    # statements alone: imports are not in expressions, which most nodes belong to
    found: list[ast.AST] = [ast.parse(path.read_bytes())]
    for node in found:
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(node, part, ())
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in TOPS:
            yield from ((node.module or "", each.name) for each in node.names)


def list_users() -> Iterator[tuple[Path, str]]:
    """Yield each file of the packages, benchmarks and tests, and the room that it belongs to."""
    for top, folder in TOPS.items():
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "__init__.py":
                inside = path.relative_to(ROOT / folder).with_suffix("").parts
                yield path, find_room(".".join((top, *inside)))
    yield from ((path, "") for path in (ROOT / "benchmarks").rglob("*.py"))
    for path in (ROOT / "tests").rglob("*.py"):
        inside = path.relative_to(ROOT / "tests").parent.parts
        rooms = [find_room(".".join((top, *inside))) for top in TOPS if inside]
        yield path, next(filter(None, rooms), "tests")


def find_used() -> dict[str, dict[str, str]]:
    """Return the module of each name that other rooms use, by room."""
    used: dict[str, dict[str, str]] = defaultdict(dict)
    for path, own in list_users():
        for module, name in list_imports(path):
            room = find_room(module)
            is_other = room and room.rpartition(".")[2] != own.rpartition(".")[2]
            if is_other and module != room and is_free(room, name, module):
                used[room][name] = module
    return used


def is_free(room: str, name: str, module: str) -> bool:
    """Whether a name may be one of a face: it is public, and neither it nor its source is a module of that name."""
    taken = find_path([*room.split("."), name])
    source = find_path([*module.split("."), name])
    paths = (taken, taken.with_suffix(".py"), source, source.with_suffix(".py"))
    return not name.startswith("_") and not any(path.exists() for path in paths)


def read_faces() -> dict[str, dict[str, str]]:
    """Return the module of each name, by package that has a stub."""
    found = {}
    for top, folder in TOPS.items():
        for stub in sorted((ROOT / folder).rglob("__init__.pyi")):
            package = ".".join((top, *stub.relative_to(ROOT / folder).parent.parts))
            found[package] = {name: module for module, name in list_imports(stub)}
    return found


def write_face(room: str, homes: dict[str, str]) -> None:
    """Write the stub of a room."""
    package = find_path(room.split(".")) / "__init__.py"
    tree = ast.parse(package.read_bytes())
    docstring = ast.get_docstring(tree)
    assert docstring, room
    lines = [f"from {module} import {name} as {name}\n" for name, module in homes.items()]
    text = f'"""{docstring.splitlines()[0]}"""\n\n{"".join(sorted(lines))}'
    if any(ast.unparse(node).startswith("__all__ = ") for node in tree.body):
        text += "\n__all__: list[str]\n"
    package.with_suffix(".pyi").write_text(text, "utf-8")


def main() -> None:
    """Write the faces: what is there and still defined, and what others use."""
    used, faces = find_used(), read_faces()
    for room in sorted({*used, *faces}):
        homes = {**used.get(room, {})}
        for name, module in faces.get(room, {}).items():
            if name not in homes and hasattr(importlib.import_module(module), name):
                homes[name] = module
        write_face(room, homes)
    stubs = [
        str(path) for folder in TOPS.values() for path in (ROOT / folder).rglob("__init__.pyi")
    ]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--fix", *stubs], check=True)
    subprocess.run([*ruff, "format", "--quiet", *stubs], check=True)


if __name__ == "__main__":
    main()
