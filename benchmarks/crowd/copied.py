"""Groups of workers who repeat each other's labels: how often they are found, and what counting them once is worth.

    python -m benchmarks.crowd.copied [--logs 20] [--tasks 600]

prints, of twenty workers of whom none, two, four or nine copy the first of them, for all of their labels or 90 or 80 %,
and for all tasks labelled by all or 30 % of them by each: in how many logs the group is found exactly, in part, not at
all, or something else; then the error of the default, of Dawid and Skene's method, and of the default without the
copies, in per cent. Logs have two and four classes in turn; nothing was chosen on their seeds.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from pmflib.crowd import LabelLog, aggregate, read_labels
from pmflib.crowd.copied_labels import find_copied_groups

N_WORKERS = 20
COPIERS = (0, 2, 4, 9)
SHARES = (1.0, 0.9, 0.8)
COVERED = (1.0, 0.3)
FIRST = 500
"""First seed."""


def draw(
    rng: np.random.Generator,
    n_tasks: int,
    n_classes: int,
    n_copiers: int,
    share: float,
    covered: float,
) -> tuple[LabelLog, LabelLog, np.ndarray]:
    """Draw a log, the same without those who copy, and the truth; workers are right of 60 to 90 % of the tasks."""
    shape = n_tasks, N_WORKERS
    truth = rng.integers(n_classes, size=n_tasks)
    wrong = (truth[:, None] + rng.integers(1, n_classes, shape)) % n_classes
    said = np.where(rng.random(shape) < rng.uniform(0.6, 0.9, N_WORKERS), truth[:, None], wrong)
    for worker in range(1, n_copiers):
        said[:, worker] = np.where(rng.random(n_tasks) < share, said[:, 0], said[:, worker])
    task, owner = np.nonzero(rng.random(shape) < covered)
    own = (owner == 0) | (owner >= max(n_copiers, 1))
    with_copies, without = (
        read_labels({"task": task[rows], "worker": owner[rows], "label": said[task, owner][rows]})
        for rows in (np.ones(own.size, bool), own)
    )
    return with_copies, without, truth


def judge(log: LabelLog, n_copiers: int) -> str:
    """Say how the group is found."""
    names = log.workers.to_pylist()
    found = [
        {names[worker] for worker in group.workers}
        for group in find_copied_groups(log.block, log.n_workers, log.n_classes)
    ]
    planted = [set(range(n_copiers))] if n_copiers else []
    if found == planted:
        return "exact"
    if not found:
        return "none"
    return "part" if planted and all(group < planted[0] for group in found) else "else"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=600)
    options = parser.parse_args()
    print("copiers share covered   exact part none else    default Dawid-Skene without copies")
    for covered in COVERED:
        for n_copiers in COPIERS:
            for share in SHARES if n_copiers else (1.0,):
                seen: Counter[str] = Counter()
                errors = np.zeros(3)
                for number in range(options.logs):
                    rng = np.random.default_rng([FIRST + number, n_copiers, int(10 * share)])
                    n_classes = 2 + 2 * (number % 2)
                    log, without, truth = draw(
                        rng, options.tasks, n_classes, n_copiers, share, covered
                    )
                    seen[judge(log, n_copiers)] += 1
                    fits = aggregate(log), aggregate(log, "dawid_skene"), aggregate(without)
                    tasks = [np.array(fit.log.tasks.to_pylist()) for fit in fits]
                    errors += [
                        100 * (fit.codes != truth[rows]).mean()
                        for fit, rows in zip(fits, tasks, strict=True)
                    ]
                counts = "".join(f"{seen[key]:5}" for key in ("exact", "part", "none", "else"))
                means = "".join(f"{error:10.2f}" for error in errors / options.logs)
                print(f"{n_copiers:7} {share:5} {covered:7}  {counts} {means}", flush=True)


if __name__ == "__main__":
    main()
