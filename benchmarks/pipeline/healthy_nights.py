"""How often guards stop a healthy night, or warn of it, by counts alone.

    python -m benchmarks.pipeline.healthy_nights --nights 100 --seeds 3

draws nights of a rating log and of a survey whose sizes and populations vary, by chance and with the day of the week,
and of logs whose people return, answer again and become more, takes each night's file against those before it with the
guards at their defaults, and prints how many nights were stopped and warned of. A folder of ml-100k as argument adds
the ratings of MovieLens in deliveries by time.
"""

from __future__ import annotations

import argparse
import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.pipeline.simulated_nights import (
    Generator,
    make_rating_log,
    make_returning_log,
    make_survey,
)
from pmflib.base.arrays import IntArray
from pmflib.base.codes import Codes
from pmflib.counts.pair_counts import count_pairs
from pmflib.ingest.dataset.accounts import Account, TimeSpan
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib.ingest.dataset.identifiers import count_forms
from pmflib.schema import Schema, Variable
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.dependence_guards import can_compare, measure_young
from pmflib_tasks.guards.drift import (
    MOST_LEVELS,
    LiveData,
    find_added,
    find_file_drift,
    find_pair_drift,
    measure_dependence,
    measure_drift,
)
from pmflib_tasks.guards.file_ledger import measure_empty
from pmflib_tasks.guards.findings import Finding, Measurement, assess
from pmflib_tasks.guards.identity_guards import (
    Night,
    find_twins,
    is_young,
    measure_forms,
    measure_night,
)
from pmflib_tasks.guards.row_guards import find_file_changes, measure_rows, measure_sizes
from pmflib_tasks.guards.time_guards import Clock, measure_times

CLOCK = Clock(datetime(2026, 11, 1, tzinfo=UTC))
N_FOLDS = 16
WEEKLY = 0.15
"""Largest share of a night's samples that one latent state has on top of its own, in the middle of a week."""
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
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    print("nights                           checked  stopped  warned  guards that warned")
    for make in (make_rating_log, make_survey):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            generator = make(seed)
            rng = np.random.default_rng([seed, 1])
            for name, drawn in (
                (make.__name__, (generator.draw(rng) for _ in range(options.nights))),
                (f"{make.__name__} by week", draw_weeks(generator, options.nights, rng)),
            ):
                checked = check_nights(generator.schema, generator.layout, drawn, seed)
                show(f"{name} {seed}", checked)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        log, rng = make_returning_log(seed), np.random.default_rng([seed, 1])
        drawn = (log.draw(rng) for _ in range(options.nights))
        show(f"make_returning_log {seed}", check_log(log.schema, drawn))
    if options.ml100k is not None:
        for name in ("rows", "time"):
            schema, rows = read_movielens(options.ml100k, 30, by=name)
            show(f"ml-100k, 30 by {name}", check_log(schema, rows))


def draw_weeks(generator: Generator, n_nights: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Codes of nights whose population changes with the day of the week."""
    first = np.zeros(generator.prior.size)
    first[0] = 1.0
    for night in range(n_nights):
        share = WEEKLY * (1 + np.sin(2 * np.pi * night / 7)) / 2
        yield replace(generator, prior=(1 - share) * generator.prior + share * first).draw(rng)


def show(name: str, checked: Iterator[list[Finding]]) -> None:
    """Print a line for the nights of one generator."""
    n_nights, actions, guards = 0, Counter[str](), Counter[str]()
    for findings in checked:
        n_nights += 1
        reached = {finding.action for finding in findings}
        actions["stop" if "stop" in reached else "warn" if "warn" in reached else "pass"] += 1
        guards.update({each.guard for each in findings if not each.passed})
    line = f"{name:32}  {n_nights:6}  {actions['stop']:7}  {actions['warn']:6}"
    print(f"{line}  {', '.join(f'{guard} {n}' for guard, n in guards.items())}".rstrip())


def check_nights(
    schema: Schema, layout: str, nights: Iterator[IntArray], seed: int
) -> Iterator[list[Finding]]:
    """Findings of each night but the first, of which every sample is new.

    Parameters
    ----------
    schema, layout
        Variables and levels, and layout of the files.
    nights
        Codes of each night's samples, each a file.
    seed
        Seed of the rows that do not fit.
    """
    rng, checker = np.random.default_rng([seed, 2]), NightChecker(schema, layout)
    total: IntArray | None = None
    for codes in nights:
        counts = count_pairs(Codes(codes), schema, n_folds=N_FOLDS)
        levels = counts.count_levels()
        encoded = int(levels.sum()) if layout == "long" else len(codes)
        unfit = int(rng.binomial(encoded, UNFIT))
        rows = Account(encoded + unfit, encoded, reasons=Counter(ragged=unfit))
        account = FileAccount(checker.next_name, checker.next_name, rows, levels)
        total = counts.tables if total is None else total + counts.tables
        found = checker.check(account, total, Night(len(codes), 0, encoded, 0, 0))
        if found is not None:
            yield found


def check_log(schema: Schema, nights: Iterator[IntArray]) -> Iterator[list[Finding]]:
    """Findings of each night but the first, of a long log whose samples return: the last answer is what counts.

    Parameters
    ----------
    schema
        Variables and levels.
    nights
        Rows of each night, a file each: int64 of shape (n_rows, 4), of sample, variable, code and time; samples are
        numbered from 0 as they come.
    """
    checker = NightChecker(schema, "long")
    known = np.empty((0, schema.n_variables), np.int64)
    for rows in nights:
        samples = np.unique(rows[:, 0])
        before = int(np.count_nonzero(samples < len(known)))
        more = max(int(samples[-1]) + 1 - len(known), 0)
        known = np.concatenate([known, np.full((more, schema.n_variables), -1)])
        old = known[rows[:, 0], rows[:, 1]]
        repeated, agreeing = old >= 0, old == rows[:, 2]
        known[rows[:, 0], rows[:, 1]] = rows[:, 2]
        levels = np.bincount(schema.offsets[rows[:, 1]] + rows[:, 2], minlength=schema.n_levels)
        forms = count_forms(
            pa.array([str(1 + s).encode() for s in rows[:, 0].tolist()], pa.binary())
        )
        times = TimeSpan(float(rows[:, 3].min()), float(rows[:, 3].max()), "number")
        account = FileAccount(
            checker.next_name,
            checker.next_name,
            Account(len(rows), len(rows)),
            levels,
            times=times,
            forms=forms,
        )
        night = Night(
            len(samples), before, len(rows), int(repeated.sum()), int((repeated & agreeing).sum())
        )
        own = np.full_like(known, -1)
        own[rows[:, 0], rows[:, 1]] = rows[:, 2]
        inside = count_pairs(Codes(own[samples]), schema, n_folds=1).tables[0]
        total = count_pairs(Codes(known), schema, n_folds=N_FOLDS).tables
        found = checker.check(account, total, night, inside)
        if found is not None:
            yield found


class NightChecker:
    """Runs the guards on one night after the other; the data before a night are those of the live model.

    Parameters
    ----------
    schema, layout
        Variables and levels, and layout of the files.
    """

    def __init__(self, schema: Schema, layout: str) -> None:
        self._schema, self._layout = schema, layout
        self._config = QualityConfig()
        self._files: list[FileAccount] = []
        self._nights: list[Night] = []
        self._total: IntArray | None = None

    @property
    def next_name(self) -> str:
        """Name of the next file."""
        return f"night-{len(self._files):03}"

    def check(
        self, account: FileAccount, total: IntArray, night: Night, inside: IntArray | None = None
    ) -> list[Finding] | None:
        """Findings of a night; None of the first.

        Parameters
        ----------
        account
            Its file.
        total
            Pair counts of all samples after it, int64 of shape (n_folds, n_levels, n_levels).
        night
            Whose its rows are.
        inside
            Pair counts of its answers alone; None if no sample returns.
        """
        findings, last = None, self._total
        files, schema, config = self._files, self._schema, self._config
        if last is not None:
            after = [*files, account]
            changes = find_file_changes(after, files)
            accounts = [sum((file.rows for file in each), Account()) for each in (after, files)]
            measured = [
                *measure_rows(accounts[0], after, accounts[1], changes, config),
                *measure_sizes(changes, files),
                *measure_forms(changes, files),
                *find_twins(after, changes),
                *measure_times(
                    after, changes.new, CLOCK, lambda name, time: 0, config.future_hours
                ),
            ]
            measured += measure_empty(changes, files, schema, self._layout)
            young: list[Measurement] = []
            live = LiveData(files, np.einsum("fll->fl", last))
            tests = find_file_drift(schema, self._layout, live, changes.new)
            if schema.n_levels <= MOST_LEVELS:
                now, before = total.sum(axis=0), last.sum(axis=0)
                if (now - before).min(initial=0) >= 0:
                    tests += find_pair_drift(schema, now - before, before)
                if (added := find_added(now - before)) is not None:
                    dependence = measure_dependence(schema, added, before)
                    night = replace(night, dependence=dependence)
                    if is_young(self._nights) and can_compare(schema):
                        own = added if inside is None else inside
                        young = measure_young(schema, list(last), own, added)
            done = {each.guard for each in young}
            nightly = (n for n in measure_night(night, self._nights) if n.guard not in done)
            measured += [*measure_drift(tests, config), *young, *nightly]
            findings = assess(measured, config)
            self._nights.append(night)
        files.append(account)
        self._total = total
        return findings


def read_movielens(folder: Path, n_nights: int, *, by: str) -> tuple[Schema, Iterator[IntArray]]:
    """Ratings of ml-100k in the order of time, in deliveries of as many rows, or as much time, for `check_log`.

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

    rows[:, 2] -= 1
    # people are numbered as they come
    people, first, index = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    order = np.empty(people.size, np.int64)
    order[np.argsort(first)] = np.arange(people.size)
    rows[:, 0] = order[index]
    return schema, iter(parts)


if __name__ == "__main__":
    main()
