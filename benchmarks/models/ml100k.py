"""MovieLens 100K through the pipeline: expected ratings of hidden (user, movie) pairs against averages.

    python -m benchmarks.models.ml100k ../shared/data/ml-100k

takes the movies with at least 100 ratings as variables, hides 20 % of their ratings, runs ``pmf infer``,
``pmf run`` and ``pmf score --questions`` on the rest, and prints RMSE and MAE next to the
global, user and movie averages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.movielens import read_log
from pmflib.papers.metrics import mae, rmse

COLUMNS = "user,movie,rating,ts"


def main() -> None:
    """Split, run the pipeline, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the MovieLens folder")
    parser.add_argument("--rank", type=int, default=5)
    parser.add_argument("--min-count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    log = read_log(options.path).astype(np.int64)
    popular = np.flatnonzero(np.bincount(log[:, 1]) >= options.min_count)
    hidden = np.random.default_rng(options.seed).random(len(log)) < 0.2
    hidden &= np.isin(log[:, 1], popular)
    known = log[~hidden & np.isin(log[:, 1], popular)]
    print(f"{popular.size} movies, {len(known)} known and {hidden.sum()} hidden ratings")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "popular.csv", log[np.isin(log[:, 1], popular)])
        write(folder / "known.csv", known)
        write(folder / "questions.csv", log[hidden])
        run_pmf(
            "infer",
            "known.csv",
            *"--sample user --variable movie --value rating --time ts".split(),
            "--rank",
            str(options.rank),
            folder=folder,
        )
        run_pmf("run", "pipeline.toml", folder=folder)
        answers = run_pmf("score", "pipeline.toml", "--questions", "questions.csv", folder=folder)
    truth = log[hidden][:, 2]
    # all movies are rated on one scale
    (errors,) = answers["errors"].values()
    rows = [("model", errors["rmse"], errors["mae"])]
    rows += [
        (name, rmse(guess, truth), mae(guess, truth))
        for name, guess in averages(known, log[hidden]).items()
    ]
    print(f"{'':>14}  RMSE    MAE")
    for name, root, absolute in rows:
        print(f"{name:>14}  {root:.4f}  {absolute:.4f}")


def write(path: Path, log: np.ndarray) -> None:
    """Write a log as CSV with a header."""
    np.savetxt(path, log, "%d", ",", header=COLUMNS, comments="")


def run_pmf(*words: str, folder: Path) -> dict[str, Any]:
    """Run the command as a user does, and read its JSON."""
    command = [sys.executable, "-m", "pmflib_flows", *words, "--json"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def averages(known: np.ndarray, asked: np.ndarray) -> dict[str, np.ndarray]:
    """Guesses of the global, the user's and the movie's mean rating; the global one where there is no other."""
    overall = known[:, 2].mean()
    guesses = {"global average": np.full(len(asked), overall)}
    for name, column in (("user average", 0), ("movie average", 1)):
        size = int(max(known[:, column].max(), asked[:, column].max())) + 1
        number = np.bincount(known[:, column], minlength=size)
        total = np.bincount(known[:, column], known[:, 2], minlength=size)
        means = np.where(number > 0, total / np.maximum(number, 1), overall)
        guesses[name] = means[asked[:, column]]
    return guesses


if __name__ == "__main__":
    main()
