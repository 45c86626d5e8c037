"""How often guards stop a healthy night, or warn of it, by counts alone.

    python -m benchmarks.pipeline.healthy_nights --nights 100 --seeds 3

draws nights of a rating log and of a survey whose sizes and populations vary, takes each night's file against those
before it with the guards at their defaults, and prints how many nights were stopped and warned of. A folder of
ml-100k as argument adds the ratings of MovieLens in deliveries by time.
"""

from __future__ import annotations

import argparse
import gzip
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pipeline.simulated_nights import make_rating_log, make_survey
from pmflib.config import QualityConfig
from pmflib.core.arrays import IntArray
from pmflib.counting.pair_counts import count_pairs
from pmflib.ingest.dataset.accounts import Account
from pmflib.quality.drift import (
    MOST_LEVELS,
    LiveData,
    assess_drift,
    find_file_drift,
    find_pair_drift,
)
from pmflib.quality.findings import Finding
from pmflib.quality.row_guards import FileAccount, assess_rows, check_sizes, find_file_changes
from pmflib.schema import Schema, Variable

N_FOLDS = 16
UNFIT = 0.005
"""Share of rows of a healthy night that do not fit."""


def main() -> None:
    """Draw, check and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ml100k", type=Path, nargs="?", help="folder of ml-100k")
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("nights                   checked  stopped  warned  guards that warned")
    for make in (make_rating_log, make_survey):
        for seed in range(options.seeds):
            generator = make(seed)
            rng = np.random.default_rng([seed, 1])
            drawn = (generator.draw(rng) for _ in range(options.nights))
            checked = check_nights(generator.schema, generator.layout, drawn, seed)
            show(f"{make.__name__} {seed}", checked)
    if options.ml100k is not None:
        for name in ("rows", "time"):
            schema, nights = read_movielens(options.ml100k, 30, by=name)
            show(f"ml-100k, 30 by {name}", check_nights(schema, "long", nights, 0))


def show(name: str, checked: Iterator[list[Finding]]) -> None:
    """Print a line for the nights of one generator."""
    n_nights, actions, guards = 0, Counter[str](), Counter[str]()
    for findings in checked:
        n_nights += 1
        reached = {finding.action for finding in findings}
        actions["stop" if "stop" in reached else "warn" if "warn" in reached else "pass"] += 1
        guards.update({each.guard for each in findings if not each.passed})
    line = f"{name:24}  {n_nights:6}  {actions['stop']:7}  {actions['warn']:6}"
    print(f"{line}  {', '.join(f'{guard} {n}' for guard, n in guards.items())}".rstrip())


def check_nights(
    schema: Schema, layout: str, nights: Iterator[IntArray], seed: int
) -> Iterator[list[Finding]]:
    """Findings of each night but the first, whose data are then those of the live model.

    Parameters
    ----------
    schema, layout
        Variables and levels, and layout of the files.
    nights
        Codes of each night's samples, each a file.
    seed
        Seed of the rows that do not fit.
    """
    config, rng = QualityConfig(), np.random.default_rng([seed, 2])
    files: list[FileAccount] = []
    total: Any = None
    for night, codes in enumerate(nights):
        counts = count_pairs(codes, schema, n_folds=N_FOLDS)
        levels = counts.count_levels()
        encoded = int(levels.sum()) if layout == "long" else len(codes)
        unfit = int(rng.binomial(encoded, UNFIT))
        rows = Account(encoded + unfit, encoded, reasons=Counter(ragged=unfit))
        account = FileAccount(f"night-{night:03}", str(night), rows, levels)
        if files:
            after = [*files, account]
            changes = find_file_changes(after, files)
            accounts = [sum((file.rows for file in each), Account()) for each in (after, files)]
            findings = assess_rows(accounts[0], after, accounts[1], changes, config)
            findings += check_sizes(changes, files, config)
            live = LiveData(files, np.einsum("fll->fl", total.tables))
            tests = find_file_drift(schema, layout, live, changes.new)
            if schema.n_levels <= MOST_LEVELS:
                tests += find_pair_drift(
                    schema, counts.tables.sum(axis=0), total.tables.sum(axis=0)
                )
            yield findings + assess_drift(tests, config)
        files.append(account)
        total = counts if total is None else total + counts


def read_movielens(folder: Path, n_nights: int, *, by: str) -> tuple[Schema, Iterator[IntArray]]:
    """Ratings of ml-100k in the order of time, in deliveries of as many rows, or as much time.

    Parameters
    ----------
    folder
        Folder of the set.
    n_nights
        Number of deliveries.
    by
        "rows" or "time".
    """
    with gzip.open(folder / "u.data.gz") as stream:
        rows = np.loadtxt(stream, dtype=np.int64)
    rows = rows[np.argsort(rows[:, 3], kind="stable")]
    # counts of pairs of all films are beyond what the guards compare: the most rated films stand for them
    films = np.argsort(-np.bincount(rows[:, 1]), kind="stable")[:400]
    rows = rows[np.isin(rows[:, 1], films)]
    schema = Schema(tuple(Variable(f"m{film:04}", tuple("12345")) for film in np.sort(films)))
    rows[:, 1] = np.searchsorted(np.sort(films), rows[:, 1])
    if by == "rows":
        parts = np.array_split(rows, n_nights)
    else:
        edges = np.linspace(rows[0, 3], rows[-1, 3] + 1, n_nights + 1)
        parts = np.split(rows, np.searchsorted(rows[:, 3], edges[1:-1]))

    def draw() -> Iterator[IntArray]:
        for part in parts:
            people, index = np.unique(part[:, 0], return_inverse=True)
            codes = np.full((people.size, schema.n_variables), -1)
            codes[index, part[:, 1]] = part[:, 2] - 1
            yield codes

    return schema, draw()


if __name__ == "__main__":
    main()
