"""Label errors on logs of many sizes and shapes, next to majority vote's.

    python benchmarks/crowd_stress.py [--seeds 2] [--first 0] [--json stress.json]

prints, for each method, the mean difference from majority vote in points, the worst, and on how many logs it was worse
by more than a point; majority vote's ties count in part.
"""

# ruff: noqa: E402  threads are limited before NumPy loads

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import json
import warnings
from pathlib import Path
from typing import get_args

import numpy as np

from pmflib.crowd import aggregate, read_answers
from pmflib.crowd.synthetic import Flavour, draw_crowd

SHAPES = {
    "2 classes, 164 workers, 10 answers": (800, 164, 2, 10, False),
    "2 classes, 400 workers, 4.6 answers": (4000, 400, 2, 4.6, False),
    "2 classes, 200 workers, 5 answers": (1000, 200, 2, 5, False),
    "2 classes, 39 workers, all answer": (108, 39, 2, 39, False),
    "2 classes, 25 workers, 1.5 answers": (500, 25, 2, 1.5, False),
    "2 classes, rare, 180 workers, 3 answers": (3000, 180, 2, 3, True),
    "2 classes, rare, 25 workers, 3 answers": (600, 25, 2, 3, True),
    "3 classes, rare, 100 workers, 3 answers": (1000, 100, 3, 3, True),
    "3 classes, rare, 25 workers, 1.5 answers": (1000, 25, 3, 1.5, True),
    "4 classes, 27 workers, 9 answers": (584, 27, 4, 9, False),
    "4 classes, 269 workers, 10 answers": (333, 269, 4, 10, False),
    "4 classes, 600 workers, 3 answers": (3000, 600, 4, 3, False),
    "4 classes, 760 workers, 5 answers": (1500, 760, 4, 5, False),
    "5 classes, 177 workers, 5.8 answers": (1500, 177, 5, 5.8, False),
    "5 classes, 110 workers, 20 answers": (300, 110, 5, 20, False),
    "5 classes, 60 workers, 1.6 answers": (800, 60, 5, 1.6, False),
    "5 classes, rare, 150 workers, 5 answers": (1000, 150, 5, 5, True),
    "8 classes, 59 workers, 2.5 answers": (1000, 59, 8, 2.5, False),
    "10 classes, 44 workers, 4.2 answers": (700, 44, 10, 4.2, False),
    "10 classes, rare, 80 workers, 4 answers": (2000, 80, 10, 4, True),
}
METHODS = ("auto", "dawid_skene", "one_coin", "balanced", "mv_em")


def find_error(posterior: np.ndarray, classes: list[int], truth: np.ndarray) -> float:
    """Per cent of wrong labels, ties counted in part."""
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    right = np.array(
        [classes.index(one) if one in classes else -1 for one in range(truth.max() + 1)]
    )
    places = right[truth]
    hit = np.where(places >= 0, top[np.arange(truth.size), places], False)
    return 100 * (1 - float((hit / top.sum(axis=1)).mean()))


def main() -> None:
    """Draw every log, run every method, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--first", type=int, default=0, help="first seed: the default was chosen on 0 to 3"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for place, (shape, (*sizes, rare)) in enumerate(SHAPES.items()):
        for flavour in get_args(Flavour):
            for seed in range(options.first, options.first + options.seeds):
                rng = np.random.default_rng([seed, place, *flavour.encode()])
                crowd = draw_crowd(*sizes, rng, flavour=flavour, rare=rare)
                answers = read_answers(crowd.answers)
                classes = answers.classes.to_pylist()
                truth = crowd.truth[np.array(answers.tasks.to_pylist())]
                errors = {
                    method: find_error(aggregate(answers, method).posterior, classes, truth)
                    for method in ("majority", *METHODS)
                }
                rows.append({"shape": shape, "flavour": flavour, "seed": seed, **errors})
    votes = np.array([row["majority"] for row in rows])
    print(f"{len(rows)} logs, majority vote {votes.mean():.2f} % wrong")
    for method in METHODS:
        gaps = np.array([row[method] for row in rows]) - votes
        worst = rows[int(gaps.argmax())]
        where = f"{worst['shape']}, {worst['flavour']}, seed {worst['seed']}"
        n_worse = int((gaps > 1).sum())
        print(
            f"{method:12} mean {gaps.mean():+6.2f}, worst {gaps.max():+6.2f} ({where}), "
            f"more than a point worse on {n_worse}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
