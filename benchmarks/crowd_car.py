"""Classifiers as annotators of the car evaluation data: table 3 of the paper."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

MISSING = {"70%": 0.7, "50%": 0.5, "30%": 0.3}
PARTS = (0.1, 0.3, 0.6)
TRAINED = 0.1
ORDERS = {
    0: ("low", "med", "high", "vhigh"),
    1: ("low", "med", "high", "vhigh"),
    2: ("2", "3", "4", "5more"),
    3: ("2", "4", "more"),
    4: ("small", "med", "big"),
    5: ("low", "med", "high"),
}
CLASSES = ("unacc", "acc", "good", "vgood")
METHODS = (
    "RobSymNMF", "RobSymNMF-EM", "RobSymNMF equal-weights", "DesSymNMF", "DesSymNMF-EM", "SymNMF no-imputation",
    "MultiSPA", "CNMF", "MV-EM", "Majority Voting", "Dawid-Skene, full EM", "default",
)  # fmt: skip


def make_classifiers() -> list[Any]:
    """The ten of the paper's table 8, as scikit-learn has them."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    near = [KNeighborsClassifier(n) for n in (100, 10, 1)]
    cosine = KNeighborsClassifier(10, metric="cosine")
    trees = [DecisionTreeClassifier(max_leaf_nodes=n + 1, random_state=0) for n in (4, 20, 100)]
    machines = [SVC(kernel="linear"), SVC(kernel="poly", degree=2), SVC(gamma=0.25 / 6)]
    return [*near, cosine, *trees, *machines]


def read_car(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Attributes as ordinals, and classes."""
    rows = np.loadtxt(path, delimiter=",", dtype=str)
    columns = [[ORDERS[j].index(value) for value in rows[:, j]] for j in range(6)]
    return np.array(columns, float).T, np.array([CLASSES.index(value) for value in rows[:, 6]])


def answer(data: np.ndarray, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels of all classifiers, each trained on a tenth of its own; (n_items, 10)."""
    labels = []
    for classifier in make_classifiers():
        mine = rng.permutation(len(data))[: int(TRAINED * len(data))]
        if hasattr(classifier, "n_neighbors"):
            classifier.n_neighbors = min(classifier.n_neighbors, mine.size)
        labels.append(classifier.fit(data[mine], truth[mine]).predict(data))
    return np.array(labels).T


def hide(n_items: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Who labels what: each part of the items by a few annotators, until about a share of the pairs never meets."""
    parts = np.searchsorted(np.cumsum(PARTS), (rng.permutation(n_items) + 0.5) / n_items)
    best, least = np.ones((3, 10), bool), np.inf
    for _ in range(2000):
        seen = np.zeros((3, 10), bool)
        for part in range(3):
            seen[part, rng.choice(10, rng.integers(2, 10), replace=False)] = True
        # the paper counts an annotator's pair with itself as missing
        met = (seen.T[:, None, :] & seen.T[None, :, :]).any(axis=2)
        np.fill_diagonal(met, False)
        gap = abs(1 - met.mean() - share)
        if seen.any(axis=0).all() and gap < least:
            best, least = seen, gap
    return best[parts]


def show_car(path: Path, reference: Path, trials: int) -> None:
    """Table 3: mean label errors over trials."""
    if importlib.util.find_spec("sklearn") is None:
        raise SystemExit("the annotators of this table are scikit-learn's; install it")
    from crowd_published import OURS, find_error, read_published, show

    from pmflib.crowd import aggregate, read_answers

    published = read_published(reference)
    data, truth = read_car(path)
    errors: dict[str, list[list[float]]] = {name: [[] for _ in MISSING] for name in METHODS}
    for trial in range(trials):
        rng = np.random.default_rng([trial, 3])
        labels = answer(data, truth, rng)
        for place, share in enumerate(MISSING.values()):
            task, worker = np.nonzero(hide(len(data), share, rng))
            table = {"task": task, "worker": worker, "label": labels[task, worker]}
            answers = read_answers(table, classes=range(4))
            known = dict(enumerate(truth))
            for name in METHODS:
                how, options = OURS[name]
                posterior = aggregate(answers, how, **options).posterior
                errors[name][place].append(find_error(posterior, answers, known))
    rows = {}
    columns = [f"car N=1352 M=10 K=4 miss={share}" for share in MISSING]
    for name in dict.fromkeys([*published["ds-3", columns[0]], *METHODS]):
        theirs = [published["ds-3", column].get(name) for column in columns]
        mine = [float(np.mean(each)) for each in errors[name]] if name in errors else [None] * 3
        rows[name] = tuple(x for pair in zip(theirs, mine, strict=True) for x in pair)
    heads = tuple(f"{what} {share}" for share in MISSING for what in ("publ.", "here"))
    show(f"table 3, car: label error, %, {trials} trials", rows, heads)
