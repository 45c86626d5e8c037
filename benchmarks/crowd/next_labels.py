"""What more labels gain, by who is asked for them: `ask_again`, its tasks alone, or at random.

    python -m benchmarks.crowd.next_labels [--logs 8] [--tasks 300] [--workers 20]

prints the share of wrong labels of drawn logs, three classes and two labels of each task, before and after one more
label of a quarter of the tasks, four times: of the tasks and workers that `ask_again` names, of its tasks by workers
who are drawn, and of tasks and workers that are drawn.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from pmflib.crowd import aggregate

N_CLASSES, FIRST_LABELS, ROUNDS, SHARE = 3, 2, 4, 0.25
ACCURACY = (0.45, 0.95)
WAYS = ("ask_again", "its tasks alone", "at random")


def spend(seed: int, way: str, n_tasks: int, n_workers: int) -> list[float]:
    """Share of wrong labels before and after each round; every label that could be given is drawn beforehand."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(N_CLASSES, size=n_tasks)
    wrong = truth[:, None] + rng.integers(1, N_CLASSES, (n_tasks, n_workers))
    is_right = rng.random(wrong.shape) < rng.uniform(*ACCURACY, n_workers)
    said = np.where(is_right, truth[:, None], wrong % N_CLASSES)
    given = rng.random(wrong.shape).argsort(axis=1) < FIRST_LABELS
    n_asked = round(SHARE * n_tasks)
    errors = []
    for _ in range(ROUNDS + 1):
        task, worker = np.nonzero(given)
        found = aggregate({"task": task, "worker": worker, "label": said[task, worker]})
        errors.append(float((found.codes != truth).mean()))
        asked = found.ask_again(n_asked)
        rows, who = asked["task"].to_numpy(), asked["worker"].to_numpy()
        if way == "at random":
            rows = rng.choice(n_tasks, n_asked, replace=False)
        if way != "ask_again":
            who = np.array([rng.choice(np.flatnonzero(~given[row])) for row in rows])
        given[rows, who] = True
    return errors


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logs", type=int, default=8)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--workers", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'wrong labels, %':18}" + "".join(f"{f'round {n}':>10}" for n in range(ROUNDS + 1)))
    for way in WAYS:
        errors = [spend(seed, way, options.tasks, options.workers) for seed in range(options.logs)]
        means = 100 * np.mean(errors, axis=0)
        print(f"{way:18}" + "".join(f"{mean:10.1f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
