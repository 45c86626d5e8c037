"""Average of predictions of a target, next to one model of it, to the mixture of the same models, and to classifiers.

    python -m benchmarks.models.pools votes wine

prints the log-loss of `result.pool` of fit_em with `target` and without a rank, less those of `rank="auto"`, of the
mixture that comes with it, of logistic regression (its penalty by cross-validation) and of boosting, paired, nats. Of
each table of `benchmarks.models.targets` at most 900 rows and 60 columns are used, and three of five parts are tested.
The ladder was tuned on car, iris, breast_cancer, diabetes, movies and pisa_item.

    python -m benchmarks.models.pools --states --rows 20000 adult

prints the log-loss of fits to the target of 2 states for each of its levels, less those of other numbers: where the
target follows from the others by a rule, as in car, many are better, which is why `rank="auto"` compares them.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.preprocessing import OneHotEncoder

import pmflib as pmf
from benchmarks.models.targets import TABLES, bin_column, make_codes, read_frame
from pmflib.base.blocks import DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.comparison import compare_samples
from pmflib.inference.target.rivals import score_rows

MOST_COLUMNS, N_PARTS = 60, 5
STATES = (2, 1, 4, 8, 16)
"""Numbers of states for each level of a target, the first for comparison."""
LEAST = 1e-6
"""Least probability of classifiers."""


def read_codes(name: str, most: int) -> np.ndarray:
    """Codes of some rows of a table, the target first."""
    if name in TABLES:
        codes = TABLES[name]()
        codes = codes[codes[:, 0] >= 0]
    else:
        frame, target = read_frame(name, most, 1)
        is_many = [frame[each].dtype.kind in "fi" and frame[each].nunique() > 8 for each in frame]
        columns = [
            bin_column(frame[each].to_numpy(float), 8) if many else frame[each].to_numpy()
            for each, many in zip(frame, is_many, strict=True)
        ]
        codes = make_codes([target, *columns])
    return codes[np.random.default_rng(1).permutation(len(codes))[:most], :MOST_COLUMNS]


def iterate_splits(codes: np.ndarray, splits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield training and test rows."""
    parts = np.random.default_rng(2).integers(N_PARTS, size=len(codes))
    for split in range(splits):
        yield codes[parts != split], codes[parts == split]


def hide(test: np.ndarray) -> Codes:
    """Test rows without their target."""
    hidden = test.copy()
    hidden[:, 0] = -1
    return Codes(hidden)


def predict_by_pool(
    train: np.ndarray, test: np.ndarray, seconds: list[float]
) -> dict[str, np.ndarray]:
    """Predictions of the average, and of all that it is compared with; its processor time is appended."""
    schema = find_schema(train, test)
    began = time.process_time()
    fitted = pmf.fit_em(Codes(train), schema=schema, target=0, effort="quick")
    seconds.append(time.process_time() - began)
    auto = pmf.fit_em(Codes(train), schema=schema, rank="auto", target=0).model
    assert fitted.pool is not None
    return {
        "average": fitted.pool.predict_proba(hide(test), 0),
        'rank="auto"': auto.predict_proba(hide(test), 0),
        "the mixture": fitted.model.predict_proba(hide(test), 0),
        **predict_by_rivals(train, test, schema[0].cardinality),
    }


def predict_by_states(
    train: np.ndarray, test: np.ndarray, seconds: list[float]
) -> dict[str, np.ndarray]:
    """Predictions of fits to the target, by their numbers of states; their processor time is appended."""
    schema, found = find_schema(train, test), {}
    began = time.process_time()
    for number in STATES:
        rank = number * schema[0].cardinality
        model = pmf.fit_em(Codes(train), schema=schema, rank=rank, target=0).model
        found[f"{number} a level"] = model.predict_proba(hide(test), 0)
    seconds.append(time.process_time() - began)
    return found


def find_schema(train: np.ndarray, test: np.ndarray) -> pmf.Schema:
    """Variables of training and test rows."""
    most = np.maximum(train.max(axis=0), test.max(axis=0))
    return pmf.Schema.from_cardinalities((np.maximum(most, 0) + 1).tolist())


def predict_by_rivals(train: np.ndarray, test: np.ndarray, rank: int) -> dict[str, np.ndarray]:
    """Predictions of logistic regression and boosting."""
    encoder = OneHotEncoder(handle_unknown="ignore").fit(train[:, 1:])
    regression = LogisticRegressionCV(
        Cs=[0.03, 0.1, 0.3, 1, 3], cv=5, scoring="neg_log_loss", max_iter=500
    ).fit(encoder.transform(train[:, 1:]), train[:, 0])
    boosted = HistGradientBoostingClassifier(
        max_iter=60, learning_rate=0.08, early_stopping=False
    ).fit(train[:, 1:], train[:, 0])
    found = {}
    for name, fitted, rows in (
        ("logistic regression", regression, encoder.transform(test[:, 1:])),
        ("boosting", boosted, test[:, 1:]),
    ):
        pmfs = np.full((len(test), rank), LEAST)
        pmfs[:, fitted.classes_] = np.maximum(fitted.predict_proba(rows), LEAST)
        found[name] = pmfs / pmfs.sum(axis=1, keepdims=True)
    return found


def main() -> None:
    """Print a row for each table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--states", action="store_true", help="compare numbers of states")
    parser.add_argument("--rows", type=int, default=900, help="of each table, at most")
    parser.add_argument("--splits", type=int, default=3, help=f"at most {N_PARTS}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    predict: Callable[..., Mapping[str, np.ndarray]]
    predict = predict_by_states if options.states else predict_by_pool
    for number, name in enumerate(options.tables):
        losses: dict[str, list[np.ndarray]] = {}
        seconds: list[float] = []
        for train, test in iterate_splits(read_codes(name, options.rows), options.splits):
            for key, pmfs in predict(train, test, seconds).items():
                losses.setdefault(key, []).append(-score_rows(pmfs, DenseBlock(test), 0))
        if not number:
            first, *others = losses
            heads = ["table", "rows", first, *(f"less {each}" for each in others), "CPU s"]
            print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
        mine, *theirs = (np.concatenate(each) for each in losses.values())
        gaps = ["{:+.3f} ± {:.3f}".format(*compare_samples(mine, each)) for each in theirs]
        cells = [name, f"{mine.size}", f"{mine.mean():.3f}", *gaps]
        print(f"| {' | '.join(cells)} | {statistics.median(seconds):.1f} |", flush=True)


if __name__ == "__main__":
    main()
