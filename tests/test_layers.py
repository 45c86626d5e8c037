"""The layers: that the table for readers is the contract, and that no files import each other in a circle."""

import graphlib
import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]

KNOWING = ("__init__", "__main__", "features")
"""Files of the pipeline that are in neither list of its contract: `features` alone may know all."""


def list_floors():
    """Rooms of each floor, from the ground up, as the contract has them."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    (contract,) = (each for each in tools["importlinter"]["contracts"] if "containers" in each)
    return [set(layer.split(" | ")) for layer in reversed(contract["layers"])]


def test_contributing_shows_the_contract():
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.M
    )
    floors = list_floors()
    assert {(int(floor), room) for floor, room in rows} == {
        (number, room) for number, rooms in enumerate(floors, 1) for room in rooms
    }
    assert [int(floor) for floor, _ in rows] == sorted(
        (int(floor) for floor, _ in rows), reverse=True
    )
    folders = {path.parent.name for path in (ROOT / "pmflib").glob("*/__init__.py")}
    assert set().union(*floors) == folders


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph("pmflib", "pmflib_tasks", "pmflib_flows", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # a CycleError names the circle
    assert len([*graphlib.TopologicalSorter(imports).static_order()]) == len(graph.modules)


def test_contract_of_the_pipeline_names_every_folder():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    contract = next(
        each
        for each in tools["importlinter"]["contracts"]
        if each["name"].startswith("The core of the pipeline")
    )
    features, core = set(contract["forbidden_modules"]), set(contract["source_modules"])
    for folder in (ROOT / "tasks" / "pmflib_tasks", ROOT / "flows" / "pmflib_flows"):
        rooms = {path.parent for path in folder.glob("*/__init__.py")}
        files = {path for path in folder.glob("*.py") if path.stem not in KNOWING}
        names = {f"{folder.name}.{path.stem}" for path in rooms | files}
        own = {each for each in features | core if each.startswith(f"{folder.name}.")}
        assert names == own
        assert {
            f"{folder.name}.{path.parent.name}" for path in folder.glob("*/feature.py")
        } <= features
