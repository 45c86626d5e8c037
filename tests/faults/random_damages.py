"""Random damages to every kind of file of a store: each that changes an answer or a later run is named by `pmf verify`.

    python -m tests.faults.random_damages --damages 200

makes two stores, one of ratings whose third night was interrupted while its model was published, with checkpoints, and
one of labels; damages one file or folder at a time, of each kind in turn; and asks `pmf verify`. Where that names
nothing, a question is asked and the next run is made, and both are compared with those of the store as it was. Prints a
table by kind of file. Fails if a damage that changes either is not named.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.store import Store, list_histories, list_records
from tests.factories import write_label_log
from tests.pipelines import draw_codes, make_schema

FILMS = (5, 5, 5, 5, 5, 5)
SETTINGS = """
[store]
folds = 4
[model]
rank = 2
[em]
max_passes = 4
[cluster]
workers = 1
"""
RATINGS = """name = "nights"
[source]
path = "data"
layout = "long"
sample = "person"
variable = "film"
value = "stars"
time = "time"
# what people answer in one night says nothing of their answers in another
[quality.sample_agreement]
warn = "off"
stop = "off"
"""
LABELS = """name = "labels"
[source]
path = "data"
layout = "long"
sample = "task"
variable = "worker"
value = "label"
"""


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own: what is kept in memory of one store is not another's."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def call() -> None:
        there.send(function(*arguments))

    child = context.Process(target=call)
    child.start()
    there.close()
    try:
        return here.recv()
    except BaseException:
        child.kill()
        raise
    finally:
        child.join()


def call(*words: object) -> tuple[int, str]:
    """Exit code of a command, and what it prints."""
    from pmflib_flows.cli import main

    said = io.StringIO()
    sys.argv = ["pmf", *map(str, words)]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


@dataclass
class Home:
    """A pipeline whose store is damaged.

    Parameters
    ----------
    folder
        Holds configuration, ``data`` and ``store``.
    command
        What makes the next run: "run" or "crowd".
    """

    folder: Path
    command: str

    @property
    def config(self) -> Path:
        """Configuration file."""
        return self.folder / "pipeline.toml"

    @property
    def store(self) -> Path:
        """The store that is damaged."""
        return self.folder / "store"

    @property
    def kept(self) -> Path:
        """The store as it was."""
        return self.folder / "kept"

    def restore(self, inner: Path = Path()) -> None:
        """Put the store, or one file or folder of it, back to what it was."""
        damaged, whole = self.store / inner, self.kept / inner
        if damaged.is_dir() and not damaged.is_symlink():
            shutil.rmtree(damaged)
        else:
            damaged.unlink(missing_ok=True)
        if whole.is_dir():
            shutil.copytree(whole, damaged, symlinks=True)
        else:
            shutil.copy2(whole, damaged)

    def verify(self) -> tuple[int, str]:
        """What `pmf verify` says."""
        code, said = in_child(call, "verify", self.config)
        return code, said

    def follow(self) -> str:
        """What a question is answered, and what the next run comes to."""
        found: str = in_child(self._follow)
        return found

    def _follow(self) -> str:
        if self.command == "crowd":
            code, _ = call("crowd", "--output", self.folder, "--json")
            return json.dumps([code, self._describe()])
        asked = [call("query", self.config, q, "--json") for q in ("P(v0 | v1=4)", "P(v2=0, v3=0)")]
        code, _ = call("run", self.config, "--json")
        return json.dumps([asked, code, self._describe()])

    def _describe(self) -> list[Any]:
        """What the records say that runs came to, and the digests of what they made."""
        store = Store(self.store)
        return [
            [name, each.number, each.outcome, str(each.live), sorted(map(str, each.stages.items()))]
            for name in list_histories(store)
            for each in list_records(store, name)
        ]


def age(folder: Path) -> None:
    """Let files look as if they had been written a day ago: their digests are remembered."""
    for path in folder.iterdir():
        then = path.stat().st_mtime - 86_400
        os.utime(path, (then, then))


def write_night(folder: Path, night: int) -> None:
    """Deliver ratings, half of them of people of the night before."""
    codes = draw_codes(120, FILMS, seed=night)
    lines = ["person,film,stars,time"]
    lines += [
        f"p{row + 60 * night},v{film},{codes[row, film]},{1_700_000_000 + 86_400 * night}"
        for row, film in np.argwhere(codes >= 0).tolist()
    ]
    (folder / f"{night}.csv").write_text("\n".join(lines) + "\n")


def make_ratings(folder: Path) -> Home:
    """A store of two nights and of a third one that was interrupted."""
    home = Home(folder, "run")
    (folder / "data").mkdir(parents=True)
    home.config.write_text(RATINGS + SETTINGS)
    make_schema(*FILMS).save(folder / "schema.json")
    for night in (1, 2):
        write_night(folder / "data", night)
        age(folder / "data")
        assert in_child(call, "run", home.config)[0] == 0
        # tables that are counted for a question are kept
        assert in_child(call, "query", home.config, "P(v0 | v1=4, v2=0)")[0] == 0
    write_night(folder / "data", 3)
    age(folder / "data")

    def interrupt() -> int:
        publish = Store.publish

        def stop(store: Store, tmp: Path, reference: Any) -> None:
            if reference.kind == "model":
                raise KeyboardInterrupt
            publish(store, tmp, reference)

        Store.publish = stop  # type: ignore[method-assign,assignment]
        return call("run", home.config)[0]

    assert in_child(interrupt) == 130
    shutil.move(home.store, home.kept)
    return home


def make_labels(folder: Path) -> Home:
    """A store of two label logs, and a third log that is new."""
    home = Home(folder, "crowd")
    (folder / "data").mkdir(parents=True)
    home.config.write_text(LABELS + SETTINGS)
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 3, 300)
    task, worker = np.repeat(np.arange(300), 5), np.tile(np.arange(10), 150)
    label = np.where(rng.random(1500) < 0.8, truth[task], rng.integers(0, 3, 1500))
    table = {"task": task, "worker": worker, "label": label}
    for part in range(3):
        write_label_log(folder / "data" / f"{part}.csv", table, slice(500 * part, 500 * part + 500))
        age(folder / "data")
        if part < 2:
            code, said = in_child(call, "crowd", "--output", home.folder)
            assert code == 0, said
    shutil.move(home.store, home.kept)
    return home


def list_subjects(store: Path) -> dict[str, list[Path]]:
    """Files and folders of a store that may be damaged, relative, by kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(store.rglob("*")):
        inner = path.relative_to(store)
        if path.is_file():
            found.setdefault(inner.parts[0], []).append(inner)
        elif len(inner.parts) < 3 and any(path.iterdir()):
            found.setdefault(f"folders of {inner.parts[0]}", []).append(inner)
    return found


def flip(path: Path, rng: np.random.Generator) -> None:
    """Change a bit."""
    content = bytearray(path.read_bytes() or b"x")
    content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def truncate(path: Path, rng: np.random.Generator) -> None:
    """Cut off some of the end."""
    content = path.read_bytes()
    path.write_bytes(content[: int(rng.integers(len(content) + 1))])


def append(path: Path, rng: np.random.Generator) -> None:
    """Add some bytes."""
    path.write_bytes(path.read_bytes() + rng.bytes(7))


def drop(path: Path, rng: np.random.Generator) -> None:
    """Delete a file or folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def put_folder(path: Path, rng: np.random.Generator) -> None:
    """Put a folder in its place."""
    drop(path, rng)
    path.mkdir()


def put_link(path: Path, rng: np.random.Generator) -> None:
    """Put a link to the same content in its place."""
    elsewhere = Path(tempfile.mkdtemp(prefix="pmf-linked-")) / "it"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def put_other(path: Path, rng: np.random.Generator) -> None:
    """Put the content of another file of its folder in its place, or that of its own reversed."""
    others = sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
    content = path.read_bytes()[::-1]
    if others:
        content = others[int(rng.integers(len(others)))].read_bytes()
    path.write_bytes(content)


FILE_DAMAGES = (flip, flip, truncate, append, drop, put_folder, put_link, put_other)
FOLDER_DAMAGES = (drop, put_link, put_folder)


@dataclass(frozen=True)
class Outcome:
    """What came of one damage.

    Parameters
    ----------
    kind, location, damage
        What was damaged, and how.
    is_named, changes
        Whether `pmf verify` names it; and whether an answer or the next run is another, where it does not: None where
        that was not looked into.
    """

    kind: str
    location: str
    damage: str
    is_named: bool
    changes: bool | None

    @property
    def verdict(self) -> str:
        """What it means."""
        return "named" if self.is_named else "UNSEEN" if self.changes else "without effect"


def damage_stores(
    folder: Path, n_damages: int, seed: int, *, follows: bool = True
) -> list[Outcome]:
    """Make the stores, and damage them: a kind of file after the other, until there are as many damages.

    Parameters
    ----------
    folder
        Empty folder.
    n_damages, seed
        How many, and how they are drawn.
    follows
        Whether the next run is made where a damage is not named, which takes seconds.
    """
    # children that are forked have it all in memory
    import pmflib_flows.cli
    import pmflib_flows.crowd.crowd_flow
    import pmflib_flows.etl  # noqa: F401

    rng = np.random.default_rng(seed)
    homes = [make_ratings(folder / "ratings"), make_labels(folder / "labels")]
    plan, expected = [], {}
    for home in homes:
        home.restore()
        code, said = home.verify()
        assert code == 0, said
        if follows:
            expected[home.command] = home.follow()
            home.restore()
        plan += [(home, kind, found) for kind, found in list_subjects(home.kept).items()]
    outcomes = []
    for number in range(n_damages):
        home, kind, found = plan[number % len(plan)]
        inner = found[int(rng.integers(len(found)))]
        ways = FOLDER_DAMAGES if (home.store / inner).is_dir() else FILE_DAMAGES
        damage = ways[int(rng.integers(len(ways)))]
        damage(home.store / inner, rng)
        code, said = home.verify()
        is_named = code != 0 and inner.parts[0] in said
        changes = None
        if follows:
            changes = not is_named and home.follow() != expected[home.command]
        # what is verified is only read, and the next run writes in all places
        home.restore(inner if is_named or not follows else Path())
        outcomes.append(Outcome(kind, inner.as_posix(), damage.__name__, is_named, changes))
    return outcomes


def main() -> None:
    """Damage stores, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        outcomes = damage_stores(Path(name), options.damages, options.seed)
    counted = Counter((each.kind, each.verdict) for each in outcomes)
    print("| kind of file | damages | named | without effect | unseen |")
    print("|---|---|---|---|---|")
    for kind in dict.fromkeys(each.kind for each in outcomes):
        row = [counted[kind, verdict] for verdict in ("named", "without effect", "UNSEEN")]
        print("| " + " | ".join(map(str, (kind, sum(row), *row))) + " |")
    for each in outcomes:
        if each.verdict == "UNSEEN":
            print(f"{each.damage} of {each.location} is not named, and changes an answer or a run")
    n_unseen = sum(each.verdict == "UNSEEN" for each in outcomes)
    print(f"{len(outcomes)} damages, {n_unseen} unseen")
    raise SystemExit(1 if n_unseen else 0)


if __name__ == "__main__":
    main()
