"""One variable predicted from the others: a joint PMF with that target at defaults, next to the usual classifiers.

    python -m benchmarks.models.targets --tables car,votes --splits 2

Tables that come with scikit-learn, their numbers put into bins of equal frequency, and those of `../shared/data` that
are there; at most 5,000 rows of each. Rows go to ten parts at random: a split tests on one, chooses on the next two
and learns from the other seven, so that no row is tested twice. `pmf` is fit_em with `target` and nothing else but
a rank: the smallest is the number of the target's levels, it is doubled until two doublings have not raised the
validation rows' log-likelihood of the target, and the best is taken. Logistic regression (its penalty chosen on the
validation rows), naive Bayes (counted on the training rows) and the majority class are those of the pipeline's report;
`pool` is fit_em with `target` and without a rank: what its models predict, averaged.

    python -m benchmarks.models.targets --cuts iris,adult

prints the log-loss of `PMFClassifier` on columns as they are, of as many states as the target has levels: with the cuts
that it chooses, less that with quantiles, and less logistic regression and boosting on bins at quantiles. How many
standard errors cuts by the target must gain was set by adult and diabetes, and is evaluated on the others.

    python -m benchmarks.models.targets --drafts adult,gss7402

drafts a pipeline for the target with `pmf infer`, runs it, and evaluates it on its test fold: the log-loss with the
cuts that the draft has, less that of the same pipeline with bins at quantiles (0 where the draft keeps these), and less
that of the majority class; and the processor seconds that a target adds to `pmf infer`. Every split shuffles the rows,
so that another sixteenth tests; at most 20,000 rows. The draft was tried on adult, and is evaluated on the others:
fars:SEX is the table fars with another target. The table "wide" is drawn: 20,000 rows of 200 numbers, two of which
decide.

The defaults were tuned on the tables marked so, and are evaluated on the others. Differences are `pmf` less the other,
over all tested rows, paired, with standard errors: of the log-loss less than 0, of the accuracy more than 0 is better.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import sklearn.datasets

import pmflib as pmf
from benchmarks.data import DATA
from benchmarks.pipeline.small_jobs import measure_command
from pmflib.base.arrays import FLOOR
from pmflib.base.blocks import DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.comparison import compare_samples
from pmflib.base.hashing import mix_hashes
from pmflib.fits.starts import read_naive_bayes
from pmflib.inference.target.rivals import fit_boosting, fit_logistic_regression, score_rows
from pmflib.ingest.dataset.sample_folds import find_folds, hash_samples, seed_file
from pmflib.model.measures import Measure, measure_all
from pmflib_tasks.config.data_sections import StoreConfig

MAX_ROWS = 5000
MOST_DRAFTED = 20_000
DRAFTS = ("chosen", "quantiles")
"""Folders of drafts, with cuts by the target where they are chosen, and without."""
N_PARTS = 10
TUNED = ("car", "iris", "breast_cancer", "diabetes", "nltcs", "movies", "pisa_item")
BASELINES = ("logistic regression", "pool", "naive Bayes", "majority class")


def make_codes(columns: list[np.ndarray]) -> np.ndarray:
    """Codes of columns of any kind, the target first; empty text, "?" and -1 are missing."""
    codes = []
    for column in columns:
        levels, found = np.unique(column.astype(str), return_inverse=True)
        absent = np.isin(levels, ["", "?", "-1"])
        index = np.cumsum(~absent) - 1
        codes.append(np.where(absent[found], -1, index[found]))
    return np.stack(codes, axis=1).astype(np.int16)


def bin_column(column: np.ndarray, bins: int) -> np.ndarray:
    """Bins of equal frequency, fewer where values repeat."""
    edges = np.unique(np.quantile(column, np.arange(1, bins) / bins))
    return np.searchsorted(edges, column, side="left")


def read_sklearn(name: str, bins: int) -> np.ndarray:
    """A table of scikit-learn, its numbers binned; a number to predict is put into three bins."""
    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    target = bin_column(y, 3) if np.unique(y).size > 20 else y
    columns = [bin_column(column, bins) for column in x.T]
    return make_codes([target, *(each for each in columns if np.unique(each).size > 1)])


def read_lines(path: Path, separator: str, encoding: str = "utf-8") -> np.ndarray:
    """Fields of a text file, packed or not: (n_rows, n_fields) of text."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding=encoding) as file:
        return np.array([line.rstrip("\n").split(separator) for line in file if line.strip()])


def read_binary(name: str, target: int) -> np.ndarray:
    """A set of density estimation: one of its variables is predicted."""
    table = read_lines(DATA / name / f"{name}.train.data.gz", ",")
    return make_codes([table[:, target], *np.delete(table, target, axis=1).T])


def read_car() -> np.ndarray:
    """Class of cars."""
    return make_codes([*np.roll(read_lines(DATA / "car" / "UCI_CAR.data", ","), 1, axis=1).T])


def read_votes() -> np.ndarray:
    """Party from votes; code 2 is missing."""
    table = read_lines(DATA / "votes" / "UCI_VOTERS.data", ",")
    return make_codes([table[:, 0], *np.where(table[:, 1:] == "2", "", table[:, 1:]).T])


def read_pisa(target: int, n_items: int) -> np.ndarray:
    """Country of students, or one of their answers, from some of their answers."""
    table = read_lines(DATA / "pisa2009" / "pisaitems.csv.gz", ",")[1:]
    table = table[np.random.default_rng(0).permutation(len(table))[:MAX_ROWS], : n_items + 1]
    return make_codes([table[:, target], *np.delete(table, target, axis=1).T])


def read_movies() -> np.ndarray:
    """Whether a movie is a drama, from its other genres and its decade."""
    table = read_lines(DATA / "ml-100k" / "u.item", "|", "latin-1")
    years = [text[-4:-1] for text in table[:, 2]]
    genres = np.delete(table[:, 5:], 8, axis=1)
    return make_codes([table[:, 13], np.array(years), *genres.T])


def read_users() -> np.ndarray:
    """Gender of users of MovieLens, from age, occupation and region."""
    table = read_lines(DATA / "ml-100k" / "u.user", "|")
    regions = np.array([text[0] for text in table[:, 4]])
    return make_codes([table[:, 2], bin_column(table[:, 1].astype(float), 6), table[:, 3], regions])


def read_labels() -> np.ndarray:
    """True labels of images, from what workers say of them: most cells are missing."""
    answers = read_lines(DATA / "labelme" / "answers.txt", " ")
    truth = read_lines(DATA / "labelme" / "LabelMe_Z_train.txt", " ")[:, 0]
    return make_codes([truth, *answers.T])


TABLES: Mapping[str, Callable[[], np.ndarray]] = {
    "car": read_car,
    "votes": read_votes,
    "iris": lambda: read_sklearn("iris", 4),
    "wine": lambda: read_sklearn("wine", 4),
    "breast_cancer": lambda: read_sklearn("breast_cancer", 4),
    "digits": lambda: read_sklearn("digits", 3),
    "diabetes": lambda: read_sklearn("diabetes", 4),
    "labelme": read_labels,
    "nltcs": lambda: read_binary("nltcs", 15),
    "plants": lambda: read_binary("plants", 15),
    "movies": read_movies,
    "users": read_users,
    "pisa_item": lambda: read_pisa(12, 30),
    "pisa_country": lambda: read_pisa(0, 30),
}
"""Tables by name, the target first."""


FRAMES: Mapping[str, tuple[str, str, str]] = {
    "adult": ("adult/UCI_ADULT.data.gz", ",", "14"),
    "gss7402": ("gss7402/gss7402.csv.gz", ",", "kids"),
    "doctorvisits": ("doctorvisits/doctorvisits.csv.gz", ",", "visits"),
    "fars": ("fars/fars.csv.gz", "\t", "class"),
}
"""Tables with numbers: file, delimiter and target, unless "table:column" names another; a count is predicted as none or
some.
"""


def read_frame(name: str, most: int = MAX_ROWS, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns as they are, and the target as codes; some rows in random order."""
    table, _, named = name.partition(":")
    if table in FRAMES:
        file, separator, column = FRAMES[table]
        column, header = named or column, None if table == "adult" else 0
        frame = pd.read_csv(DATA / file, header=header, sep=separator, skipinitialspace=True)
        frame.columns = frame.columns.astype(str)
        target = frame.pop(column)
        target = target > 0 if column in ("kids", "visits") else target
    elif name == "wide":
        rng = np.random.default_rng(0)
        numbers = rng.normal(size=(MOST_DRAFTED, 200)).round(3)
        frame = pd.DataFrame(numbers).add_prefix("x")
        target = np.where(np.abs(numbers[:, 0]) < 0.3, 1, 2 * (numbers[:, 1] > 1))
    else:
        frame, target = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, as_frame=True)
        target = bin_column(target, 3) if target.nunique() > 20 else target
    order = np.random.default_rng(seed).permutation(len(frame))[:most]
    return frame.iloc[order], np.unique(np.asarray(target)[order], return_inverse=True)[1]


def compare_cuts(name: str, splits: int) -> None:
    """Print the log-loss of a classifier that chooses its cuts, and its differences from others."""
    frame, target = read_frame(name)
    parts = np.arange(len(frame)) % N_PARTS
    found: dict[str, list[np.ndarray]] = {}
    for split in range(splits):
        test = parts == split
        validation = np.isin(parts, [(split + 1) % N_PARTS, (split + 2) % N_PARTS])
        given, truth = frame[~test], target[~test]
        features = pmf.Schema.infer(frame)
        rank = int(target.max()) + 1
        levels = pmf.Variable("target", tuple(map(str, range(rank))))
        schema = pmf.Schema((*features, levels))
        codes = np.column_stack([features.encode(frame), target]).astype(np.int16)
        train, checked = (DenseBlock(codes[rows]) for rows in (~test & ~validation, validation))
        place, alone = features.n_variables, np.bincount(truth, minlength=rank) / len(truth)
        predicted = {
            "chosen": pmf.PMFClassifier(rank).fit(given, truth).predict_proba(frame[test]),
            "quantiles": pmf.PMFClassifier(rank, schema=pmf.Schema.infer(given))
            .fit(given, truth)
            .predict_proba(frame[test]),
            "logistic regression": fit_logistic_regression(
                train, checked, schema.cardinalities, place, alone
            ).predict_proba(codes[test]),
            "boosting": fit_boosting(train, checked, schema, place, alone).predict_proba(
                codes[test]
            ),
        }
        for key, pmfs in predicted.items():
            found.setdefault(key, []).append(-score_rows(pmfs, DenseBlock(codes[test]), place))
    mine, *others = (np.concatenate(each) for each in found.values())
    cells = ["{:+.4f} +- {:.4f}".format(*compare_samples(mine, other)) for other in others]
    print(f"| {name} | {mine.size} | {mine.mean():.4f} | {' | '.join(cells)} |", flush=True)


def compare_drafts(name: str, splits: int) -> None:
    """Print the log-loss of drafted pipelines on their test folds, and its differences from others."""
    found: dict[str, list[np.ndarray]] = {}
    seconds: list[float] = []
    for split in range(splits):
        frame, codes = read_frame(name, MOST_DRAFTED, split)
        classes = np.array([f"class {code}" for code in codes])
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            frame.assign(predicted=classes).to_csv(root / "a.csv", index=False)
            words = ["infer", str(root / "a.csv"), "--output"]
            targeted = [*words, str(root / "chosen"), "--target", "predicted"]
            seconds.append(measure_command(targeted))
            seconds[-1] -= measure_command([*words, str(root / "quantiles")])
            shutil.copy(root / "chosen" / "pipeline.toml", root / "quantiles")
            keys = hash_samples(mix_hashes(np.arange(1, len(codes) + 1), seed_file("a.csv")), None)
            folds = find_folds(keys, StoreConfig().folds)
            tested = folds == folds.max()
            schemas = [pmf.Schema.load(root / each / "schema.json") for each in DRAFTS]
            for draft, schema in zip(DRAFTS, schemas, strict=True):
                if draft == DRAFTS[0] or schema != schemas[0]:
                    scores = score_pipeline(root / draft, root / "a.csv", tested, classes)
                found.setdefault(draft, []).append(scores)
        _, counts = np.unique(codes[~tested], return_counts=True)
        alone = np.log(counts / counts.sum())
        found.setdefault("majority class", []).append(-alone[codes[tested]])
    mine, *others = (np.concatenate(each) for each in found.values())
    cells = ["{:+.4f} +- {:.4f}".format(*compare_samples(mine, other)) for other in others]
    cells.append(f"{statistics.mean(seconds):+.1f}")
    print(f"| {name} | {mine.size} | {mine.mean():.4f} | {' | '.join(cells)} |", flush=True)


def score_pipeline(
    folder: Path, table: Path, tested: np.ndarray, classes: np.ndarray
) -> np.ndarray:
    """Run a pipeline, and return the log-loss of its target in tested rows."""
    config, output = str(folder / "pipeline.toml"), folder / "scores.parquet"
    measure_command(["run", config])
    words = ["--data", str(table), "--target", "predicted", "--probabilities"]
    measure_command(["score", config, *words, "--output", str(output)])
    scored = pd.read_parquet(output).set_index("row").loc[np.flatnonzero(tested) + 1]
    truth = classes[tested]
    return np.array(
        [
            -np.log(max(row[f"predicted={each}"], FLOOR))
            for (_, row), each in zip(scored.iterrows(), truth, strict=True)
        ]
    )


def fit_grid(
    train: np.ndarray, validation: np.ndarray, schema: pmf.Schema
) -> tuple[pmf.JointPMF, tuple[str, ...]]:
    """Fit at defaults with a target, of ranks that double."""
    rank = schema[0].cardinality
    best, score, without = None, -np.inf, 0
    while without < 2:
        result = pmf.fit_em(train, rank=rank, schema=schema, validation=validation, target=0)
        without += 1
        if max(result.held_out) > score:
            best, score, without = result, max(result.held_out), 0
        rank *= 2
    assert best is not None
    return best.model, best.notes


def predict_all(
    codes: np.ndarray, parts: np.ndarray, split: int, *, verbose: bool
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Truth of the tested rows of a split, and predictions by name."""
    schema = pmf.Schema.from_cardinalities((codes.max(axis=0) + 1).tolist())
    test, validation = (
        parts == split,
        np.isin(parts, [(split + 1) % N_PARTS, (split + 2) % N_PARTS]),
    )
    train = codes[~test & ~validation]
    bayes = read_naive_bayes(pmf.count_pairs(train, schema), 0)
    model, notes = fit_grid(train, codes[validation], schema)
    if verbose:
        print(f"  rank {model.rank}: {'; '.join(notes)}", flush=True)
    regression = fit_logistic_regression(
        DenseBlock(train), DenseBlock(codes[validation]), schema.cardinalities, 0, bayes.prior
    )
    checked = Codes(codes[validation])
    pool = pmf.fit_em(Codes(train), target=0, schema=schema, validation=checked).pool
    assert pool is not None
    tested = codes[test]
    return tested[:, 0].astype(np.int64), {
        "pmf": model.predict_proba(tested, 0),
        "logistic regression": regression.predict_proba(tested),
        "pool": pool.predict_proba(Codes(tested), 0),
        "naive Bayes": bayes.predict_proba(tested, 0),
        "majority class": np.tile(bayes.prior, (len(tested), 1)),
    }


def run_table(name: str, splits: int, *, verbose: bool) -> dict[str, dict[str, Measure]]:
    """Measures of all tested rows of a table, by the name of the predictor."""
    codes = TABLES[name]()
    codes = codes[codes[:, 0] >= 0]
    order = np.random.default_rng(0).permutation(len(codes))[:MAX_ROWS]
    codes = codes[order]
    parts = np.arange(len(codes)) % N_PARTS
    found = [predict_all(codes, parts, split, verbose=verbose) for split in range(splits)]
    truth = np.concatenate([each for each, _ in found])
    return {
        key: measure_all(np.concatenate([each[key] for _, each in found]), truth)
        for key in found[0][1]
    }


def print_row(name: str, measured: Mapping[str, Mapping[str, Measure]], seconds: float) -> None:
    """Print a row of the table."""
    mine = measured["pmf"]
    cells = [name + (" (tuned)" if name in TUNED else ""), f"{len(mine['accuracy'].influences)}"]
    for key in ("accuracy", "log_loss"):
        cells.append(f"{mine[key].value:.3f}")
        for other in BASELINES:
            less, error = mine[key].less(measured[other][key])
            cells.append(f"{less:+.3f} +- {error:.3f}")
    print(f"| {' | '.join(cells)} | {seconds:.0f} |", flush=True)


def main() -> None:
    """Run tables, and print the means over them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="comma-separated")
    parser.add_argument("--splits", type=int, default=3, help=f"at most {N_PARTS}")
    parser.add_argument("--verbose", action="store_true", help="ranks, and what was chosen")
    parser.add_argument(
        "--cuts", help="tables with numbers, comma-separated, for the choice of cuts"
    )
    parser.add_argument(
        "--drafts", help="tables with numbers, comma-separated, for whole pipelines"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rivals: tuple[str, ...] = ("quantiles", "logistic regression", "boosting")
    compare, names = compare_cuts, options.cuts
    if options.drafts:
        rivals, compare, names = (DRAFTS[1], "majority class"), compare_drafts, options.drafts
    if names:
        heads = ["table", "rows", "log-loss, chosen cuts", *(f"less {each}" for each in rivals)]
        heads += ["CPU s of cuts"] if options.drafts else []
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
        for name in names.split(","):
            compare(name, options.splits)
        return
    heads = [f"{key} less {other}" for key in ("accuracy", "log-loss") for other in BASELINES]
    columns = [
        "table",
        "rows",
        "accuracy",
        *heads[: len(BASELINES)],
        "log-loss",
        *heads[len(BASELINES) :],
        "CPU s",
    ]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    results = {}
    for name in options.tables.split(","):
        began = time.process_time()
        try:
            results[name] = run_table(name, options.splits, verbose=options.verbose)
        except FileNotFoundError as error:
            print(f"{name} is left out: {error.filename} is not there")
            continue
        print_row(name, results[name], time.process_time() - began)
    for title, chosen in (
        ("tuned on", [name for name in results if name in TUNED]),
        ("evaluated on", [name for name in results if name not in TUNED]),
    ):
        if not chosen:
            continue
        lost = []
        print(
            f"\n{title} ({len(chosen)} tables): means of the differences from logistic regression"
        )
        for key in ("accuracy", "log_loss"):
            less = [
                results[name]["pmf"][key].less(results[name]["logistic regression"][key])
                for name in chosen
            ]
            sign = 1 if key == "accuracy" else -1
            lost += [
                f"{n} ({key})" for n, (d, e) in zip(chosen, less, strict=True) if sign * d < -e
            ]
            print(f"  {key}: {statistics.mean(d for d, _ in less):+.4f}")
        print(f"  worse by more than a standard error: {', '.join(lost) or 'none'}")


if __name__ == "__main__":
    main()
