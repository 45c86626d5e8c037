"""How often a column that was shifted by a row is noticed, by counts alone, and how often a healthy night is suspected.

    python -m benchmarks.pipeline.shifted_columns --first-seed 20 --seeds 6

draws nights of logs whose people return, and takes each night three times against those before it: as it is, with its
column of people shifted by a row, and with its column of ratings. Prints, for each log and in all, the nights on which
`agreement` or `joint_agreement` stops the night, or warns; or one of them, with ``--guard``: a log where nobody answers
twice has only the second.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.pipeline.simulated_nights import ReturningLog, make_returning_log
from pmflib.core.arrays import IntArray
from pmflib.counting.pair_counts import count_pairs
from pmflib.schema import Schema
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.drift import find_added, measure_dependence
from pmflib_tasks.guards.findings import Finding
from pmflib_tasks.guards.identity_guards import Night, check_night

SHIFTS = {"healthy": None, "people shifted": 0, "ratings shifted": 2}
"""Column that is shifted by a row."""
GUARDS = ("agreement", "joint_agreement")


def main() -> None:
    """Draw, check and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--guard", choices=GUARDS, action="append")
    options = parser.parse_args()
    guards = options.guard or GUARDS
    print("seed  people a night  " + "  ".join(f"{name}: stops, warns, of" for name in SHIFTS))
    total: Counter[tuple[str, str]] = Counter()
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        log = make_returning_log(seed)
        found = count_actions(log, options.nights, seed, guards)
        total += found
        print(f"{seed:4}  {log.persons:14}  {describe(found)}", flush=True)
    print(f" all  {'':14}  {describe(total)}")


def describe(found: Counter[tuple[str, str]]) -> str:
    """Numbers of nights, for each way of shifting."""
    return "  ".join(
        f"{name}: {found[name, 'stop']:3} {found[name, 'warn']:3} "
        f"{sum(n for (each, _), n in found.items() if each == name):4}"
        for name in SHIFTS
    )


def count_actions(
    log: ReturningLog, n_nights: int, seed: int, guards: Sequence[str]
) -> Counter[tuple[str, str]]:
    """Nights by what was shifted, and by what guards make of it."""
    rng, schema, config = np.random.default_rng([seed, 3]), log.schema, QualityConfig()
    known, history = np.empty((0, schema.n_variables), np.int64), list[Night]()
    before: IntArray | None = None
    counted: Counter[tuple[str, str]] = Counter()
    for _ in range(n_nights):
        rows = log.draw(rng)
        for name, column in SHIFTS.items():
            shifted = rows.copy()
            if column is not None:
                shifted[:, column] = np.roll(shifted[:, column], 1)
            after, night = deliver(known, shifted)
            total = count_pairs(after, schema, n_folds=1).tables.sum(axis=0)
            if before is not None:
                night = measure(schema, night, total, before)
                counted[name, judge(check_night(night, history, config), guards)] += 1
            if column is None:
                healthy = after, total, night
        known, before = healthy[:2]
        history.append(healthy[2])
    return counted


def deliver(known: IntArray, rows: IntArray) -> tuple[IntArray, Night]:
    """Answers after a night, and whose its rows are."""
    more = max(int(rows[:, 0].max()) + 1 - len(known), 0)
    after = np.concatenate([known, np.full((more, known.shape[1]), -1)])
    old = after[rows[:, 0], rows[:, 1]]
    samples = np.unique(rows[:, 0])
    n_known = int(np.count_nonzero(samples < len(known)))
    repeated, agreeing = old >= 0, old == rows[:, 2]
    after[rows[:, 0], rows[:, 1]] = rows[:, 2]
    both = int((repeated & agreeing).sum())
    return after, Night(len(samples), n_known, len(rows), int(repeated.sum()), both)


def measure(schema: Schema, night: Night, total: IntArray, before: IntArray) -> Night:
    """The night with how far its pairs of answers hang together."""
    added = find_added(total - before)
    found = None if added is None else measure_dependence(schema, added, before)
    return Night(**(night.to_json() | {"dependence": found}))


def judge(findings: Sequence[Finding], guards: Sequence[str]) -> str:
    """What some guards make of a night: "stop", "warn" or "pass"."""
    reached = {each.action for each in findings if each.guard in guards}
    return next((action for action in ("stop", "warn") if action in reached), "pass")


if __name__ == "__main__":
    main()
