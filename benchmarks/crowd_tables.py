"""The published tables of label errors: as published, from the released code run again, and ours.

    python benchmarks/crowd_tables.py real ../shared/data ../shared/reference/dawid-skene.csv
    python benchmarks/crowd_tables.py synthetic ../shared/reference/dawid-skene.csv [--trials 20]
    python benchmarks/crowd_tables.py car ../shared/data/car/UCI_CAR.data ../shared/reference/dawid-skene.csv

prints tables 4, 5 (bluebird, dog) and 9 (labelme), and the same for jn-product and all workers of dog, next to
crowd-kit where it is installed; tables 6 and 7; table 3. "Again" is the released code, run by us under GNU Octave:
means over seeds. "each" matches columns with classes for every annotator by itself, as that code does on real data.
"""

# ruff: noqa: E402  threads are limited before NumPy loads

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import csv
import gzip
import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from crowd_peers import make_frame

from pmflib.crowd import Answers, aggregate, read_answers
from pmflib.crowd.aggregation import fit_annotators
from pmflib.crowd.synthetic import Crowd, draw_published_crowd
from pmflib.solvers.annotators import Annotators, Rule

OURS = {
    "RobSymNMF": ("robust", {"em": False}),
    "RobSymNMF-EM": ("robust", {"max_passes": 10, "tol": 0}),
    "RobSymNMF equal-weights": ("equal_weights", {"em": False}),
    "DesSymNMF": ("designated", {"em": False}),
    "DesSymNMF-EM": ("designated", {"max_passes": 10, "tol": 0}),
    "DesSymNMF, one pair": ("one_pair", {"em": False}),
    "SymNMF no-imputation": ("symnmf", {"em": False}),
    "RobSymNMF, each": ("robust", {"em": False, "order": "each"}),
    "RobSymNMF-EM, each": ("robust", {"max_passes": 10, "tol": 0, "order": "each"}),
    "DesSymNMF, each": ("designated", {"em": False, "order": "each"}),
    "DesSymNMF-EM, each": ("designated", {"max_passes": 10, "tol": 0, "order": "each"}),
    "MultiSPA": ("multispa", {"em": False}),
    "CNMF": ("cnmf", {"em": False}),
    "MV-EM": ("mv_em", {}),
    "Majority Voting": ("majority", {}),
    "Dawid-Skene, full EM": ("dawid_skene", {}),
    "one coin": ("one_coin", {}),
    "balanced": ("balanced", {}),
    "default": ("auto", {}),
}
AGAIN = {
    "bluebird": {
        "RobSymNMF": 12.04, "RobSymNMF-EM": 10.19, "RobSymNMF equal-weights": 12.04, "DesSymNMF": 11.85,
        "DesSymNMF-EM": 10.19, "SymNMF no-imputation": 12.04, "MultiSPA": 13.89, "CNMF": 12.96, "MV-EM": 11.11,
        "Majority Voting": 24.07,
    },
    "dog": {
        "RobSymNMF": 16.16, "RobSymNMF-EM": 15.86, "RobSymNMF equal-weights": 16.26, "DesSymNMF": 16.53,
        "DesSymNMF-EM": 15.86, "SymNMF no-imputation": 16.36, "MultiSPA": 17.65, "CNMF": 17.97, "MV-EM": 15.86,
        "Majority Voting": 17.91,
    },
    "synthetic": {
        "RobSymNMF": (0.0137, 0.0056, 0.0026), "DesSymNMF": (0.0130, 0.0085, 0.0070),
        "RobSymNMF-EM": (0.0084, 0.0027, 0.0009), "DesSymNMF-EM": (0.0079, 0.0022, 0.0012),
        "MultiSPA": (0.186, 0.111, 0.103), "CNMF": (0.0777, 0.0048, 0.0040), "MV-EM": (0.0200, 0.0870, 0.1010),
    },
}  # fmt: skip
CROWD_KIT = (
    "MajorityVote",
    "DawidSkene",
    "OneCoinDawidSkene",
    "GLAD",
    "MACE",
    "MMSR",
    "Wawa",
    "ZeroBasedSkill",
)
SAMPLES = (1000, 5000, 10_000)
MASKED = (0.7, 0.5, 0.3)


def read_published(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Published numbers by table and column, then method; times are left out."""
    published: dict[tuple[str, str], dict[str, float]] = {}
    with path.open(encoding="utf-8") as lines:
        for table, column, method, measure, value in csv.reader(lines):
            if measure in ("error %", "MSE") and value:
                published.setdefault((table, column), {})[method] = float(value)
    return published


def read_log(folder: Path, name: str, busiest: int | None = None) -> tuple[Answers, dict[str, Any]]:
    """Answers, and the true label of each task."""
    if name == "labelme":
        codes = np.loadtxt(folder / name / "answers.txt", dtype=int)
        task, worker = np.nonzero(codes >= 0)
        truth = np.loadtxt(folder / name / "LabelMe_Z_train.txt").astype(int)
        table = {"task": task, "worker": worker, "label": codes[task, worker]}
        return read_answers(table), dict(enumerate(truth))
    if name == "jn-product":
        with gzip.open(folder / name / "answer.csv.gz", "rt") as lines:
            columns = list(zip(*list(csv.reader(lines))[1:], strict=True))
        with (folder / name / "truth.csv").open() as lines:
            known = dict(list(csv.reader(lines))[1:])
        return read_answers(dict(zip(("task", "worker", "label"), columns, strict=True))), known
    task, worker, label = np.loadtxt(folder / name / f"{name}.txt", dtype=int).T
    if busiest is not None:
        kept = np.argsort(-np.bincount(worker), kind="stable")[:busiest]
        there = np.isin(worker, kept)
        task, worker, label = task[there], worker[there], label[there]
    known = dict(np.loadtxt(folder / name / f"{name}_truth.txt", dtype=int))
    return read_answers({"task": task, "worker": worker, "label": label}), known


def find_error(posterior: np.ndarray, answers: Answers, truth: Mapping[Any, Any]) -> float:
    """Per cent of wrong labels, ties counted in part."""
    classes = np.array(answers.classes.to_pylist())
    actual = np.array([truth[task] for task in answers.tasks.to_pylist()])
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-12
    hit = (top & (classes == actual[:, None])).sum(axis=1)
    return 100 * (1 - float((hit / top.sum(axis=1)).mean()))


def run_crowd_kit(answers: Answers, truth: Mapping[Any, Any]) -> dict[str, float]:
    """Errors of crowd-kit's methods with their own defaults; none where it is not installed."""
    if importlib.util.find_spec("crowdkit") is None:
        return {}
    import crowdkit.aggregation

    rows = np.repeat(np.arange(answers.n_tasks), np.diff(answers.block.indptr))
    workers, labels = np.divmod(answers.block.indices, answers.n_classes)
    classes, tasks = np.array(answers.classes.to_pylist()), answers.tasks.to_pylist()
    frame = make_frame([tasks[row] for row in rows], workers, classes[labels])
    errors = {}
    for name in CROWD_KIT:
        try:
            found = getattr(crowdkit.aggregation, name)().fit_predict(frame)
        except (ValueError, RuntimeError, FloatingPointError, AttributeError):
            continue
        wrong = [found.get(task) != truth[task] for task in tasks]
        errors[f"crowd-kit {name}"] = 100 * float(np.mean(wrong))
    return errors


def show(title: str, rows: Mapping[str, tuple[float | None, ...]], heads: tuple[str, ...]) -> None:
    """Print a table."""
    print(f"\n{title}\n{'method':28}" + "".join(f"{head:>14}" for head in heads))
    for method, values in rows.items():
        cells = (f"{value:14.4g}" if value is not None else f"{'':14}" for value in values)
        print(f"{method:28}" + "".join(cells), flush=True)


def show_real(data: Path, reference: Path) -> None:
    """Tables 4, 5 and 9, and the same of other logs; then means over the four logs."""
    published = read_published(reference)
    logs = {
        "bluebird": ("bluebird", None, ("ds-4", "bluebird N=108 M=39 K=2")),
        "dog": ("dog", 52, ("ds-4", "dog N=807 M=52 K=4")),
        "dog, all workers": ("dog", None, ("", "")),
        "labelme": ("labelme", None, ("ds-9", "labelme N=1000 M=59 K=8")),
        "jn-product": ("jn-product", None, ("", "")),
    }
    errors: dict[str, dict[str, float]] = {}
    for title, (name, busiest, key) in logs.items():
        answers, truth = read_log(data, name, busiest)
        mine = {
            method: find_error(aggregate(answers, how, **options).posterior, answers, truth)
            for method, (how, options) in OURS.items()
        }
        errors[title] = mine | run_crowd_kit(answers, truth)
        theirs = published.get(key, {})
        names = [*dict.fromkeys([*theirs, *errors[title]])]
        again = AGAIN.get(title, {})
        rows = {n: (theirs.get(n), again.get(n), errors[title].get(n)) for n in names}
        show(f"{title}: label error, %", rows, ("published", "again", "here"))
    for dog in ("dog", "dog, all workers"):
        four = [errors[name] for name in ("bluebird", dog, "labelme", "jn-product")]
        common = [name for name in four[0] if all(name in one for one in four)]
        rows = {name: (float(np.mean([one[name] for one in four])),) for name in common}
        ordered = dict(sorted(rows.items(), key=lambda row: row[1][0] or 0))
        show(f"mean over bluebird, {dog}, labelme, jn-product, %", ordered, ("here",))


def measure_methods(crowd: Crowd) -> dict[str, float]:
    """Mean squared error of each method, and of passes from the truth on."""
    answers = read_answers(crowd.answers, classes=range(crowd.prior.size))
    errors = {}
    settled = {"max_passes": 1000, "tol": 1e-6}
    methods = {n: OURS[n] for n in ("RobSymNMF", "DesSymNMF", "MultiSPA", "CNMF", "MV-EM")}
    methods |= {"RobSymNMF-EM": ("robust", settled), "DesSymNMF-EM": ("designated", settled)}
    methods |= {"CNMF-EM": ("cnmf", settled), "default": ("auto", {})}
    for name, (how, options) in methods.items():
        found = aggregate(answers, how, **options)
        errors[name] = crowd.measure(found.prior, found.confusion)
    rule = Rule(strength=0.0, variational=False, votes=0.0)
    start = Annotators(crowd.prior, crowd.confusion, 0.0, rule)
    best = fit_annotators(answers, rule, start=start, **settled)[0].annotators
    return errors | {"EM from the truth": crowd.measure(best.prior, best.confusion)}


def show_synthetic(reference: Path, trials: int) -> None:
    """Table 7 under both generators; table 6, without noise."""
    published = read_published(reference)
    columns = [f"synthetic M=25 K=3 p=0.3 N={n}" for n in SAMPLES]
    for version in ("code", "text"):
        found = [
            [
                measure_methods(
                    draw_published_crowd(n, np.random.default_rng([t, n]), version=version)
                )
                for t in range(trials)
            ]
            for n in SAMPLES
        ]
        names = [*dict.fromkeys([*published["ds-7", columns[0]], *found[0][0]])]
        rows = {}
        for name in names:
            theirs = [published["ds-7", column].get(name) for column in columns]
            again = AGAIN["synthetic"].get(name, (None,) * 3) if version == "code" else (None,) * 3
            mine = [[trial[name] for trial in column if name in trial] for column in found]
            means = [float(np.mean(each)) if each else None for each in mine]
            medians = [float(np.median(each)) if each else None for each in mine]
            rows[name] = tuple(
                x for four in zip(theirs, again, means, medians, strict=True) for x in four
            )
        heads = tuple(
            f"{what} {n}" for n in SAMPLES for what in ("publ.", "again", "mean", "median")
        )
        show(f"table 7, generator of the {version}: MSE, {trials} trials", rows, heads)
    show_noiseless(published, trials)


def show_noiseless(published: Mapping[Any, Mapping[str, float]], trials: int) -> None:
    """Table 6: exact pairs, some of them hidden, by share."""
    from crowd_noiseless import measure_noiseless

    rows: dict[str, tuple[float | None, ...]] = {}
    for name, how in (("RobSymNMF", "robust"), ("DesSymNMF", "designated")):
        cells: list[float | None] = []
        for share in MASKED:
            key = ("ds-6", f"synthetic noiseless M=25 K=3 miss={share:.0%}")
            mine = [
                measure_noiseless(how, share, np.random.default_rng([t, 6])) for t in range(trials)
            ]
            cells += [published[key].get(name), float(np.mean(mine)), float(np.median(mine))]
        rows[name] = tuple(cells)
    heads = tuple(f"{what} {m:.0%}" for m in MASKED for what in ("publ.", "mean", "median"))
    show(f"table 6, exact pairs: MSE, {trials} trials", rows, heads)


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", choices=("real", "synthetic", "car"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.tables == "real":
        show_real(*options.paths)
    elif options.tables == "synthetic":
        show_synthetic(*options.paths, options.trials)
    else:
        from crowd_car import show_car

        show_car(*options.paths, options.trials)


if __name__ == "__main__":
    main()
