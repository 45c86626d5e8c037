"""One fault at many moments of a first and of a second night: the same command then ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from pmflib.store import Store, find_live, list_records
from pmflib_tasks.config import load_config
from tests.faults.fault_matrix import note_fault
from tests.faults.fault_runs import (
    Nursery,
    check_store,
    open_nursery,
    read_digests,
    write_config,
    write_log,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

Night = Literal["first", "second"]

TIMES: dict[tuple[str, Night], int] = {
    ("kill", "first"): 9,
    ("kill", "second"): 6,
    ("terminate", "first"): 2,
    ("interrupt", "second"): 2,
    ("disk full", "first"): 4,
    ("disk full", "second"): 3,
    ("no permission", "first"): 3,
    ("input/output", "first"): 3,
    ("input/output", "second"): 3,
}
"""How often each fault is tried in each night, at moments that are spread evenly over its writes."""
FAULTS = [
    (kind, night, (i + 0.5) / times) for (kind, night), times in TIMES.items() for i in range(times)
]
"""What happens, in which night, and when: as a share of all writes of that night."""

CODES = {
    "kill": {-9},
    "terminate": {143},
    "interrupt": {130},
    "disk full": {4},
    # a retry may help against what happens once
    "no permission": {0, 4},
    "input/output": {0, 4},
}
"""Exit codes that a fault may lead to."""


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with open_nursery(tmp_path_factory.mktemp("home")) as nursery:
        yield nursery


class Undisturbed:
    """Two nights where nothing went wrong: after each, a copy of the folder, its digests and its number of writes."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self.folders: dict[Night, Path] = {"first": folder / "empty", "second": folder / "one"}
        self.digests: dict[Night, dict[str, str]] = {}
        self.live: dict[Night, str] = {}
        self.n_writes: dict[Night, int] = {}
        work = folder / "work"
        write_log(work, n_users=150, per_user=5, n_movies=8)
        parts = sorted((work / "log").iterdir())
        (folder / "late").mkdir()
        for part in parts[3:4]:
            part.rename(folder / "late" / part.name)
        for part in parts[4:]:
            part.unlink()
        write_config(work, work, cluster="workers = 1", passes=3)
        text = (work / "pipeline.toml").read_text().replace(str(work) + "/", "")
        (work / "pipeline.toml").write_text(text.replace("buckets = 32", "buckets = 4\nfolds = 4"))
        for night, late in (("first", None), ("second", folder / "late")):
            if late is not None:
                shutil.copytree(late, work / "log", dirs_exist_ok=True)
            shutil.copytree(work, self.folders[night])  # type: ignore[index]
            answer = nursery.run(work)
            assert answer["code"] == 0, answer["err"]
            self.n_writes[night] = int(answer["report"])  # type: ignore[index]
            self.digests[night] = read_digests(work / "pipeline.toml")  # type: ignore[index]
            self.live[night] = find_live_digest(work)  # type: ignore[index]


def find_live_digest(folder: Path) -> str:
    config = load_config(folder / "pipeline.toml")
    live = find_live(Store(config.resolve(config.store.path)), config.name)
    return "" if live is None else live.digest


@pytest.fixture(scope="module")
def nights(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(nursery, tmp_path_factory.mktemp("nights"))


@pytest.mark.parametrize(("kind", "night", "share"), FAULTS, ids=lambda value: str(value)[:5])
def test_run__fault(
    kind: str, night: Night, share: float, nursery: Nursery, nights: Undisturbed, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(nights.folders[night], folder)
    before = find_live_digest(folder)
    answer = nursery.run(folder, kind, 1 + int(share * nights.n_writes[night]))
    parts = answer["report"].split("/")
    assert parts[0], "the fault did not happen"
    assert answer["code"] in CODES[kind], answer["err"]
    # whatever is live was live before, or is what the night makes
    assert find_live_digest(folder) in (before, nights.live[night])
    again = nursery.run(folder)
    assert again["code"] == 0, again["err"]
    assert "Traceback" not in answer["err"] + again["err"]
    assert read_digests(folder / "pipeline.toml") == nights.digests[night]
    assert find_live_digest(folder) == nights.live[night]
    rows = json.loads(again["out"])["rows"]
    assert rows["rows_in"] == rows["rows_encoded"] + rows["rows_quarantined"]
    check_store(folder / "store")
    being_written = parts[1].split("-")[0] if parts[0] == "tmp" and len(parts) > 1 else parts[0]
    note_fault(kind, night, being_written, answer["code"])


def test_run__clock_set_back_between_nights(
    nursery: Nursery, nights: Undisturbed, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(nights.folders["second"], folder)
    for path in folder.rglob("*"):
        later = path.stat().st_mtime + 86_400
        os.utime(path, (later, later))
    answer = nursery.run(folder)
    assert answer["code"] == 0, answer["err"]
    assert read_digests(folder / "pipeline.toml") == nights.digests["second"]
    check_store(folder / "store")
    config = load_config(folder / "pipeline.toml")
    numbers = [record.number for record in list_records(Store(folder / "store"), config.name)]
    assert numbers == [1, 2]
    note_fault("clock set back a day", "second", "all", 0)
