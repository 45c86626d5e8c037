"""Rank by folds of counts on real data, and by held-out samples where there is a standard split.

    python -m benchmarks.ranks.real_data --data ../shared/data --sets votes,nltcs,plants,ml-100k,pisa2009

prints for each set the choice and its reason, the curve, and the process CPU seconds. For nltcs and plants
ranks are also evaluated on the validation samples; the rank chosen is then fitted as the pipeline does, which
chooses the rest anew, and the log-likelihood per test sample printed. With --plot FILE.png (or .svg) the curves are
drawn too, with the standard errors of the differences from the best score as bars. Single-threaded.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.plots import Curve, Panel, add_plot_option, draw_panels
from pmflib.base.comparison import ScoredCandidate
from pmflib.base.errors import ConvergenceWarning
from pmflib.fits.ranks.by_pairs import select_rank
from pmflib.fits.ranks.by_samples import select_rank_by_samples
from pmflib.fits.ranks.choice import RankChoice

# columns of more distinct texts are no questions
MOST_LEVELS = 20


def read_votes(folder: Path) -> tuple[np.ndarray, list[int]]:
    """Party and votes; a vote not cast is missing."""
    codes = np.loadtxt(folder / "UCI_VOTERS.data", delimiter=",", dtype=np.int8)
    codes[codes == 2] = -1
    return codes, [2] * codes.shape[1]


def read_ratings(folder: Path) -> tuple[np.ndarray, list[int]]:
    """Users by movies of 100 ratings or more: 16 tables of all levels of all movies would take 9 GB."""
    rows = np.loadtxt(gzip.open(folder / "u.data.gz"), dtype=np.int64)
    codes = np.full(rows[:, :2].max(axis=0), -1, np.int8)
    codes[rows[:, 0] - 1, rows[:, 1] - 1] = rows[:, 2] - 1
    codes = codes[:, (codes >= 0).sum(axis=0) >= 100]
    return codes, [5] * codes.shape[1]


def read_survey(folder: Path) -> tuple[np.ndarray, list[int]]:
    """Country and questions of the PISA questionnaire; levels in the order of their names."""
    with gzip.open(folder / "pisaitems.csv.gz", "rt", encoding="utf-8") as lines:
        _, *rows = csv.reader(lines)
    columns, sizes = [], []
    for texts in zip(*rows, strict=True):
        levels = {text: code for code, text in enumerate(sorted(set(texts) - {""}))}
        if len(levels) <= MOST_LEVELS:
            columns.append([levels.get(text, -1) for text in texts])
            sizes.append(len(levels))
    return np.array(columns, np.int8).T, sizes


def read_binary(folder: Path, part: str) -> np.ndarray:
    """One part of a density benchmark."""
    file = folder / f"{folder.name}.{part}.data.gz"
    with gzip.open(file, "rt") as lines:
        return np.loadtxt(lines, delimiter=",", dtype=np.int8)


def select_by_pairs(name: str, codes: np.ndarray, sizes: list[int]) -> RankChoice:
    """Print the choice by pairs and its curve."""
    counts = pmf.count_pairs(codes, sizes)
    started = time.process_time()
    choice = select_rank(counts)
    spent = time.process_time() - started
    print(
        f"\n{name}: rank {choice.rank}, {spent:.1f} s; {'; '.join((choice.reason, *choice.notes))}"
    )
    for comparison in choice.comparisons:
        print_scores(comparison.points, digits=6)
    return choice


def print_scores(points: Sequence[ScoredCandidate], digits: int) -> None:
    """Print a line for each candidate."""
    for point in points:
        print(
            f"  rank {point.settings['rank']:3d} pseudo-count {point.settings['pseudo_count']:4g}: "
            f"{point.score:.{digits}f}, {point.below_best:9.2g} below the best, error {point.error:.2g}"
        )


def select_by_samples(folder: Path) -> tuple[RankChoice, RankChoice]:
    """Print both choices, by pairs and by samples, and the test score of the model the pipeline would fit."""
    codes, validation, test = (read_binary(folder, part) for part in ("train", "valid", "test"))
    sizes = [2] * codes.shape[1]
    by_pairs = select_by_pairs(folder.name, codes, sizes)
    counts = pmf.count_pairs(codes, sizes)
    started = time.process_time()
    choice = select_rank_by_samples(codes, validation, counts, first=by_pairs.rank)
    spent = time.process_time() - started
    print(f"  by samples: rank {choice.rank}, pseudo-count {choice.pseudo_count:g}, {spent:.1f} s")
    print_scores(choice.curve, digits=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = pmf.fit_em(codes, rank=choice.rank, schema=counts.schema, validation=validation)
    print(f"  test: {found.model.log_prob(test).mean():.4f} nats per sample", flush=True)
    return by_pairs, choice


def make_pairs_panel(name: str, choice: RankChoice) -> Panel:
    """The curve by pairs."""
    curve = make_curve(f"pseudo-count {choice.curve[0].settings['pseudo_count']:g}", choice.curve)
    return make_panel(f"{name}, by pairs", "pair", choice, [curve])


def make_samples_panel(name: str, choice: RankChoice) -> Panel:
    """The curve by samples for each pseudo-count."""
    by_pseudo_count: dict[float, list[ScoredCandidate]] = {}
    for point in choice.curve:
        by_pseudo_count.setdefault(float(point.settings["pseudo_count"]), []).append(point)
    curves = [
        make_curve(f"pseudo-count {each:g}", by_pseudo_count[each])
        for each in sorted(by_pseudo_count)
    ]
    return make_panel(f"{name}, by samples", "sample", choice, curves)


def make_curve(label: str, points: Sequence[ScoredCandidate]) -> Curve:
    """Scores less the best score: differences are far below the scores, and the errors are theirs."""
    return Curve(
        label,
        [int(point.settings["rank"]) for point in points],
        [-point.below_best for point in points],
        [point.error or 0.0 for point in points],
    )


def make_panel(title: str, unit: str, choice: RankChoice, curves: list[Curve]) -> Panel:
    """The curves of a choice, under an axis that says what the best score is."""
    best = max(point.score for point in choice.curve)
    y_name = f"score less the best, {best:.6g} nats per {unit}"
    return Panel(title, "rank", y_name, curves, chosen=choice.rank, whole=True)


def main() -> None:
    """Go through the sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sets", default="votes,nltcs,plants,ml-100k,pisa2009")
    add_plot_option(parser)
    options = parser.parse_args()
    panels = []
    readers = {"votes": read_votes, "ml-100k": read_ratings, "pisa2009": read_survey}
    for name in options.sets.split(","):
        folder = options.data / name
        if name in readers:
            panels.append(make_pairs_panel(name, select_by_pairs(name, *readers[name](folder))))
        else:
            by_pairs, by_samples = select_by_samples(folder)
            panels += [make_pairs_panel(name, by_pairs), make_samples_panel(name, by_samples)]
    if options.plot:
        draw_panels(panels, options.plot)


if __name__ == "__main__":
    main()
