"""Top 20 of MovieLens 100K: held-out high ratings found by the joint PMF, averages, and the recommenders of implicit.

    python -m benchmarks.models.recommendations ../shared/data/ml-100k --splits 1

hides a fifth of the ratings, and recommends 20 movies that a user has not rated in the rest. The hits are hidden
ratings of 4 or 5. Each method chooses its options by the NDCG of half of the users on split 0; the figures are those of
the other half on splits 1, 2, ..., whose hidden ratings had no part in the choice. Errors are standard errors over
users, seconds those of a split with the fit.

`ratings` are models of the ratings alone, in which a movie that is not rated is missing. In those of `unrated` it has a
level of its own, so that the probability of 4 or 5 is that of being rated so. Some candidates add popularity to the
value, by a negative penalty. `counts` is the regression on counts of pairs, whose ridge parameter `recommend` chooses
itself on the known ratings.
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
import pyarrow as pa
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
    log = read_log(options.path).astype(np.int64)
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
    tables = np.zeros((2, users.max() + 1, items.max() + 1), np.int8)
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


def encode(known: np.ndarray, absent: str | None = None) -> tuple[pmf.Schema, np.ndarray]:
    """Schema and codes of ratings; those not known are missing, or have a level of their own."""
    levels = tuple("12345" if absent is None else "012345")
    numbers = tuple(map(float, levels))
    schema = pmf.Schema(
        tuple(pmf.Variable(str(n), levels, numbers, absent=absent) for n in range(known.shape[1]))
    )
    return schema, pmf.Codes(known - (1 if absent is None else 0))


def tabulate(found: pa.Table, n_users: int) -> Best:
    """Positions of the items that `recommend` has found; items are named by them."""
    best = np.full((n_users, TOP), -1)
    best[found["row"].to_numpy(), found["rank"].to_numpy() - 1] = found["item"].to_pylist()
    return best


FITS: Grid = {"rank": (5, 20, 40), "pseudo_count": (1.0,), "members": (1, 8)}
SMALL: Grid = {"rank": (5, 20), "pseudo_count": (1.0,)}
LIMITS: Grid = {"at_least": (0, 50), "penalty": (0.0, -2.0)}


def list_models(
    kind: str, value: str, fitted: Grid, limited: Grid, known: np.ndarray
) -> Iterator[tuple[str, Callable[[], Best]]]:
    """Fits of the joint PMF to what is known, and the items that `recommend` finds by a value."""
    schema, codes = encode(known, absent="0" if kind == "unrated" else None)
    fits: dict[str, pmf.JointPMF] = {}
    n_ratings = dict(zip(schema.names, (known > 0).sum(axis=0).tolist(), strict=True))

    def run(label: str, fit: dict[str, Any], limits: dict[str, Any]) -> Best:
        if label not in fits:
            fits.clear()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = pmf.fit_em(codes, schema=schema, start="random", max_passes=60, **fit)
            fits[label] = found.model
        found = pmf.apps.recommend(
            fits[label], codes, top=TOP, value=value, ratings=n_ratings, **limits
        )
        return tabulate(found, len(codes))

    for label, fit in spread(fitted):
        for more, limits in spread(limited):
            yield ", ".join(filter(None, (label, more))), partial(run, label, fit, limits)


ASKED: Grid = {"value": ("P(item>=1)", "P(item>=4)")}


def list_regressions(known: np.ndarray) -> Iterator[tuple[str, Callable[[], Best]]]:
    """Regressions on counts of pairs; the model gives the schema alone."""
    schema, codes = encode(known)
    uniform = np.full((schema.n_levels, 1), 0.2)
    model = pmf.JointPMF(np.ones(1), uniform, schema)

    def run(value: str) -> Best:
        found = pmf.apps.recommend(model, codes, top=TOP, value=value, counts=codes)
        return tabulate(found, len(codes))

    for label, options in spread(ASKED):
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
    "E(item), ratings": bind(list_models, "ratings", "E(item)", SMALL, LIMITS),
    "P(item>=4), ratings": bind(list_models, "ratings", "P(item>=4)", SMALL, LIMITS),
    "P(item>=4), unrated": bind(list_models, "unrated", "P(item>=4)", FITS, {}),
    "counts": list_regressions,
    "implicit, neighbours": bind(list_implicit, "neighbours", NEIGHBOURS),
    "implicit, ALS": bind(list_implicit, "ALS", ALS),
}


if __name__ == "__main__":
    main()
