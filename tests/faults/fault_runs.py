"""Pipelines to disturb, the processes that run them, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import pmflib as pmf
from pmflib.apps.demo import write_rating_log, write_survey
from pmflib.base import StoreWarning, from_json
from pmflib.model import planted_factors
from pmflib.store import LEASE_SECONDS, Reference, Store, digest_tree, find_last_run, load_arrays
from pmflib_tasks.config import load_config
from pmflib_tasks.stages.count import count
from pmflib_tasks.stages.evaluate import evaluate
from pmflib_tasks.stages.fit import fit
from pmflib_tasks.stages.ingest import ingest
from pmflib_tasks.stages.refine import refine
from tests.faults.nursery import LONGEST

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 250
STAGES = ("dataset", "counts", "start", "model", "scores")
MAX_PASSES = 40

LONG = """
layout = "long"
sample = "user"
variable = "movie"
value = "rating"
time = "ts"
"""


def write_log(folder: Path, *, n_users: int, per_user: float, n_movies: int) -> None:
    """Write a dirty rating log in eight files, and its schema."""
    rng = np.random.default_rng(7)
    prior, factors = planted_factors([5] * n_movies, 6, rng, concentration=0.7)
    offsets = np.arange(n_movies + 1) * 5
    written = write_rating_log(
        folder / "log",
        prior,
        factors,
        offsets,
        n_samples=n_users,
        ratings_per_sample=per_user,
        rng=rng,
        n_files=8,
        dirt=0.02,
    )
    values = tuple(float(level) for level in written.levels)
    variables = tuple(pmf.Variable(name, written.levels, values) for name in written.variables)
    pmf.Schema(variables).save(folder / "schema.json")


def write_wide(folder: Path, *, n_people: int, n_questions: int) -> None:
    """Write a dirty survey, and its schema."""
    rng = np.random.default_rng(8)
    prior, factors = planted_factors([4] * n_questions, 5, rng, concentration=0.7)
    offsets = np.arange(n_questions + 1) * 4
    folder.mkdir(exist_ok=True)
    written = write_survey(
        folder / "survey.csv",
        prior,
        factors,
        offsets,
        n_samples=n_people,
        observed=0.8,
        rng=rng,
        dirt=0.02,
    )
    pmf.Schema(tuple(pmf.Variable(name, written.levels) for name in written.variables)).save(
        folder / "schema.json"
    )


def write_config(
    folder: Path,
    data: Path,
    *,
    cluster: str = "",
    store: Path | None = None,
    method: str = "random",
    passes: int = MAX_PASSES,
) -> Path:
    """Write a pipeline of the data in one folder into another, with a store of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    long = (data / "log").exists()
    text = f"""
[source]
path = "{data / ("log/*.csv" if long else "survey.csv")}"
{LONG if long else 'layout = "wide"'}
[schema]
file = "{data / "schema.json"}"
[store]
path = "{store or folder / "store"}"
buckets = 32
[model]
rank = 6
method = "{method}"
[em]
max_passes = {passes}
pseudo_count = 1.0
tol = 0.0
patience = {passes}
[cluster]
{cluster}
"""
    (folder / "pipeline.toml").write_text(text)
    return folder / "pipeline.toml"


def run_stages(path: Path, address: str) -> dict[str, str]:
    """Run all stages in this process, without Prefect; digest of each stage."""
    config = load_config(path)
    dataset = ingest.fn(config, address)
    counts = count.fn(config, dataset, address)
    start = fit.fn(config, counts)
    model = refine.fn(config, dataset, counts, start, address)
    scores = evaluate.fn(config, dataset, counts, model, address)
    made = (dataset, counts, start, model, scores)
    return {stage: reference.digest for stage, reference in zip(STAGES, made, strict=True)}


def read_digests(path: Path) -> dict[str, str]:
    """Digest of each stage of the last run that finished."""
    config = load_config(path)
    last = find_last_run(Store(config.resolve(config.store.path)), config.name)
    assert last is not None
    return {stage: last.stages[stage].digest for stage in STAGES}


def start_pmf(
    config: Path,
    *,
    words: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    kept_states: Path | None = None,
    **options: Any,
) -> subprocess.Popen[str]:
    """Start ``pmf run``, or other words, in a session of its own, away from the Prefect settings of whoever runs the
    tests; states of passes are kept in a new folder where one is named.
    """
    program = ["tests.faults.kept_states", str(kept_states)] if kept_states else ["pmflib_flows"]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT", "PMF_"))}
    return subprocess.Popen(
        [sys.executable, "-m", *program, *(words or ("run", str(config))), "--json"],
        cwd=config.parent,
        env=kept | {"PYTHONPATH": str(ROOT), "HOME": str(config.parent)} | dict(environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


@contextmanager
def running_pmf(config: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """As `start_pmf`; whatever is left of it ends with the context."""
    process = start_pmf(config, **options)
    tree = [psutil.Process(process.pid)]
    try:
        yield process
    finally:
        if process.poll() is None:
            tree += tree[0].children(recursive=True)
        for each in reversed(tree):
            if each.is_running():
                each.kill()
        process.communicate()


class Nursery:
    """Runs the command line in children of a process that has imported it, with faults: see `tests.faults.nursery`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, folder: Path, kind: str = "", n: int = 0, longest: float = LONGEST, **variables: str
    ) -> dict[str, Any]:
        """Run the pipeline in a folder, with a fault and variables, for so many seconds at most; how it ended."""
        words = ["run", "pipeline.toml", "--json"]
        job = {"folder": str(folder), "kind": kind, "n": n, "words": words, "variables": variables}
        job["longest"] = longest
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert not answer["hangs"], answer["err"]
        return answer


@contextmanager
def open_nursery(home: Path, **variables: str) -> Iterator[Nursery]:
    """Run a nursery, with variables of the environment."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.nursery"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Nursery(process)
        process.communicate(timeout=60)
    finally:
        process.kill()


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a run that must succeed; what it said."""
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, err
    return out, err


def wait_until(condition: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """Wait until a condition holds, while a process runs; give what it gave."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert process is None or process.poll() is None, "the run ended before the moment came"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.002)
    return found


def is_gone(process: psutil.Process) -> bool:
    """Whether a process has ended, be it waited for or not."""
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    """Stop a process, so that what is seen of it stays true until it is killed."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        if not is_gone(process):
            process.send_signal(signal.SIGCONT)


def list_kinds(store: Path) -> dict[str, dict[str, int]]:
    """Manifest entries by kind: file number by identity, another one for an entry that is written again."""
    kinds: dict[str, dict[str, int]] = {}
    for path in (store / "manifest").glob("*.json"):
        kind = json.loads(path.read_text())["reference"]["kind"]
        kinds.setdefault(kind, {})[path.stem] = path.stat().st_ino
    return kinds


def list_fold_files(store: Path) -> dict[str, int]:
    """Checkpoints of counting: time of writing by name."""
    found = {}
    for path in _list_work(store):
        if path.match("fold-*.npz"):
            try:
                found[path.name] = path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
    return found


def count_passes(store: Path) -> int:
    """EM passes in the checkpoint of a run under way; 0 without one."""
    for path in _list_work(store):
        if path.match("state-*.npz") and (state := load_arrays(path)) is not None:
            return len(state["loss_history"])
    return 0


def _list_work(store: Path) -> list[Path]:
    # unlike a glob, a walk passes over folders that vanish before it
    return [Path(folder) / name for folder, _, names in os.walk(store / "work") for name in names]


@contextmanager
def watching(look: Callable[[], Any]) -> Iterator[list[Any]]:
    """Collect what a function sees, other than nothing, until the context ends."""
    seen: list[Any] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if found := look():
                seen.append(found)
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def check_store(store: Path) -> None:
    """Check that nothing is left over, and that every artefact holds what its entry says.

    Leases of killed processes are made old first: where a process id means nothing, nobody knows that they have ended.
    """
    for path in (store / "leases").iterdir():
        then = path.stat().st_mtime - LEASE_SECONDS
        os.utime(path, (then, then))
    with warnings.catch_warnings():
        # it names the work that was killed
        warnings.simplefilter("ignore", StoreWarning)
        Store(store).drop_leftovers()
    assert list((store / "leases").iterdir()) == []
    assert list((store / "tmp").iterdir()) == []
    assert list((store / "work").iterdir()) == []
    check_artefacts(store)


def check_artefacts(store: Path) -> None:
    """Check that every artefact is there, whole, and in the manifest once."""
    assert list((store / "manifest").glob(".*")) == []
    paths = set()
    for path in (store / "manifest").glob("*.json"):
        reference = json.loads(path.read_text())["reference"]
        if listed := from_json(Reference, reference).path:
            assert digest_tree(store / listed) == reference["digest"]
            paths.add(listed)
    kinds = {listed.split("/")[0] for listed in paths}
    assert paths == {str(path.relative_to(store)) for k in kinds for path in (store / k).iterdir()}
