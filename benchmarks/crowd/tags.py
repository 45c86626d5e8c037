"""Several labels per task: tags that go together, found together and one by one, on planted logs.

    python -m benchmarks.crowd.tags [--seeds 8] [--first 100] [--tasks 1000] [--data ../shared/data]

prints, by number of taggings a task and by how many latent classes tags were drawn from (1: they do not go together),
wrong cells of tasks by tags in per cent: of the majority of the votes for each tag, of Dawid and Skene's method and the
default of `aggregate` for each tag by itself, of `aggregate_tags` with one latent class, and of `aggregate_tags`; then
the share of tasks whose tags are not all right, the calibration error of the two last (15 bins of as many cells), and
the number of latent classes that was found. Workers are better or worse at all tags, and at each by itself. Constants
were chosen on seeds 0 to 8; from 100 on they are judged. With `--data` the public log mre-treat follows, its two
classes as two tags: wrong cells, calibration error and log-loss of the tasks whose truth is known. It is one of the ten
logs that the constants of `CalibrationPrior` were chosen on; no constant of the tags was.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.special import expit, logit

from benchmarks.crowd.calibration import measure_sizes
from benchmarks.crowd.regimes import LEAST_PROBABILITY, read_judged
from pmflib.apps.crowd import aggregate, aggregate_tags, read_tags

TAGGINGS = (2, 3, 5)
RANKS = (1, 3, 6)
N_TAGS, N_WORKERS = 12, 40
HEADS = ("majority", "DS", "auto", "one class", "together", "majority", "DS", "together")


def draw(
    n_tasks: int, n_taggings: int, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Task and worker of each tagging, which tags it has, (n_taggings, n_tags), and the truth, (n_tasks, n_tags)."""
    frequent = rng.random((rank, N_TAGS)) < 0.3
    chances = np.where(
        frequent, rng.uniform(0.5, 0.95, frequent.shape), rng.uniform(0, 0.1, frequent.shape)
    )
    classes = rng.choice(rank, n_tasks, p=rng.dirichlet(np.full(rank, 2.0)))
    truth = rng.random((n_tasks, N_TAGS)) < chances[classes]
    own = rng.uniform(0, 1) * rng.normal(size=(2, N_WORKERS, N_TAGS))
    given = logit(rng.uniform(0.5, 0.9, N_WORKERS))[:, None] + own[0]
    wrongly = -logit(rng.uniform(0.8, 0.98, N_WORKERS))[:, None] + own[1]
    tasks = np.repeat(np.arange(n_tasks), n_taggings)
    workers = np.concatenate(
        [rng.choice(N_WORKERS, n_taggings, replace=False) for _ in range(n_tasks)]
    )
    chance = expit(np.where(truth[tasks], given[workers], wrongly[workers]))
    return tasks, workers, rng.random(chance.shape) < chance, truth


def list_rows(tasks: np.ndarray, workers: np.ndarray, said: np.ndarray) -> dict[str, list[object]]:
    """Log of tags: a row for each, and one for each tagging without any."""
    tagging, tag = np.nonzero(said)
    none = np.flatnonzero(~said.any(axis=1))
    rows = np.concatenate([tagging, none])
    labels: list[object] = [f"tag {each:02}" for each in tag.tolist()]
    return {
        "task": tasks[rows].tolist(),
        "worker": workers[rows].tolist(),
        "label": labels + [None] * none.size,
    }


def measure(n_tasks: int, n_taggings: int, rank: int, seed: int) -> list[float]:
    """A line of the table."""
    rng = np.random.default_rng([seed, n_taggings, rank])
    tasks, workers, said, truth = draw(n_tasks, n_taggings, rank, rng)
    votes = np.zeros(truth.shape)
    np.add.at(votes, tasks, said)
    majority = 2 * votes > n_taggings
    single: dict[str, np.ndarray] = {}
    for method in ("dawid_skene", "auto"):
        columns = [
            aggregate(
                {"task": tasks, "worker": workers, "label": said[:, tag].astype(int)},
                method,
                classes=[0, 1],
            ).codes
            for tag in range(N_TAGS)
        ]
        single[method] = np.stack(columns, axis=1) == 1
    names = [f"tag {each:02}" for each in range(N_TAGS)]
    log = read_tags(list_rows(tasks, workers, said), tags=names)
    one, found = aggregate_tags(log, rank=1), aggregate_tags(log)
    given = [majority, single["dawid_skene"], single["auto"], one.codes, found.codes]
    line = [100 * float((each != truth).mean()) for each in given]
    line += [100 * float((given[index] != truth).any(axis=1).mean()) for index in (0, 1, 4)]
    for each in (one, found):
        sure = np.maximum(each.probabilities, 1 - each.probabilities).ravel()
        line.append(measure_sizes(sure, (each.codes == truth).ravel()))
    return [*line, float(found.model.rank)]


def show_real(data: Path) -> None:
    """Print a line for each number of latent classes of mre-treat as two tags."""
    log, truth = read_judged(data, "mre-treat")
    owners, labels = np.divmod(log.block.indices, log.n_classes)
    tasks = np.repeat(np.arange(log.n_tasks), np.diff(log.block.indptr))
    table = {"task": tasks, "worker": owners, "label": labels}
    judged = np.flatnonzero(truth >= 0)
    actual = truth[judged, None] == np.arange(log.n_classes)
    print(f"\n{'mre-treat':18}" + "".join(f"{head:>11}" for head in ("wrong", "ECE", "log-loss")))
    for rank in (1, 2, "auto"):
        shares = aggregate_tags(table, rank=rank, tags=range(log.n_classes)).probabilities[judged]
        right = (shares > 0.5) == actual
        given = np.maximum(np.where(actual, shares, 1 - shares), LEAST_PROBABILITY)
        ece = measure_sizes(np.maximum(shares, 1 - shares).ravel(), right.ravel())
        line = 100 * float(1 - right.mean()), ece, -float(np.log(given).mean())
        show(f"{rank} classes", line)


def main() -> None:
    """Draw, aggregate, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="folder of public logs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    heads = (*HEADS, "ECE one", "together", "found")
    print(f"{'taggings, classes':18}" + "".join(f"{head:>11}" for head in heads))
    everything = []
    for n_taggings in TAGGINGS:
        for rank in RANKS:
            seeds = range(options.first, options.first + options.seeds)
            lines = [measure(options.tasks, n_taggings, rank, seed) for seed in seeds]
            everything += lines
            show(f"{n_taggings} taggings, {rank}", np.mean(lines, axis=0).tolist())
    show("all", np.mean(everything, axis=0).tolist())
    if options.data:
        show_real(options.data)


def show(title: str, line: Sequence[float]) -> None:
    """Print a line."""
    print(f"{title:18}" + "".join(f"{value:11.2f}" for value in line), flush=True)


if __name__ == "__main__":
    main()
