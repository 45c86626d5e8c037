"""Tables VIII to XI of the joint-PMF paper: class from categorical features, against its methods and the usual ones.

    python -m benchmarks.models.uci ../shared/data/car/UCI_CAR.data ../shared/data/votes/UCI_VOTERS.data
    python -m benchmarks.models.uci nursery=PATH mushroom=PATH --trials 5 --short

The methods were designed on splits 0 to 19; --first 100 takes splits that had no part in it.

Files as the UCI repository has them; a file is known by its name, or named. All methods see the same random splits, of
the shares that the released code takes; they learn from the training rows, choose on the validation rows, and are
scored on the test rows.

The paper's methods: rank by validation accuracy from its grid, 30 passes of EM, missing codes replaced by the most
frequent one; CNMF-OPT by closed-form updates of its loss. `auto`: the mean of ten fits of the joint PMF of features and
class by one call of fit_em, which chooses start, pseudo-count and passes by the validation rows' log-likelihood of the
class, as the rank is chosen of six; a missing code is a level. `auto-rank`: the same with the rank of select_rank.
Logistic regression and the support vector machines see one-hot columns and choose their penalty on the validation rows.
Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import CategoricalNB
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC, LinearSVC

import pmflib as pmf
from benchmarks.published import REFERENCE, read_published
from pmflib.base.method_options import MethodChoice
from pmflib.counts.triple_counts import TripleCounts, count_triples

RANKS = (2, 4, 8, 16, 32, 64)
MEMBERS = 10
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
PUBLISHED_PASSES = 30


@dataclass(frozen=True)
class Set:
    """A data set: the class first, and what the published experiments did with it."""

    name: str
    table: int
    codes: np.ndarray
    imputed: np.ndarray
    shares: tuple[float, float]
    ranks: tuple[int, ...]

    @property
    def schema(self) -> pmf.Schema:
        """Levels of the whole set: a split may lack some."""
        return pmf.Schema.from_cardinalities((self.codes.max(axis=0) + 1).tolist())


@dataclass(frozen=True)
class Split:
    """Row numbers."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


Classify = Callable[[np.ndarray], np.ndarray]
"""Classes of rows, given by their numbers."""


SLIDES_SHARES = (0.7, 0.8)
"""Training and validation rows of the slides' tables: 70:10:20."""


def read_set(name: str, path: Path) -> Set:
    """Read a file of the UCI repository."""
    table = np.array([line.strip().split(",") for line in path.open() if line.strip()])
    missing = "2" if name == "votes" else "?"
    if name in ("car", "nursery"):
        table = np.roll(table, 1, axis=1)
    if name == "nursery":
        # as released: `finance` is left out, and two classes are one
        table = np.delete(table, 6, axis=1)
        table[table[:, 0] == "spec_prior", 0] = "priority"
    columns = [column for column in table.T if np.unique(column).size > 1]
    codes = [np.unique(column, return_inverse=True)[1] for column in columns]
    imputed = []
    for column, code in zip(columns, codes, strict=True):
        # as released: the most frequent code, the missing one among them
        imputed.append(np.where(column == missing, np.bincount(code).argmax(), code))
    grids = {
        "votes": (8, (0.5, 0.7), (2, 3, 4, 5, 6)),
        "car": (9, (0.5, 0.8), (2, 3, 4, 5)),
        "nursery": (10, (0.4, 0.7), (2, 3, 4, 5)),
        "mushroom": (11, (0.4, 0.7), (5, 10, 15)),
    }
    number, shares, ranks = grids[name]
    return Set(
        name, number, np.array(codes, np.int8).T, np.array(imputed, np.int8).T, shares, ranks
    )


def split_rows(data: Set, seed: int) -> Split:
    """Deal the rows as the released code does."""
    n_rows = len(data.codes)
    order = np.random.default_rng(seed).permutation(n_rows)
    edges = [round(n_rows * share) for share in data.shares]
    return Split(*np.split(order, edges))


def score(data: Set, classify: Classify, rows: np.ndarray) -> float:
    """Share of the rows whose class is found."""
    return float(np.mean(classify(rows) == data.codes[rows, 0]))


def choose_published(
    data: Set, split: Split, fit: Callable[[np.ndarray, int], pmf.JointPMF]
) -> Classify:
    """Rank by validation accuracy, the smaller of equals; ranks that a method refuses are left out."""
    best: tuple[float, Classify] = -1.0, lambda rows: np.zeros(len(rows), int)
    for rank in data.ranks:
        try:
            model = fit(data.imputed[split.train], rank)
        except pmf.PmfError:
            continue

        def classify(rows: np.ndarray, model: pmf.JointPMF = model) -> np.ndarray:
            return model.predict(data.imputed[rows], 0)

        reached = score(data, classify, split.validation)
        if reached > best[0]:
            best = reached, classify
    return best[1]


def fit_published(data: Set, split: Split) -> dict[str, Callable[[], Classify]]:
    """The paper's methods."""
    schema = data.schema
    kept: dict[str, TripleCounts] = {}

    def of_pairs(train: np.ndarray, rank: int, method: MethodChoice) -> pmf.JointPMF:
        return pmf.fit(pmf.count_pairs(train, schema, n_folds=1), rank, method=method).model

    def of_triples(train: np.ndarray, rank: int, loss: str) -> pmf.JointPMF:
        counts = kept.setdefault("triples", count_triples(train, schema))
        return pmf.fits.fit_triples(counts, rank, loss="kl" if loss == "kl" else "squares").model

    def refine(train: np.ndarray, model: pmf.JointPMF) -> pmf.JointPMF:
        return pmf.fit_em(train, clip(model), pseudo_count=0.0, max_passes=PUBLISHED_PASSES).model

    return {
        "CNMF-SPA": lambda: choose_published(
            data, split, lambda train, rank: clip(of_pairs(train, rank, "spa"))
        ),
        "CNMF-OPT": lambda: choose_published(
            data, split, lambda train, rank: clip(of_pairs(train, rank, "opt"))
        ),
        "CNMF-SPA, first": lambda: choose_published(
            data,
            split,
            lambda train, rank: clip(of_pairs(train, rank, {"name": "spa", "split": "first"})),
        ),
        "CNMF-OPT, mirror": lambda: choose_published(
            data, split, lambda train, rank: clip(of_pairs(train, rank, "mirror"))
        ),
        "CNMF-SPA-EM": lambda: choose_published(
            data, split, lambda train, rank: refine(train, of_pairs(train, rank, "spa"))
        ),
        "CTD": lambda: choose_published(
            data, split, lambda train, rank: clip(of_triples(train, rank, "squares"))
        ),
        "CTD-EM": lambda: choose_published(
            data, split, lambda train, rank: refine(train, of_triples(train, rank, "squares"))
        ),
        "MLE-AD-EM": lambda: choose_published(
            data, split, lambda train, rank: refine(train, of_triples(train, rank, "kl"))
        ),
    }


def clip(model: pmf.JointPMF) -> pmf.JointPMF:
    """No probability below 1e-6, as released."""
    factors = np.maximum(model.factors, 1e-6)
    offsets = model.schema.offsets
    sums = np.repeat(np.add.reduceat(factors, offsets[:-1], axis=0), np.diff(offsets), axis=0)
    prior = np.maximum(model.prior, 1e-6)
    return pmf.JointPMF(prior / prior.sum(), factors / sums, model.schema)


def fit_auto(data: Set, split: Split, ranks: Sequence[int] = RANKS) -> Classify:
    """The joint PMF as one call fits it, evaluated by the class of the validation rows; the best rank of some."""
    train, validation = data.codes[split.train], data.codes[split.validation]
    options = {"schema": data.schema, "validation": validation, "target": 0, "members": MEMBERS}
    results = [pmf.fit_em(train, rank=rank, **options) for rank in ranks]
    chosen = max(results, key=lambda result: max(result.held_out)).model
    return lambda rows: chosen.predict(data.codes[rows], 0)


def fit_rank_of_pairs(data: Set, split: Split) -> Classify:
    """The same, with the rank that is found from pairs of the training rows."""
    counts = pmf.count_pairs(data.codes[split.train], data.schema)
    return fit_auto(data, split, [pmf.fits.select_rank(counts).rank])


def fit_usual(data: Set, split: Split) -> dict[str, Callable[[], Classify]]:
    """Naive Bayes, and linear and kernel methods on one-hot columns."""
    columns = OneHotEncoder(sparse_output=False).fit_transform(data.codes[:, 1:])
    classes = data.codes[:, 0]

    def choose(make: Callable[[float], object]) -> Classify:
        best: tuple[float, Classify] = -1.0, lambda rows: np.zeros(len(rows), int)
        for penalty in PENALTIES:
            model = make(penalty).fit(columns[split.train], classes[split.train])  # type: ignore[attr-defined]

            def classify(rows: np.ndarray, model: object = model) -> np.ndarray:
                return np.asarray(model.predict(columns[rows]))  # type: ignore[attr-defined]

            reached = score(data, classify, split.validation)
            if reached > best[0]:
                best = reached, classify
        return best[1]

    def bayes() -> Classify:
        sizes = data.codes[:, 1:].max(axis=0) + 1
        model = CategoricalNB(min_categories=sizes)
        model.fit(data.codes[split.train, 1:], classes[split.train])
        return lambda rows: np.asarray(model.predict(data.codes[rows, 1:]))

    return {
        "SVM": lambda: choose(lambda c: LinearSVC(C=c, max_iter=5000)),
        "Logistic Regression": lambda: choose(lambda c: LogisticRegression(C=c, max_iter=1000)),
        "SVM-RBF": lambda: choose(lambda c: SVC(C=c)),
        "Naive Bayes": bayes,
        # of the slides: least squares on one-hot classes, and ten hidden units as MATLAB has them
        "Linear Regression": lambda: choose(lambda c: RidgeClassifier(alpha=1 / c)),
        "Neural Net": lambda: choose(
            lambda c: MLPClassifier((10,), alpha=1 / (1000 * c), max_iter=500, random_state=0)
        ),
    }


def list_fits(data: Set, split: Split) -> dict[str, Callable[[], Classify]]:
    """All methods by name."""
    return {
        **fit_published(data, split),
        **fit_usual(data, split),
        "auto-rank": lambda: fit_rank_of_pairs(data, split),
        "auto": lambda: fit_auto(data, split),
    }


def run_set(data: Set, seeds: range, methods: list[str]) -> dict[str, list[float]]:
    """Accuracy of every method in every split, and a table of them."""
    found: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in seeds:
        split = split_rows(data, seed)
        for name, fit in list_fits(data, split).items():
            if methods and name not in methods:
                continue
            began = time.process_time()
            found.setdefault(name, []).append(score(data, fit(), split.test))
            seconds.setdefault(name, []).append(time.process_time() - began)
    published = read_published(REFERENCE, data.table, "accuracy %")
    print(f"\n{data.name}: {len(data.codes)} rows, splits {seeds[0]} to {seeds[-1]}, {data.shares}")
    print(f"{'method':<20}{'published':>10}{'mean':>8}{'sd':>6}{'least':>8}{'CPU s':>8}")
    for name, each in found.items():
        shown = f"{published[name]:.2f}" if name in published else ""
        spread = 100 * statistics.stdev(each) if len(each) > 1 else 0.0
        print(
            f"{name:<20}{shown:>10}{100 * statistics.mean(each):>8.2f}{spread:>6.2f}"
            f"{100 * min(each):>8.2f}{statistics.median(seconds[name]):>8.2f}",
            flush=True,
        )
    return found


def main() -> None:
    """Run all sets, and print the means over them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", help="paths, or NAME=PATH")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--methods", default="", help="default: all; comma-separated")
    parser.add_argument("--short", action="store_true", help="1 trial")
    options = parser.parse_args()
    # EM is stopped by the choice of passes, the paper's methods by its limits
    warnings.simplefilter("ignore")
    names = {"car": "car", "voters": "votes", "votes": "votes", "nursery": "nursery"}
    names |= {"mushroom": "mushroom", "lepiota": "mushroom"}
    seeds = range(options.first, options.first + (1 if options.short else options.trials))
    results = []
    for each in options.sets:
        name, _, path = each.rpartition("=")
        name = name or next(known for word, known in names.items() if word in path.lower())
        data = read_set(name, Path(path))
        results.append(run_set(data, seeds, [m for m in options.methods.split(",") if m]))
    print(f"\nmean over {len(results)} sets")
    for method in results[0]:
        mean = statistics.mean(statistics.mean(found[method]) for found in results)
        print(f"{method:<20}{100 * mean:>8.2f}")


if __name__ == "__main__":
    main()
