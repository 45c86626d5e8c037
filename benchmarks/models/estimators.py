"""The estimators next to their peers, all at default settings: classes, missing cells, unusual rows.

    python -m benchmarks.models.estimators classes --sets car,votes,nltcs
    python -m benchmarks.models.estimators cells --sets pisa2009,ml-100k
    python -m benchmarks.models.estimators rows

`classes`: five folds, shuffled and stratified, each tested once; the texts are given as a frame. nltcs is its last
variable from the others, 5,000 rows. `cells`: of 6,000 students of pisa2009, 15 % of the answers to 80 questions are
hidden, and of the movies of ml-100k with 100 ratings or more a fifth of the ratings; the tables are numbers, in the
order of the answers, and a guess counts as right where it rounds to the truth. `rows`: 2,000 rows of a planted model of
12 variables with 4 levels, of which the cells of 5 % are shuffled, each column on its own; the smaller the
concentration, the more distinct the states. Every detector is fitted to all rows, and ranks them all.

Nothing was tuned on these sets but the fit for a target, on car and nltcs among others: see `targets.py`. "less" is the
peer's figure less ours, paired, with its standard error: over rows, over cells, or over draws. Seconds are of processor
time of a fit with its predictions, medians, without compilation.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.models.estimator_peers import CLASSIFIERS, DETECTORS, IMPUTERS
from benchmarks.models.movielens import read_log
from benchmarks.models.targets import read_lines
from pmflib.synthetic.planted_models import planted_factors

N_FOLDS = 5
LEAST_PROBABILITY = 1e-15
"""Probabilities are cut off here, as scikit-learn's log-loss does."""
MIN_RATINGS = 100
N_STUDENTS = 6000
N_ROWS, SHARE_ODD = 2000, 0.05
CONCENTRATIONS = (0.3, 0.6, 1.0)

Seconds = dict[str, list[float]]


def timed(
    seconds: Seconds, name: str, work: Callable[..., np.ndarray], *given: object
) -> np.ndarray:
    """Do work, and note its processor time."""
    began = time.process_time()
    found = work(*given)
    seconds.setdefault(name, []).append(time.process_time() - began)
    return found


def compare(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Mean of the paired differences with its standard error."""
    gaps = theirs - ours
    return f"{gaps.mean():+.4f} +- {gaps.std(ddof=1) / np.sqrt(gaps.size):.4f}"


def print_rows(heads: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def read_classes(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns of texts, None where missing, and classes."""
    if name == "car":
        table = read_lines(DATA / "car" / "UCI_CAR.data", ",").astype(object)
        return pd.DataFrame(table[:, :-1]).add_prefix("x"), table[:, -1].astype(str)
    if name == "votes":
        table = read_lines(DATA / "votes" / "UCI_VOTERS.data", ",").astype(object)
        votes = table[:, 1:]
        votes[votes == "2"] = None
        return pd.DataFrame(votes).add_prefix("x"), table[:, 0].astype(str)
    table = read_lines(DATA / name / f"{name}.train.data.gz", ",").astype(object)[:5000]
    return pd.DataFrame(table[:, :-1]).add_prefix("x"), table[:, -1].astype(str)


def run_classes(name: str, without: list[str]) -> None:
    """Table of a set for classification."""
    X, y = read_classes(name)
    peers = {peer: fit for peer, fit in CLASSIFIERS.items() if peer not in without}
    seconds: Seconds = {}
    losses = {peer: np.empty(len(y)) for peer in peers}
    hits = {peer: np.empty(len(y)) for peer in peers}
    CLASSIFIERS["PMFClassifier"](X[::10], y[::10], X)
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    for train, test in folds.split(X, y):
        codes = np.unique(y[train], return_inverse=True)[0].searchsorted(y[test])
        for peer, fit in peers.items():
            found = timed(seconds, peer, fit, X.iloc[train], y[train], X.iloc[test])
            found = found / found.sum(axis=1, keepdims=True)
            of_truth = found[np.arange(codes.size), codes]
            losses[peer][test] = -np.log(np.maximum(of_truth, LEAST_PROBABILITY))
            hits[peer][test] = found.argmax(axis=1) == codes
    ours = next(iter(peers))
    print(f"\nclasses of {name}: {len(y)} rows, {X.shape[1]} columns, {N_FOLDS} folds")
    print_rows(
        ["classifier", "accuracy", "less", "log-loss", "less", "s"],
        [
            [
                peer,
                f"{hits[peer].mean():.4f}",
                "" if peer == ours else compare(hits[ours], hits[peer]),
                f"{losses[peer].mean():.4f}",
                "" if peer == ours else compare(losses[ours], losses[peer]),
                f"{statistics.median(seconds[peer]):.2f}",
            ]
            for peer in peers
        ],
    )


def read_cells(name: str) -> tuple[np.ndarray, float]:
    """Table of numbers, NaN where missing, and the share of cells to hide."""
    if name == "pisa2009":
        lines = read_lines(DATA / "pisa2009" / "pisaitems.csv.gz", ",")
        rows = np.random.default_rng(0).permutation(len(lines) - 1)[:N_STUDENTS] + 1
        frame = pd.DataFrame(lines[rows, 1:], columns=lines[0, 1:])
        codes = pmf.Schema.infer(frame).encode(frame)
        return np.where(codes < 0, np.nan, codes).astype(np.float64), 0.15
    log = read_log(DATA / "ml-100k").astype(np.int64)
    popular = np.flatnonzero(np.bincount(log[:, 1]) >= MIN_RATINGS)
    log = log[np.isin(log[:, 1], popular)]
    users, rows = np.unique(log[:, 0], return_inverse=True)
    table = np.full((users.size, popular.size), np.nan)
    table[rows, popular.searchsorted(log[:, 1])] = log[:, 2]
    return table, 0.2


def run_cells(name: str, splits: int, without: list[str]) -> None:
    """Table of a set for imputation."""
    table, share = read_cells(name)
    peers = {peer: fill for peer, fill in IMPUTERS.items() if peer not in without}
    if name != "ml-100k":
        peers.pop("biased factorisation", None)
    seconds: Seconds = {}
    hits: dict[str, list[np.ndarray]] = {}
    squares: dict[str, list[np.ndarray]] = {}
    losses = []
    IMPUTERS["PMFImputer, mode"](table[:200, :20])
    for seed in range(splits):
        hidden = (np.random.default_rng(seed).random(table.shape) < share) & ~np.isnan(table)
        given = np.where(hidden, np.nan, table)
        truth = table[hidden]
        for peer, fill in peers.items():
            found = timed(seconds, peer, fill, given)[hidden]
            hits.setdefault(peer, []).append(np.round(found) == truth)
            squares.setdefault(peer, []).append((found - truth) ** 2)
        losses.append(lose_cells(given, table, hidden))
    print(
        f"\ncells of {name}: {table.shape[0]} rows, {table.shape[1]} columns, {np.isnan(table).mean():.0%} missing "
        f"before {share:.0%} of the others are hidden, {splits} times"
    )
    right = {peer: np.concatenate(each).astype(float) for peer, each in hits.items()}
    errors = {peer: np.concatenate(each) for peer, each in squares.items()}
    by_mode, by_mean = "PMFImputer, mode", "PMFImputer, mean"
    print_rows(
        ["imputer", "accuracy", "less", "RMSE", "squared error less", "s"],
        [
            [
                peer,
                f"{right[peer].mean():.4f}",
                "" if peer == by_mode else compare(right[by_mode], right[peer]),
                f"{np.sqrt(errors[peer].mean()):.4f}",
                "" if peer == by_mean else compare(errors[by_mean], errors[peer]),
                f"{statistics.median(seconds[peer]):.2f}",
            ]
            for peer in peers
        ],
    )
    print(
        "log-loss of hidden cells: the imputer's model {:.4f}, the columns' shares {:.4f}".format(
            *np.mean(losses, axis=0)
        )
    )


def lose_cells(given: np.ndarray, table: np.ndarray, hidden: np.ndarray) -> tuple[float, float]:
    """Log-loss of hidden cells by the imputer's model, and by the shares of each column's levels."""
    imputer = pmf.PMFImputer().fit(given)
    schema = imputer.model_.schema
    names = [f"x{index}" for index in range(table.shape[1])]
    codes = schema.encode({name: column for name, column in zip(names, given.T, strict=True)})
    posterior = imputer.model_.posterior(codes)
    losses: list[np.ndarray] = []
    shares: list[np.ndarray] = []
    for index, variable in enumerate(schema):
        column = names.index(variable.name)
        rows = np.flatnonzero(hidden[:, column])
        truth = np.array([variable.encode_value(value) for value in table[rows, column].tolist()])
        rows, truth = rows[truth >= 0], truth[truth >= 0]
        found = posterior[rows] @ imputer.model_.factor(index).T
        losses.append(-np.log(found[np.arange(truth.size), truth]))
        counts = np.bincount(codes[codes[:, index] >= 0, index], minlength=variable.cardinality)
        shares.append(-np.log((counts / counts.sum())[truth]))
    return float(np.concatenate(losses).mean()), float(np.concatenate(shares).mean())


def draw_rows(concentration: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of a planted model's rows, and which of them have shuffled cells."""
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors([4] * 12, 5, rng, concentration=concentration)
    model = pmf.JointPMF(prior, factors, pmf.Schema.from_cardinalities([4] * 12))
    codes = model.sample(N_ROWS, rng)
    is_odd = np.zeros(N_ROWS, bool)
    is_odd[rng.permutation(N_ROWS)[: int(SHARE_ODD * N_ROWS)]] = True
    # cells of other rows, so that each column stays as it is
    for column in codes.T:
        column[is_odd] = rng.choice(column[~is_odd], is_odd.sum())
    return codes, is_odd


def run_rows(draws: int, without: list[str]) -> None:
    """Table of unusual rows."""
    peers = {peer: score for peer, score in DETECTORS.items() if peer not in without}
    ours = next(iter(peers))
    DETECTORS["PMFDensity"](draw_rows(1.0, 0)[0][:200])
    seconds: Seconds = {}
    areas: dict[str, dict[float, np.ndarray]] = {peer: {} for peer in peers}
    for concentration in CONCENTRATIONS:
        found: dict[str, list[float]] = {}
        for seed in range(draws):
            codes, is_odd = draw_rows(concentration, seed)
            for peer, score in peers.items():
                scores = timed(seconds, peer, score, codes)
                found.setdefault(peer, []).append(roc_auc_score(is_odd, scores))
        for peer, each in found.items():
            areas[peer][concentration] = np.array(each)
    print(f"\nunusual rows: area under the curve, {draws} draws of {N_ROWS} rows")
    heads = [f"concentration {each:g}" for each in CONCENTRATIONS]
    print_rows(
        ["detector", *[part for head in heads for part in (head, "less")], "s"],
        [
            [
                peer,
                *[
                    part
                    for concentration in CONCENTRATIONS
                    for part in (
                        f"{areas[peer][concentration].mean():.4f}",
                        ""
                        if peer == ours
                        else compare(areas[ours][concentration], areas[peer][concentration]),
                    )
                ],
                f"{statistics.median(seconds[peer]):.2f}",
            ]
            for peer in peers
        ],
    )


def list_absent() -> list[str]:
    """Peers that are not installed."""
    try:
        import stepmix  # noqa: F401
    except ImportError:
        print("StepMix is left out: it is not installed")
        return ["StepMix"]
    return []


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["classes", "cells", "rows"])
    parser.add_argument("--sets", default="", help="comma-separated; default: all that are there")
    parser.add_argument("--splits", type=int, default=3, help="of hidden cells")
    parser.add_argument("--draws", type=int, default=5, help="of planted models")
    parser.add_argument("--without", default="", help="peers to leave out, comma-separated")
    options = parser.parse_args()
    # peers say much of limits of iterations that are their defaults
    warnings.simplefilter("ignore")
    without = [*list_absent(), *(each for each in options.without.split(",") if each)]
    requested = [each for each in options.sets.split(",") if each]
    programs: Mapping[str, tuple[tuple[str, ...], Callable[[str], None]]] = {
        "classes": (("car", "votes", "nltcs"), lambda name: run_classes(name, without)),
        "cells": (
            ("pisa2009", "ml-100k"),
            lambda name: run_cells(name, options.splits, without),
        ),
    }
    if options.what == "rows":
        run_rows(options.draws, without)
        return
    sets, run = programs[options.what]
    for name in requested or sets:
        if Path(DATA / name).exists():
            run(name)
        else:
            print(f"{name} is left out: {DATA / name} is not there")


if __name__ == "__main__":
    main()
