"""Erasure from larger logs, and erasures that are killed."""

import gzip
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pmflib as pmf
from pmflib.store import Store, read_erasures
from pmflib_tasks.config import make_config
from pmflib_tasks.erasure.erase import erase
from tests.erasure.stored_texts import find_texts
from tests.erasure.test_erasing import Pipeline, equal_counts, no_workers  # noqa: F401
from tests.pipelines import read_dataset

DATA = Path(__file__).parents[3] / "shared" / "data" / "ml-100k" / "u.data.gz"
FILES = 5


def configure(folder):
    source = {
        "path": "data",
        "layout": "long",
        "sample": "user",
        "variable": "movie",
        "value": "rating",
    }
    options = {"store": {"folds": 2}, "model": {"rank": 2}, "evaluate": {"test_folds": 0}}
    return make_config({"source": source, **options}, base=folder)


class Log(Pipeline):
    """Nights of a rating log."""

    def __init__(self, folder, schema):
        (folder / "data").mkdir(parents=True)
        self.folder, self.data = folder, folder / "data"
        schema.save(folder / "schema.json")
        self.config = configure(folder)
        self.store = Store(folder / "store")

    def deliver(self, rows, night):
        """Write a file of rows of user, movie, rating; some are spoilt, and some are there twice."""
        lines = ["user,movie,rating"]
        for index, (user, movie, rating) in enumerate(rows):
            lines.append(f"{user},{movie},{rating}")
            if index % 97 == 0:
                lines += [f"{user},{movie},{rating}"] * 2 + [
                    f"{user},{movie},11",
                    f"{user},{movie}",
                ]
        (self.data / f"{night}.csv").write_text("\n".join(lines) + "\n")


def read_movielens():
    rows = [line.split("\t")[:3] for line in gzip.open(DATA, "rt").read().splitlines()]
    return [(f"person-{int(user):05}-x", f"m{movie}", rating) for user, movie, rating in rows]


def draw_log():
    rng = np.random.default_rng(2)
    users, movies = rng.integers(0, 5000, 60_000), rng.integers(0, 40, 60_000)
    ratings = rng.integers(1, 6, 60_000)
    return [
        (f"person-{u:05}-x", f"m{m}", str(r))
        for u, m, r in zip(users.tolist(), movies.tolist(), ratings.tolist(), strict=True)
    ]


def make_schema(rows):
    # rarer ones are not in the schema: their rows are rejected
    names = sorted(name for name, n in Counter(movie for _, movie, _ in rows).items() if n >= 80)
    return pmf.Schema(tuple(pmf.Variable(name, tuple("12345")) for name in names))


def build(folder, rows, schema, gone=frozenset(), nights=FILES):
    """A log that came in several nights, without the rows of some."""
    log = Log(folder, schema)
    for night, part in enumerate(np.array_split(np.arange(len(rows)), FILES)[:nights]):
        mine = [rows[index] for index in part.tolist()]
        log.deliver(mine, night)
        path = log.data / f"{night}.csv"
        kept = [x for x in path.read_text().splitlines() if x.split(",")[0] not in gone]
        path.write_text("\n".join(kept) + "\n")
        log.run()
    return log


def check(log, fresh, gone):
    assert not find_texts(log.store.root, sorted(gone))
    dataset, counts = log.last()
    other, other_counts = fresh.last()
    assert equal_counts((log, counts), (fresh, other_counts))
    mine, theirs = (
        read_dataset(pipeline.config, each.reference)
        for pipeline, each in ((log, dataset), (fresh, other))
    )
    for order in (mine, theirs):
        assert len({*order[1]}) == len(order[1])
    orders = [np.argsort(names) for _, names in (mine, theirs)]
    assert sorted(mine[1]) == sorted(theirs[1])
    assert (mine[0][orders[0]] == theirs[0][orders[1]]).all()
    for key in ("samples", "observed", "rows_encoded", "rows_quarantined", "reasons"):
        assert dataset.summary[key] == other.summary[key]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "n_gone"),
    [
        pytest.param(
            read_movielens, 500, marks=pytest.mark.skipif(not DATA.exists(), reason="no MovieLens")
        ),
        (draw_log, 1000),
    ],
)
def test_erase_samples__many_of_a_log(tmp_path, read, n_gone):
    rows = read()
    schema = make_schema(rows)
    users = sorted({user for user, _, _ in rows})
    gone = {*np.random.default_rng(1).choice(users, n_gone, replace=False).tolist()}
    log = build(tmp_path / "all", rows, schema, nights=FILES - 1)
    certificate = erase(log.config, sorted(gone))
    assert certificate.samples_found == len(
        gone & {user for user, _, _ in rows[: len(rows) * (FILES - 1) // FILES]}
    )
    fresh = build(tmp_path / "fresh", rows, schema, gone, nights=FILES - 1)
    check(log, fresh, gone)
    log.verify()
    # the next night: a file that has some of them
    log.deliver([rows[p] for p in np.array_split(np.arange(len(rows)), FILES)[-1]], FILES - 1)
    text = (log.data / f"{FILES - 1}.csv").read_text().splitlines()
    (fresh.data / f"{FILES - 1}.csv").write_text(
        "\n".join(x for x in text if x.split(",")[0] not in gone) + "\n"
    )
    spills = {e.reference for e in log.store.entries() if e.reference.kind == "spill"}
    log.run()
    fresh.run()
    check(log, fresh, gone)
    new = {e.reference for e in log.store.entries() if e.reference.kind == "spill"} - spills
    assert len(new) == 1


KILLER = """
import os, signal, sys
from pmflib_tasks.erasure import removal
from pathlib import Path
from pmflib.store import artefacts
from pmflib_tasks.erasure.erase import erase
from tests.erasure.test_real_logs import configure
calls = 0
def count(function):
    def run(*args, **options):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return run
# before every file is replaced, every folder published, every folder deleted
artefacts.os.replace = count(os.replace)
artefacts.os.rename = count(os.rename)
artefacts.os.link = count(os.link)
import pathlib
pathlib.Path.unlink = count(pathlib.Path.unlink)
import shutil
shutil.rmtree = count(shutil.rmtree)
erase(configure(Path(sys.argv[1])), sys.argv[3:])
print("calls", calls)
"""


def run_killed(folder, when, gone):
    return subprocess.run(
        [sys.executable, "-c", KILLER, str(folder), str(when), *gone],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pmflib.base.errors.StoreWarning")
def test_erase_samples__killed_anywhere_goes_on(tmp_path):
    import shutil

    rows = draw_log()[:4000]
    schema = make_schema(rows)
    gone = sorted({user for user, _, _ in rows[:2000]})[::400]
    log = build(tmp_path / "all", rows, schema, nights=3)
    fresh = build(tmp_path / "fresh", rows, schema, {*gone}, nights=3)
    kept = tmp_path / "kept"
    shutil.copytree(log.store.root, kept)
    done = run_killed(log.folder, 0, gone)
    assert done.returncode == 0, done.stderr
    n_calls = int(done.stdout.split()[-1])
    for when in np.unique(np.linspace(1, n_calls, 12).astype(int)).tolist():
        shutil.rmtree(log.store.root)
        shutil.copytree(kept, log.store.root)
        killed = run_killed(log.folder, when, gone)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        erase(log.config, gone)
        erasures = read_erasures(log.store)
        assert not erasures.unfinished
        # one that was killed in its last line was done
        assert {*erasures.erasures[0].found} == {*erasures.samples}, when
        check(log, fresh, {*gone})
        log.verify()
