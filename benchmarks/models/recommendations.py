"""Top 20 of a MovieLens folder: held-out high ratings found by `recommend`, the joint PMF, averages, EASE and implicit.

    python -m benchmarks.models.recommendations ../shared/data/ml-100k --splits 1

hides a fifth of the ratings, and recommends 20 movies that a user has not rated in the rest. The hits are hidden
ratings of 4 or 5. Each method chooses its options by the NDCG of half of the users on split 0; the figures are those of
the other half on splits 1, 2, ..., whose hidden ratings had no part in the choice. Errors are standard errors over
users, seconds those of a split with the fit.

`recommend` has no options here: it chooses its ridge parameter on the known ratings. EASE (Steck 2019) takes which
movies have at least some rating; its ridge parameter and this rating are chosen on split 0. In `model`, a movie that is
not rated has a level of its own, so that the probability of 4 or 5 is that of being rated so; it takes hours where
there are thousands of movies, and `--method` leaves it out.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import pmflib as pmf
from benchmarks.models.movielens import read_log

TOP = 20
HIGH = 4
SHRINKAGE = 5.0
"""Ratings of the global mean that are added to those of each movie, for its mean."""

Best = np.ndarray
"""Positions of the best items of each user, best first: (n_users, TOP), -1 for none."""
Method = Callable[..., Iterator[tuple[str, Callable[[], Best]]]]
"""Candidates of a method on known ratings, (n_users, n_items), 0 not known."""


def main() -> None:
    """Choose the candidates, judge them, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the MovieLens folder")
    parser.add_argument("--splits", type=int, default=3, help="splits to judge on")
    parser.add_argument("--method", action="append", help="a method; may be repeated")
    options = parser.parse_args()
    methods = dict(METHODS)
    if importlib.util.find_spec("implicit") is None:
        print("implicit is not installed: ALS and nearest neighbours are left out")
        methods = {name: made for name, made in methods.items() if not name.startswith("implicit")}
    if options.method:
        methods = {name: methods[name] for name in options.method}
    log = read_log(options.path)
    tuned = np.random.default_rng(0).random(np.unique(log[:, 0]).size) < 0.5
    known, hidden = split(log, 0)
    print(f"{'method':>26}  hit rate   NDCG           items  seconds  options")
    for name, make in methods.items():
        reached = []
        for label, recommend in make(known):
            reached.append((np.nanmean(measure(recommend(), hidden)[1][tuned]), label))
        chosen = max(reached)[1]
        rows: list[tuple[np.ndarray, np.ndarray, int]] = []
        seconds: list[float] = []
        for seed in range(1, options.splits + 1):
            again = split(log, seed)
            (recommend,) = (each for label, each in make(again[0]) if label == chosen)
            began = time.process_time()
            best = recommend()
            seconds.append(time.process_time() - began)
            check(best, again[1])
            rows.append((*measure(best, again[1]), np.unique(best[best >= 0]).size))
        judged = ~tuned & np.isfinite([row[1] for row in rows]).any(axis=0)
        hits = np.nanmean([row[0][judged] for row in rows], axis=0)
        gains = np.nanmean([row[1][judged] for row in rows], axis=0)
        error = gains.std() / np.sqrt(gains.size)
        print(
            f"{name:>26}  {hits.mean():7.3f}   {gains.mean():.3f} ± {error:.3f}  "
            f"{np.mean([row[2] for row in rows]):5.0f}  {np.mean(seconds):7.2f}  {chosen}",
            flush=True,
        )


def split(log: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tables of the known and of the hidden ratings, a fifth: (n_users, n_items), 0 not known."""
    users, items = (np.unique(column, return_inverse=True)[1] for column in log[:, :2].T)
    is_hidden = np.random.default_rng(seed).random(len(log)) < 0.2
    tables = np.zeros((2, users.max() + 1, items.max() + 1), np.float32)
    tables[is_hidden.astype(int), users, items] = log[:, 2]
    return tables[0], tables[1]


def measure(best: Best, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether there is a hit, and NDCG, of each user; NaN without a hidden high rating."""
    wanted = hidden >= HIGH
    hits = np.take_along_axis(wanted, np.maximum(best, 0), axis=1) & (best >= 0)
    gains = 1 / np.log2(np.arange(2, TOP + 2))
    n_wanted = wanted.sum(axis=1)
    most = np.concatenate([[np.nan], np.cumsum(gains)])[np.minimum(n_wanted, TOP)]
    return np.where(n_wanted > 0, hits.any(axis=1), np.nan), hits @ gains / most


def check(best: Best, hidden: np.ndarray) -> None:
    """Compare the means with `measure_recommendations`."""
    (users, items), (rows, ranks) = np.nonzero(hidden >= HIGH), np.nonzero(best >= 0)
    found = {"row": rows, "rank": ranks + 1, "item": best[rows, ranks]}
    measured = pmf.apps.measure_recommendations(
        found, {"row": users, "item": items}, hidden.shape[1]
    )
    hits, gains = measure(best, hidden)
    np.testing.assert_allclose(
        (measured["hit_rate"], measured["ndcg"]), (np.nanmean(hits), np.nanmean(gains))
    )


def rank_values(values: np.ndarray, known: np.ndarray) -> Best:
    """The unrated items with the highest values; ties keep the order of items."""
    open_values = np.where(known > 0, -np.inf, values)
    return np.argsort(-open_values, axis=1, kind="stable")[:, :TOP]


def rank_averages(known: np.ndarray) -> dict[str, np.ndarray]:
    """Number of ratings, and shrunk mean rating, of each item."""
    n_ratings = (known > 0).sum(axis=0)
    overall = known.sum() / n_ratings.sum()
    means = (known.sum(axis=0) + SHRINKAGE * overall) / (n_ratings + SHRINKAGE)
    return {"popularity": n_ratings, "item mean": means}


def list_average(name: str, known: np.ndarray) -> Iterator[tuple[str, Callable[[], Best]]]:
    """Recommend the same to everybody, by popularity or by mean rating."""
    yield "", lambda: rank_values(rank_averages(known)[name], known)


Grid = Mapping[str, tuple[Any, ...]]


def spread(grid: Grid) -> Iterator[tuple[str, dict[str, Any]]]:
    """All combinations of options, with their names."""
    for values in itertools.product(*grid.values()):
        options = dict(zip(grid, values, strict=True))
        yield ", ".join(f"{name}={value}" for name, value in options.items()), options


def list_recommend(value: str, known: np.ndarray) -> Iterator[tuple[str, Callable[[], Best]]]:
    """What users see, of a table with a row per rating."""

    def run() -> Best:
        users, items = np.nonzero(known)
        log = {"user": users, "item": items, "rating": known[users, items]}
        found = pmf.apps.recommend(log, top=TOP, value=value)
        best = np.full((len(known), TOP), -1)
        rows, ranks = found["sample"].to_numpy(), found["rank"].to_numpy()
        best[rows, ranks - 1] = [int(name) for name in found["item"].to_pylist()]
        return best

    yield "", run


EASE: Grid = {"least": (0.5, HIGH), "ridge": (30.0, 100.0, 200.0, 400.0, 800.0)}


def list_ease(known: np.ndarray) -> Iterator[tuple[str, Callable[[], Best]]]:
    """The published regression of items on each other, without an intercept."""

    def run(least: float, ridge: float) -> Best:
        held = (known >= least).astype(np.float64)
        inverse = np.linalg.inv(held.T @ held + ridge * np.eye(held.shape[1]))
        weights = -inverse / np.diag(inverse)
        np.fill_diagonal(weights, 0.0)
        return rank_values(held @ weights, known)

    for label, options in spread(EASE):
        yield label, partial(run, **options)


FITS: Grid = {"rank": (5, 20), "members": (1, 8)}


def list_models(known: np.ndarray) -> Iterator[tuple[str, Callable[[], Best]]]:
    """The probability of a high rating by a joint PMF that knows of unrated movies."""

    def run(**fit: Any) -> Best:
        numbers, codes = np.unique(known, return_inverse=True)
        levels = tuple(f"{number:g}" for number in numbers)
        schema = pmf.Schema(
            tuple(pmf.Variable(str(n), levels, absent="0") for n in range(known.shape[1]))
        )
        answers = pmf.Codes(codes.reshape(known.shape))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = pmf.fit_em(
                answers, schema=schema, start="random", max_passes=60, pseudo_count=1.0, **fit
            ).model
        chances = (model.predict_proba(answers, name) for name in schema.names)
        return rank_values(np.stack([each @ (numbers >= HIGH) for each in chances], 1), known)

    for label, options in spread(FITS):
        yield label, partial(run, **options)


ALS: Grid = {
    "least": (1, HIGH),
    "factors": (16, 32, 64),
    "regularization": (3.0, 10.0, 30.0),
    "alpha": (1.0, 2.0, 10.0),
}
NEIGHBOURS: Grid = {"least": (1, HIGH), "K": (10, 20, 50)}


def list_implicit(
    name: str, grid: Grid, known: np.ndarray
) -> Iterator[tuple[str, Callable[[], Best]]]:
    """Recommenders of implicit on the ratings of at least a level."""

    def run(least: int, **options: Any) -> Best:
        import implicit.als
        import implicit.nearest_neighbours

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name == "ALS":
                model = implicit.als.AlternatingLeastSquares(
                    num_threads=1, random_state=0, **options
                )
            else:
                model = implicit.nearest_neighbours.CosineRecommender(num_threads=1, **options)
            held = scipy.sparse.csr_matrix((known >= least).astype(np.float32))
            model.fit(held, show_progress=False)
            if name == "ALS":
                return rank_values(model.user_factors @ model.item_factors.T, known)
            return rank_values((held @ model.similarity).toarray(), known)

    for label, options in spread(grid):
        yield label, partial(run, **options)


def bind(make: Callable[..., Any], *given: Any) -> Method:
    """A method with its settings, called with the known ratings."""
    return lambda known: make(*given, known)


METHODS: dict[str, Method] = {
    "popularity": bind(list_average, "popularity"),
    "item mean": bind(list_average, "item mean"),
    "model": list_models,
    "EASE": list_ease,
    "recommend": bind(list_recommend, "auto"),
    "recommend, high": bind(list_recommend, "P(item>=4)"),
    "recommend, rated": bind(list_recommend, "P(item>=0)"),
    "implicit, neighbours": bind(list_implicit, "neighbours", NEIGHBOURS),
    "implicit, ALS": bind(list_implicit, "ALS", ALS),
}


if __name__ == "__main__":
    main()
