"""Label errors where classes are said to be in order, next to those where they are not.

    python -m benchmarks.crowd.ordered_classes [--seeds 20] [--first 600]

draws logs whose classes are the bands of a scale (scenario "order" of `draw_crowd`: workers are lenient or severe, and
tasks near an edge hard), with few labels of each worker and with many, and logs whose mistakes do not go by distance
("plain", "bias"); prints the error of the default in per cent and the mean distance of the expected class from the true
one, without the order, and what changes with it, with standard errors over seeds. That pseudo-mistakes have a
concentration of their own, and that workers have no lean, was decided on seeds 500 to 513.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

# first, for it limits threads before NumPy loads
from benchmarks.crowd.published_tables import find_error
from benchmarks.crowd.scenarios import ScenarioName, draw_crowd
from pmflib.crowd import aggregate, read_labels

SHAPES = {
    "200 tasks, 100 workers, 5 classes, 2 labels": (200, 100, 5, 2),
    "150 tasks, 30 workers, 5 classes, 3 labels": (150, 30, 5, 3),
    "300 tasks, 60 workers, 5 classes, 3 labels": (300, 60, 5, 3),
    "400 tasks, 80 workers, 7 classes, 3 labels": (400, 80, 7, 3),
    "1,000 tasks, 150 workers, 5 classes, 5 labels": (1000, 150, 5, 5),
    "3,000 tasks, 20 workers, 5 classes, 5 labels": (3000, 20, 5, 5),
}
SCENARIOS: tuple[ScenarioName, ...] = ("order", "plain", "bias")


def measure(scenario: ScenarioName, shape: tuple[int, int, int, int], seed: int) -> np.ndarray:
    """Error and distance, without the order and with it: (2, 2)."""
    n_tasks, n_workers, n_classes, n_labels = shape
    rng = np.random.default_rng([seed, *scenario.encode()])
    crowd = draw_crowd(n_tasks, n_workers, n_classes, n_labels, rng, scenario=scenario)
    log = read_labels(crowd.log, classes=range(n_classes))
    truth = crowd.truth[log.tasks.to_numpy()]
    rows = []
    for ordinal in (False, True):
        posterior = aggregate(log, ordinal=ordinal).posterior
        distance = np.abs(posterior @ np.arange(n_classes) - truth).mean()
        rows.append((find_error(posterior, log, dict(enumerate(crowd.truth))), distance))
    return np.array(rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=600, help="first seed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for scenario in SCENARIOS:
        print(f"{scenario}: error, %, and its change; distance and its change")
        everything = []
        for name, shape in SHAPES.items():
            seeds = range(options.first, options.first + options.seeds)
            found = np.array([measure(scenario, shape, seed) for seed in seeds])
            show(name, found)
            everything.append(found)
        show("all", np.concatenate(everything))


def show(name: str, found: np.ndarray) -> None:
    """Print the means over trials, (n_trials, 2, 2)."""
    gaps = found[:, 1] - found[:, 0]
    errors = gaps.std(axis=0, ddof=1) / len(gaps) ** 0.5
    (error, distance), (more, farther) = found[:, 0].mean(axis=0), gaps.mean(axis=0)
    first = f"{error:6.2f} {more:+.2f} (s.e. {errors[0]:.2f})"
    print(f"  {name:46} {first}   {distance:.3f} {farther:+.4f} ({errors[1]:.4f})", flush=True)


if __name__ == "__main__":
    main()
