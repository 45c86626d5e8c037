"""Odd inputs that are generated, not damaged: every command ends with a documented code other than 1, and a sentence.

    python -m tests.fuzz.odd_inputs --inputs 400

draws tables (CSV, Parquet, lines of JSON), schema files, label logs with known labels, and options of `pmf infer` and
`pmf crowd`; and damages files of a store of label logs, and checkpoints of a run that was interrupted. Each is given to
commands in a process of its own. Prints a table by kind; fails where a command ends with exit code 1, a traceback, raw
text, more than a screen of words, or not within a minute, or where rows do not balance.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import io
import json
import lzma
import multiprocessing
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.random_damages import (
    FILE_DAMAGES,
    FOLDER_DAMAGES,
    Home,
    call,
    list_subjects,
    make_labels,
    make_ratings,
)
from tests.fuzz.parquet_files import write_odd_parquet

CODES = {0, 2, 3, 4, 5, 6}
"""Exit codes of a command that nobody interrupts."""
SECONDS = 60.0
"""Time that a command may take."""
MOST_SAID = 8000
"""Characters that a command which fails may print: an error is at most 2 kB, and a few warnings may precede it."""

WORDS = (
    *("a", "b", "c", "yes", "no", "7", "07", " 7", "7.0", "-1", "1e3", "1e999", "0x1", "1_000", "\u0661", "true"),
    *("NA", "null", "nan", "", " ", "-", "=1+1", "@x", "2020-01-01", "2020-13-45", "12:30", "\u00e9", "e\u0301"),
    *("\u65e5\u672c", "\u202ex", "\x1b[31m", "[/]", ":smile:", "a,b", 'q"q', "line\nline", "x" * 300, "\u200b"),
)  # fmt: skip
"""What cells, names and levels are drawn from."""
NUMBERS: tuple[object, ...] = (
    *(0, 1, -1, 2.5, 1e308, -0.0, 2**53 + 1, 2**70, 10**400, 1e-320, True, None, "1", [], {}),
)
"""What numbers of a schema are drawn from."""


def draw_words(rng: random.Random, n: int) -> list[str]:
    """Words, most of which are of a few."""
    few = rng.sample(WORDS, rng.randint(1, 5))
    return [rng.choice(few) if rng.random() < 0.9 else rng.choice(WORDS) for _ in range(n)]


def draw_column(rng: random.Random, n: int) -> list[str]:
    """Cells of a column of some meaning."""
    kind = rng.randrange(7)
    if kind == 0:
        return [str(row) for row in range(n)]
    if kind == 1:
        return [f"{rng.gauss(0, 10 ** rng.randint(-3, 12)):g}" for _ in range(n)]
    if kind == 2:
        return [str(rng.randint(1, 5)) for _ in range(n)]
    if kind == 3:
        return [rng.choice(WORDS)] * n
    if kind == 4:
        return [f"20{rng.randrange(100):02}-{rng.randrange(14):02}-{rng.randrange(33):02}"] * n
    if kind == 5:
        return [str(rng.choice((0, 1, 10**9, 10**12, -(10**18), 10**30))) for _ in range(n)]
    return draw_words(rng, n)


def pack(content: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Content packed or not, and the end of its name; now and then the name says something else."""
    packers: list[tuple[Callable[[bytes], bytes], str]] = [
        (gzip.compress, ".gz"),
        (bz2.compress, ".bz2"),
        (lzma.compress, ".xz"),
    ]
    if rng.random() < 0.8:
        return content, ""
    packer, end = rng.choice(packers)
    return packer(content), end if rng.random() < 0.7 else rng.choice(("", ".gz", ".zst"))


def write_table(folder: Path, rng: random.Random, names: Sequence[str] = ()) -> Path:
    """Write a CSV file of columns of any meaning, in some dialect; its path."""
    n_rows = rng.choice((0, 1, 3, 40, 200))
    header = list(names) or draw_words(rng, rng.randint(1, 6))
    rows = [header, *zip(*(draw_column(rng, n_rows) for _ in header), strict=True)]
    text = io.StringIO()
    quotings: list[Literal[0, 1, 2]] = [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]
    writer = csv.writer(
        text,
        delimiter=rng.choice(",,,;\t|"),
        quoting=rng.choice(quotings),
        lineterminator=rng.choice(("\n", "\r\n", "\r")),
    )
    for row in rows:
        cells = list(row)
        if rng.random() < 0.02:
            cells = cells[:-1] or [*cells, "more"]
        writer.writerow(cells)
    encoding = rng.choice(("utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32", "cp037"))
    content, end = pack(text.getvalue().encode(encoding, "replace"), rng)
    path = folder / f"data{rng.choice(('.csv', '.csv', '.tsv', '.txt', '.dat'))}{end}"
    path.write_bytes(content)
    return path


def write_json_lines(folder: Path, rng: random.Random) -> Path:
    """Write lines of JSON, which is no table of ours, under one of several names; its path."""
    lines = []
    for _ in range(rng.choice((0, 1, 30))):
        names = draw_words(rng, 3)
        lines.append(json.dumps(dict(zip(names, draw_words(rng, 3), strict=True))))
    if rng.random() < 0.3:
        lines.append("[" * 5000)
    path = folder / rng.choice(("data.jsonl", "data.json", "data.ndjson", "data.csv", "data"))
    path.write_text("\n".join(lines))
    return path


def write_parquet(folder: Path, rng: random.Random) -> Path:
    """Write a Parquet file of columns of any type; its path."""
    path = folder / rng.choice(("data.parquet", "data.pq", "data.csv"))
    try:
        write_odd_parquet(path, rng)
    except (pa.ArrowException, OverflowError):
        pq.write_table(pa.table({"a": ["x"]}), path)
    return path


def draw_schema(rng: random.Random) -> object:
    """A schema file of the right form or nearly."""
    variables: list[object] = []
    for number in range(rng.choice((0, 1, 3, 3, 3, 40))):
        levels: list[object] = list(draw_words(rng, rng.choice((0, 1, 2, 5, 300))))
        if rng.random() < 0.5:
            levels = [*"xyab7", *levels]
        if rng.random() < 0.9:
            levels = list(dict.fromkeys(levels))
        if rng.random() < 0.1 and levels:
            levels[0] = rng.choice(NUMBERS)
        usual = f"{'abc'[number % 3]}{number // 3 or ''}"
        name = usual if rng.random() < 0.9 else rng.choice(WORDS)
        variable: dict[str, object] = {"name": name, "levels": levels}
        if rng.random() < 0.4:
            n = len(levels) + rng.choice((0, 0, 0, 0, 0, 1, -1))
            pool = NUMBERS if rng.random() < 0.4 else (1, 2.5, 3)
            variable["values"] = [rng.choice(pool) for _ in range(max(n, 0))]
        if rng.random() < 0.2:
            variable[rng.choice(("missing", "ordered", "bins", "column", "edges", "x"))] = (
                rng.choice((*NUMBERS, ["a"], "a", [[1, 2]]))
            )
        variables.append(variable if rng.random() < 0.97 else rng.choice(NUMBERS))
    schema = {
        "format": "pmf-schema-1" if rng.random() < 0.95 else rng.choice(WORDS),
        "missing": draw_words(rng, rng.randint(0, 2))
        if rng.random() < 0.9
        else rng.choice(NUMBERS),
        "variables": variables,
    }
    return schema if rng.random() < 0.95 else rng.choice(NUMBERS)


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
[cluster]
workers = 1
"""


def try_schema(folder: Path, rng: random.Random) -> Iterator[list[str]]:
    """A schema file, and a run with it."""
    (folder / "pipeline.toml").write_text(CONFIG)
    rows = [",".join(rng.choice("xyab7") for _ in range(3)) for _ in range(80)]
    (folder / "data.csv").write_text("\n".join(["a,b,c", *rows]) + "\n")
    (folder / "schema.json").write_text(json.dumps(draw_schema(rng)))
    yield ["check", "pipeline.toml"]
    yield ["run", "pipeline.toml", "--json"]


def try_table(write: Callable[[Path, random.Random], Path]) -> Trial:
    """A table of some kind: a draft with drawn options, and a run of it."""

    def try_it(folder: Path, rng: random.Random) -> Iterator[list[str]]:
        path = write(folder, rng)
        words = ["infer", str(path), "--output", "drafted", "--rank", "2"]
        options: list[list[str]] = [
            ["--no-header"],
            ["--header"],
            ["--delimiter", rng.choice((";", ",", "\\t", "whitespace", "xx", ""))],
            ["--encoding", rng.choice(("utf-8", "latin-1", "utf-16", "nosuch", ""))],
            ["--decimal", rng.choice((",", ".", "x"))],
            ["--missing", rng.choice(WORDS)],
            ["--max-levels", str(rng.choice((2, 3, 10**6, 10**30)))],
            ["--bins", str(rng.choice((2, 3, 1000, 10**30)))],
            ["--columns", ",".join(draw_words(rng, rng.randint(1, 4)))],
            ["--target", rng.choice(WORDS)],
            ["--sample", "a", "--variable", "b", "--value", "c"],
            ["--min-count", str(rng.choice((1, 50, 10**30)))],
        ]
        for option in rng.sample(options, rng.choice((0, 0, 1, 2))):
            words += option
        yield words
        if (folder / "drafted" / "pipeline.toml").exists():
            yield ["run", "drafted/pipeline.toml", "--json"]

    return try_it


def try_label_log(folder: Path, rng: random.Random) -> Iterator[list[str]]:
    """A label log with known labels, and a second delivery."""
    (folder / "log").mkdir()
    n_tasks, n_workers = rng.choice((1, 2, 40)), rng.choice((1, 2, 8))
    tasks = [f"t{n}" if rng.random() < 0.9 else rng.choice(WORDS) for n in range(n_tasks)]
    workers = [f"w{n}" if rng.random() < 0.8 else rng.choice(WORDS) for n in range(n_workers)]
    labels = rng.sample(WORDS, rng.choice((1, 2, 3, 20)))
    names = ["task", "worker", "label"] if rng.random() < 0.9 else draw_words(rng, 3)
    options: list[list[str]] = [
        ["--classes", ",".join(labels)],
        ["--ordinal"],
        ["--known", "known.csv"],
        ["--method", rng.choice(("auto", "majority", "dawid-skene", "spectral", "nosuch"))],
        ["--on-repeated", rng.choice(("first", "last", "stop", "missing", "x"))],
        ["--no-em"],
        ["--seed", str(rng.choice((0, 1, 2**63, 10**30)))],
        ["--columns", "task,worker,label"],
        ["--task", rng.choice(("task", "label", *WORDS))],
    ]
    chosen = [word for each in rng.sample(options, rng.choice((0, 1, 1, 2))) for word in each]

    def write(path: Path, columns: Sequence[str], cells: Callable[[], list[str]], n: int) -> None:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *(cells() for _ in range(n))])

    def answer() -> list[str]:
        return [rng.choice(tasks), rng.choice(workers), rng.choice(labels)]

    known = [names[0], names[2]] if rng.random() < 0.8 else draw_words(rng, 2)
    write(folder / "known.csv", known, lambda: [rng.choice(tasks), rng.choice(labels)], 10)
    n_rows = rng.choice((0, 1, 20, 200))
    for night in range(2):
        write(folder / "log" / f"{night}.csv", names, answer, n_rows)
        yield ["crowd", *(["log"] if not night else []), "--output", "out", *chosen, "--json"]


@dataclass
class DamagedStore:
    """A store that is damaged, and then used.

    Parameters
    ----------
    home
        The store as it was.
    kinds
        Kinds of files that are damaged; none for all.
    commands
        What is then tried, one of them besides the next run.
    """

    home: Home
    kinds: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]

    def __call__(self, folder: Path, rng: random.Random) -> Iterator[list[str]]:
        """Damage a file, and try a command and the next run."""
        shutil.copytree(self.home.folder, folder, dirs_exist_ok=True)
        store = folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        (folder / "kept").rename(store)
        subjects = list_subjects(store)
        chosen = [kind for kind in subjects if not self.kinds or kind in self.kinds]
        path = store / rng.choice(subjects[rng.choice(chosen)])
        damages = FOLDER_DAMAGES if path.is_dir() else FILE_DAMAGES
        rng.choice(damages)(path, np.random.default_rng(rng.randrange(2**32)))
        first, *rest = rng.choice(self.commands)
        yield [first, "pipeline.toml", *rest]
        if self.home.command == "crowd":
            yield ["crowd", "--output", ".", "--json"]
        else:
            yield ["run", "pipeline.toml", "--json"]


Trial = Callable[[Path, random.Random], Iterator[list[str]]]
"""Writes an input into an empty folder, and gives commands to call there."""
COMMANDS = (
    *(("verify",), ("status",), ("history",), ("log",), ("report",), ("quarantine",), ("gc", "--dry-run")),
    *(("erase", "--find", "--task", "t1"), ("erase", "--task", "t1"), ("rollback",), ("diff", "1", "2")),
)  # fmt: skip
"""Commands that are tried on a damaged store."""


def list_trials(folder: Path, kinds: Sequence[str] = ()) -> dict[str, Trial]:
    """What is tried, by kind; the stores to be damaged are made in a folder."""
    trials: dict[str, Trial] = {
        "schema": try_schema,
        "CSV": try_table(write_table),
        "Parquet": try_table(write_parquet),
        "lines of JSON": try_table(write_json_lines),
        "label log": try_label_log,
    }
    if not kinds or "label store" in kinds:
        trials["label store"] = DamagedStore(make_labels(folder / "labels"), (), COMMANDS)
    if not kinds or "checkpoints" in kinds:
        work = ("work", "folders of work")
        trials["checkpoints"] = DamagedStore(make_ratings(folder / "ratings"), work, (("verify",),))
    return {kind: trial for kind, trial in trials.items() if not kinds or kind in kinds}


def call_in(folder: Path, words: Sequence[str]) -> tuple[int | None, str]:
    """Exit code and text of a command in a process of its own, in a folder; no code of one that takes too long."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        import os

        os.chdir(folder)
        there.send(call(*words))

    child = context.Process(target=work)
    child.start()
    there.close()
    try:
        if not here.poll(SECONDS):
            child.kill()
            return None, ""
        code, said = here.recv()
        return code, said
    except EOFError:
        return None, "the process ended without a word"
    finally:
        child.join()


def judge(words: Sequence[str], code: int | None, said: str) -> str:
    """What is wrong with how a command ended; nothing, if nothing is."""
    if code not in CODES:
        return f"exit code {code}: {said[-700:]}"
    if "Traceback (most" in said:
        return f"a traceback: {said[-700:]}"
    if code and len(said) > MOST_SAID:
        return f"{len(said)} characters are said"
    if "--json" not in words and not all(c.isprintable() or c == "\n" for c in said):
        return f"raw text: {said!r}"
    if not code and words[0] == "run":
        rows = json.loads(said[said.index("{") :])["rows"]
        parts = sum(rows[key] for key in rows if key.startswith("rows_") and key != "rows_in")
        if rows["rows_in"] != parts:
            return f"rows do not balance: {rows}"
    return ""


def try_inputs(
    folder: Path, n_inputs: int, seed: int, kinds: Sequence[str] = ()
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Try inputs, a kind after the other.

    Parameters
    ----------
    folder
        Empty folder.
    n_inputs, seed
        How many, and how they are drawn.
    kinds
        Kinds that are tried; none for all.

    Returns
    -------
    Numbers of commands by exit code, by kind; and what went wrong.
    """
    # children that are forked have it all in memory
    import pmflib_flows.cli
    import pmflib_flows.crowd.crowd_flow
    import pmflib_flows.etl  # noqa: F401

    trials = list_trials(folder, kinds)
    counted: dict[str, Counter[str]] = {kind: Counter() for kind in trials}
    wrong = []
    for number in range(n_inputs):
        kind = list(trials)[number % len(trials)]
        home = folder / f"{number:05}"
        home.mkdir()
        for words in trials[kind](home, random.Random(f"{seed} {kind} {number}")):
            code, said = call_in(home, words)
            counted[kind][str(code)] += 1
            if problem := judge(words, code, said):
                wrong.append(f"{kind} {number}: pmf {' '.join(words)!r}: {problem}")
        shutil.rmtree(home)
    return counted, wrong


def main() -> None:
    """Try inputs, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        counted, wrong = try_inputs(Path(name), options.inputs, options.seed, options.kind)
    print("| input | commands | exit code: times |")
    print("|---|---|---|")
    for kind, codes in counted.items():
        said = ", ".join(f"{code}: {times}" for code, times in sorted(codes.items()))
        print(f"| {kind} | {codes.total()} | {said} |")
    print(*wrong, sep="\n")
    print(f"{options.inputs} inputs, {len(wrong)} wrong")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
