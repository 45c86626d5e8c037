"""Five hundred damaged inputs: an exit code that is documented and not 1, in good time, nothing lost, the model kept.

Inputs are drawn from seeds, so that every run sees the same. Each is given to the command line in this process, which
shares one Prefect server and one Dask worker among all.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pmflib as pmf
from pmflib.cluster import start_workers
from pmflib.store import Store, find_live
from pmflib_tasks.config import ClusterConfig, load_config
from tests.factories import call_command
from tests.fuzz.mutations import mutate_bytes, mutate_json, mutate_rows, mutate_toml
from tests.fuzz.parquet_files import write_odd_parquet

pytestmark = [
    pytest.mark.slow,
    # what commands warn of is shown as a person sees it
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(400),
]

CODES = {0, 2, 3, 4, 5, 6}
"""Exit codes of a command that nobody interrupts."""
LONGEST = 60.0
"""Time that one input may take, seconds."""

CONFIG = """
[source]
path = "data.csv"
layout = "wide"
[store]
folds = 4
[model]
rank = 2
method = "random"
[em]
max_passes = 2
pseudo_count = 1.0
"""


@pytest.fixture(scope="module")
def services() -> Iterator[None]:
    """Serve all runs with one worker."""
    with (
        pytest.MonkeyPatch.context() as patch,
        start_workers(ClusterConfig(workers=1)) as address,
    ):
        patch.setenv("PMF_DASK_ADDRESS", address)
        yield


def draw_text(n_rows: int = 120) -> str:
    rng = random.Random(1)
    rows = ["a,b,c"]
    for _ in range(n_rows):
        state = rng.random() < 0.5
        rows.append(",".join(rng.choice("xy" if state else "yz") for _ in range(3)))
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def project(services: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a pipeline that has a live model."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "data.csv").write_text(draw_text())
    (folder / "pipeline.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call_command(patch, "infer", "data.csv", "--output", "drafted") == 0
        shutil.copy(folder / "drafted" / "schema.json", folder / "schema.json")
        assert call_command(patch, "run", "pipeline.toml", "--json") == 0
    return folder


@pytest.fixture
def copy(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(project, folder)
    monkeypatch.chdir(folder)
    return folder


class Checker:
    """What must hold of every command on every input."""

    def __init__(self, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capsys = patch, capsys
        self.wrong: list[str] = []
        self.codes: dict[int, int] = {}

    def check(self, what: object, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        start = time.monotonic()
        code = call_command(self._patch, *words)
        seconds = time.monotonic() - start
        out, err = self._capsys.readouterr()
        self.codes[code] = self.codes.get(code, 0) + 1
        if code not in CODES or seconds > LONGEST or "Traceback" in err + out:
            self.wrong.append(f"{what} {words[0]}: {code} in {seconds:.0f} s: {err.strip()[:600]}")
        if "--json" not in words and not all(c.isprintable() or c == "\n" for c in err + out):
            self.wrong.append(f"{what} {words[0]}: raw text: {err + out!r}")
        return code, out

    def check_run(self, what: object, folder: Path) -> None:
        """Run the pipeline; rows must balance, and the live model stay unless the run succeeded."""
        before = _find_live(folder)
        code, out = self.check(what, "run", "pipeline.toml", "--json")
        if code:
            if before is not None and _find_live(folder) != before:
                self.wrong.append(f"{what}: exit {code}, and another model is live")
            return
        rows = json.loads(out)["rows"]
        parts = sum(rows[key] for key in rows if key.startswith("rows_") and key != "rows_in")
        if rows["rows_in"] != parts:
            self.wrong.append(f"{what}: rows do not balance: {rows}")

    def finish(self, n: int) -> None:
        assert not self.wrong, f"{len(self.wrong)} wrong\n" + "\n".join(self.wrong)
        assert sum(self.codes.values()) >= n


@pytest.fixture
def checker(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Checker:
    return Checker(monkeypatch, capsys)


def _find_live(folder: Path) -> Any:
    try:
        config = load_config(folder / "pipeline.toml")
        return find_live(Store(config.resolve(config.store.path)), config.name)
    except pmf.PmfError:
        return None


def test_configurations(copy: Path, checker: Checker) -> None:
    n = 120
    store = copy / "store"
    for seed in range(n):
        rng = random.Random(seed)
        (copy / "pipeline.toml").write_bytes(mutate_toml(CONFIG, rng))
        code, _ = checker.check(f"configuration {seed}", "status", "pipeline.toml")
        if code == 0:
            live = find_live(Store(store), "pipeline")
            checker.check_run(f"configuration {seed}", copy)
            assert live is None or find_live(Store(store), "pipeline") is not None
    checker.finish(n)


def test_schemas(copy: Path, checker: Checker) -> None:
    n = 90
    text = (copy / "schema.json").read_text()
    for seed in range(n):
        rng = random.Random(seed)
        content = mutate_bytes(text.encode(), rng)
        if rng.random() < 0.75:
            content = json.dumps(mutate_json(json.loads(text), rng)).encode()
        (copy / "schema.json").write_bytes(content)
        checker.check_run(f"schema {seed}", copy)
    checker.finish(n)


def test_csv_files(copy: Path, checker: Checker) -> None:
    n = 100
    for seed in range(n):
        rng = random.Random(seed)
        content = mutate_rows(draw_text(), rng)
        if rng.random() < 0.1:
            (copy / "data.csv").write_bytes(mutate_bytes(gzip.compress(content, mtime=0), rng))
        else:
            (copy / "data.csv").write_bytes(content)
        if seed % 2:
            checker.check_run(f"CSV {seed}", copy)
        else:
            shutil.rmtree(copy / "drafted", ignore_errors=True)
            checker.check(f"CSV {seed}", "infer", "data.csv", "--output", "drafted")
    checker.finish(n)


def test_parquet_files(copy: Path, checker: Checker) -> None:
    n = 80
    (copy / "pipeline.toml").write_text(CONFIG.replace("data.csv", "data.parquet"))
    for seed in range(n):
        rng = random.Random(seed)
        try:
            write_odd_parquet(copy / "data.parquet", rng)
        except (pa.ArrowException, OverflowError):
            continue
        if rng.random() < 0.3:
            content = (copy / "data.parquet").read_bytes()
            (copy / "data.parquet").write_bytes(mutate_bytes(content, rng))
        if seed % 2:
            checker.check_run(f"Parquet {seed}", copy)
        else:
            shutil.rmtree(copy / "drafted", ignore_errors=True)
            checker.check(f"Parquet {seed}", "infer", "data.parquet", "--output", "drafted")
    checker.finish(n - 10)


SCHEMES = (
    "ftp", "github", "reference", "tar", "zip", "http", "https", "memory", "file", "local", "data", "dir", "s3", "gs",
    "simplecache", "filecache", "blockcache", "dask", "git", "sftp", "hdfs", "webhdfs", "nosuch", "libarchive", "",
)  # fmt: skip
TARGETS = (
    "",
    "a.csv",
    "127.0.0.1:1/a",
    "me:secret@127.0.0.1:1/a",
    "*",
    "[",
    "/",
    "..",
    "a\x1bb",
    "?sig=secret",
    "a b",
)


def test_addresses(copy: Path, checker: Checker, capsys: pytest.CaptureFixture[str]) -> None:
    n = 60
    for seed in range(n):
        rng = random.Random(seed)
        url = "::".join(
            f"{rng.choice(SCHEMES)}{rng.choice(('://', '://', '://', ':', ''))}{rng.choice(TARGETS)}"
            for _ in range(rng.choice((1, 1, 1, 2)))
        )
        shutil.rmtree(copy / "drafted", ignore_errors=True)
        checker.check(f"address {url!r}", "infer", "--output", "drafted", "--", url)
    checker.finish(n)


def test_stores(project: Path, copy: Path, checker: Checker) -> None:
    """Whatever happens to a file of the store, a run puts it right or says what to do."""
    n = 60
    files = sorted(
        path.relative_to(project / "store")
        for path in (project / "store").rglob("*")
        if path.is_file()
    )
    for seed in range(n):
        rng = random.Random(seed)
        shutil.rmtree(copy / "store")
        shutil.copytree(project / "store", copy / "store")
        name = rng.choice(files)
        target = copy / "store" / name
        kind = rng.randrange(5)
        if kind == 0:
            target.unlink()
        elif kind == 1 and name.suffix == ".json":
            target.write_text(json.dumps(mutate_json(json.loads(target.read_text()), rng)))
        elif kind == 2:
            target.unlink()
            os.symlink(rng.choice(("nowhere", target.name, "/etc/hostname")), target)
        elif kind == 3:
            target.unlink()
            target.mkdir()
        else:
            target.write_bytes(mutate_bytes(target.read_bytes(), rng))
        verb = rng.choice(
            (
                ("verify", "pipeline.toml"),
                ("status", "pipeline.toml"),
                ("log", "pipeline.toml"),
                ("query", "pipeline.toml", "a given b=x"),
            )
        )
        checker.check(f"store {seed} {name} {kind}", *verb)
        if seed % 2:
            checker.check_run(f"store {seed} {name} {kind}", copy)
    checker.finish(n)
