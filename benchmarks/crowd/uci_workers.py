"""Classifiers as workers of UCI tables: tables 1 (connect4), 2 (credit) and 3 (car) of the paper.

    python -m benchmarks.crowd.uci_workers car ../shared/data/car/UCI_CAR.data --trials 5
    python -m benchmarks.crowd.uci_workers credit PATH/australian.dat

Ten classifiers, those of the paper's table 8, learn from rows of their own and label the others. Who labels how much is
as in section 4 and supplement C.2: in tables 1 and 2 every worker labels a row with a probability, of .3, or of between
.3 and .5 or .5 and .7 with two designated workers at .8; in table 3 the rows are three parts, of .1, .3 and .6 of them,
and each part is labelled by a few workers drawn at random, so many that the published share of the pairs is missing.
How many rows a classifier learns from is the rest after the published number of items. Labels are the most probable
with the estimated prior, as the text says; the released code takes all classes as equally probable.
"""

from __future__ import annotations

import argparse
import importlib.util
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crowd.baselines.methods import BASELINES, BINARY, run_baseline
from benchmarks.crowd.published_tables import OURS, average, find_error, read_published, show
from benchmarks.data import DATA
from pmflib.apps.crowd import LabelLog, aggregate, read_labels

REFERENCE = DATA.parent / "reference" / "dawid-skene.csv"
N_WORKERS = 10
PARTS = (0.1, 0.3, 0.6)
DESIGNATED = 0.8
CAR_ORDERS = (
    ("low", "med", "high", "vhigh"),
    ("low", "med", "high", "vhigh"),
    ("2", "3", "4", "5more"),
    ("2", "4", "more"),
    ("small", "med", "big"),
    ("low", "med", "high"),
)
CONNECT4_CODES = {"b": 0.0, "o": -1.0, "x": 1.0}
COMPARED = (
    "RobSymNMF", "RobSymNMF-EM", "RobSymNMF equal-weights", "DesSymNMF", "DesSymNMF-EM", "SymNMF no-imputation",
    "MultiSPA", "CNMF", "MV-EM", "Majority Voting", "default",
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A published table: its data set, number of items, and columns by what distinguishes them."""

    number: int
    n_items: int
    n_classes: int
    n_trained: int
    columns: tuple[str, ...]

    def name_column(self, name: str, column: str) -> str:
        """Setting of a column in the reference file."""
        return f"{name} N={self.n_items} M={N_WORKERS} K={self.n_classes} {column}"


PROBABILITIES = ("pm=0.3", "pm~U(0.3 0.5) pd=0.8", "pm~U(0.5 0.7) pd=0.8")
TABLES = {
    "connect4": Table(1, 20_561, 3, 5140, PROBABILITIES),
    "credit": Table(2, 540, 2, 150, PROBABILITIES),
    "car": Table(3, 1352, 4, 150, ("miss=70%", "miss=50%", "miss=30%")),
}


def make_classifiers(n_features: int) -> list[Any]:
    """The ten of table 8, as scikit-learn has them."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    near = [KNeighborsClassifier(n) for n in (1, 10, 100)]
    near += [KNeighborsClassifier(10, metric="cosine")]
    machines = [
        SVC(kernel="linear"),
        SVC(kernel="poly", degree=2, coef0=1, gamma=1 / n_features),
        SVC(gamma=1 / (16 * n_features)),
    ]
    trees = [DecisionTreeClassifier(max_leaf_nodes=n + 1, random_state=0) for n in (4, 20, 100)]
    return [*(make_pipeline(StandardScaler(), one) for one in [*near, *machines]), *trees]


def read_table(name: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features as numbers, and classes as codes, of a file of the UCI repository."""
    if name == "credit":
        # australian.dat, separated by spaces
        rows = np.loadtxt(path)
        return rows[:, :-1], rows[:, -1].astype(int)
    rows = np.loadtxt(path, delimiter=",", dtype=str)
    classes = np.unique(rows[:, -1], return_inverse=True)[1]
    if name == "connect4":
        return np.vectorize(CONNECT4_CODES.__getitem__)(rows[:, :-1]), classes
    columns = [[order.index(v) for v in rows[:, j]] for j, order in enumerate(CAR_ORDERS)]
    return np.array(columns, float).T, classes


def draw_labels(
    table: Table, features: np.ndarray, truth: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of all classifiers, (n_items, 10), of rows that the first was not trained on; and their classes."""
    labels, items = [], None
    for classifier in make_classifiers(features.shape[1]):
        order = rng.permutation(len(features))
        items = order[table.n_trained :][: table.n_items] if items is None else items
        mine = order[: table.n_trained]
        labels.append(classifier.fit(features[mine], truth[mine]).predict(features[items]))
    return np.array(labels).T, truth[items]


def draw_design(
    column: str, n_items: int, rng: np.random.Generator
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Who labels which item, bool of shape (n_items, 10), and the designated workers, if any."""
    if column.startswith("miss"):
        return draw_parts(float(column[5:-1]) / 100, n_items, rng), ()
    if "pd" not in column:
        return rng.random((n_items, N_WORKERS)) < 0.3, ()
    low, high = (float(each) for each in column[5 : column.index(")")].split())
    shares = rng.uniform(low, high, N_WORKERS)
    designated = rng.choice(N_WORKERS, 2, replace=False)
    shares[designated] = DESIGNATED
    return rng.random((n_items, N_WORKERS)) < shares, tuple(designated.tolist())


def draw_parts(missing: float, n_items: int, rng: np.random.Generator) -> np.ndarray:
    """Three parts, each labelled by some workers, all of whom have a part; as many as leave a share of pairs missing.

    The released counts have a worker's pair with itself among the missing ones.
    """
    part = np.searchsorted(np.cumsum(PARTS), (rng.permutation(n_items) + 0.5) / n_items)
    while True:
        labels = np.zeros((len(PARTS), N_WORKERS), bool)
        for row, n_workers in zip(labels, rng.integers(3, 9, len(PARTS)), strict=True):
            row[rng.choice(N_WORKERS, n_workers, replace=False)] = True
        met = (labels.T.astype(int) @ labels > 0) & ~np.eye(N_WORKERS, dtype=bool)
        if labels.any(axis=0).all() and abs(1 - met.mean() - missing) <= 0.02:
            return labels[part]


def list_methods(designated: tuple[int, ...]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Methods and options of `aggregate` by the name in the tables."""
    methods = {name: found for name, found in OURS.items() if name in COMPARED}
    if designated:
        named = {"name": "designated", "annotators": designated}
        methods["DesSymNMF, the two alone"] = (named, {"em": False})
    return methods


def measure(log: LabelLog, truth: np.ndarray, posterior: np.ndarray) -> float:
    """Label error of all items, per cent; those without labels get the most frequent label."""
    indices = np.array(log.tasks.to_pylist())
    rest = np.setdiff1d(np.arange(truth.size), indices)
    often = np.bincount(log.block.indices % log.n_classes).argmax()
    here = find_error(posterior, log, dict(enumerate(truth))) * indices.size
    return float((here + 100 * (truth[rest] != often).sum()) / truth.size)


def run_trials(
    name: str, path: Path, trials: int, *, baselines: bool = True
) -> Iterator[tuple[str, list[dict[str, float]], list[dict[str, float]]]]:
    """Column of the table, and for each trial the label errors of our methods, and of the baselines."""
    if importlib.util.find_spec("sklearn") is None:
        raise SystemExit("the workers of this table are scikit-learn's; install it")
    table = TABLES[name]
    features, truth = read_table(name, path)
    for column in table.columns:
        mine, theirs = [], []
        for trial in range(trials):
            rng = np.random.default_rng([trial, table.number])
            labels, actual = draw_labels(table, features, truth, rng)
            design, designated = draw_design(column, len(labels), rng)
            task, worker = np.nonzero(design)
            columns = {"task": task, "worker": worker, "label": labels[task, worker]}
            log = read_labels(columns, classes=range(table.n_classes))
            found = {
                each: aggregate(log, how, **options).posterior
                for each, (how, options) in list_methods(designated).items()
            }
            mine.append({each: measure(log, actual, one) for each, one in found.items()})
            if baselines:
                usable = [each for each in BASELINES if each not in BINARY or table.n_classes == 2]
                runs = {each: run_baseline(each, log) for each in usable}
                theirs.append(
                    {each: measure(log, actual, one.posterior) for each, one in runs.items() if one}
                )
        yield column, mine, theirs


def main() -> None:
    """Print a table: published, baselines written from their papers, and ours."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("path", type=Path, help="UCI_CAR.data, australian.dat or connect-4.data")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    published = read_published(options.reference)
    table = TABLES[options.table]
    for column, mine, theirs in run_trials(options.table, options.path, options.trials):
        key = f"ds-{table.number}", table.name_column(options.table, column)
        columns = {
            "published": published[key],
            "recomputed": average(theirs),
            "ours": average(mine),
        }
        show(f"{options.table}, {column}: label error, %, {options.trials} trials", columns)


if __name__ == "__main__":
    main()
