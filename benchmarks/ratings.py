"""Tables XII to XIV of the joint-PMF paper: hidden ratings of 30 movies of a genre, against matrix factorisation.

    python benchmarks/ratings.py ../shared/data/ml-100k --trials 5
    python benchmarks/ratings.py PATH/ml-20m --genres action --short

takes a MovieLens folder: of ml-100k the 30 most-rated movies of each genre, of the others (`ratings.csv`) the published
lists. Users with at least 5 ratings of these movies; of the ratings 50 % to learn from, 20 % to choose on and 30 % to
be scored on.

Every joint PMF predicts the expected rating given what is known of the user. The paper's methods choose the rank by
validation RMSE. `joint PMF` is the mean of ten fits of the ratings as they are: of all ranks, pseudo-counts and
passes the mean of the three best by validation RMSE. `ours` is the same on ratings less the user's own (shrunk) mean,
in levels of equal mass, and blended with `joint PMF` where validation likes it. Biased matrix factorisation:
alternating least squares, rank, penalty and sweeps by validation RMSE, predictions clipped to the scale.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from members import fit_averages
from published import REFERENCE, read_published

import pmflib as pmf

GENRES = {"action": (12, 1), "animation": (13, 3), "romance": (14, 14)}
"""Number of the published table, and place among the flags of ml-100k."""

PUBLISHED_MOVIES = {
    # as released: 1036 stands twice in the first list, which leaves 29 movies
    "action": """110 165 260 377 380 457 589 592 648 780 1196 1198 1210 1240 1580 2571 3578 4993 5952 7153 2153 1036
        3805 2402 2823 2818 1370 1291 2115""",
    "animation": """1 364 551 588 594 595 2355 2700 2987 3114 3751 4306 4886 5218 5618 6377 8360 8961 60069 68954 13
        48 558 596 631 720 1022 1029 1032 1033""",
    "romance": """39 253 356 357 367 539 587 588 595 597 912 1197 1265 1721 1923 2706 3996 4973 4995 7361 1088 3824
        3829 920 2671 339 215 1057 499 605""",
}
N_MOVIES = 30
MIN_RATINGS = 5
LEVELS = 5

RANKS = (1, 4, 10)
SMOOTHINGS = (0.5, 2.0, 6.0)
PASSES = (4, 10, 25)
USER_PENALTIES = (3.0, 6.0)
RESIDUAL_LEVELS = (3, 6)
BEST = 3
PLAIN_WEIGHTS = (0.0, 0.25, 0.5)
FACTOR_RANKS = (1, 2, 5, 10, 15, 20)
FACTOR_PENALTIES = (1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Split:
    """Tables of shape (n_users, n_movies): ratings 1 to 5, 0 where not known."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


Guess = np.ndarray
"""Ratings of every user and movie, float64 of shape (n_users, n_movies)."""


def read_log(path: Path) -> np.ndarray:
    """User, movie, rating and time of each rating of a MovieLens folder: float64 of shape (n_ratings, 4)."""
    for name, options in (
        ("u.data.gz", {}),
        ("u.data", {}),
        ("ratings.csv", {"delimiter": ",", "skiprows": 1}),
    ):
        file = path / name
        if file.exists():
            with gzip.open(file, "rt") if name.endswith(".gz") else file.open() as stream:
                return np.loadtxt(stream, **options)  # type: ignore[arg-type]
    raise SystemExit(f"{path} has neither u.data, u.data.gz nor ratings.csv")


def list_movies(path: Path, log: np.ndarray, genre: str) -> np.ndarray:
    """Movies of a genre: the most-rated ones of ml-100k, else the published list."""
    if not (path / "u.item").exists():
        return np.array(PUBLISHED_MOVIES[genre].split(), np.int64)
    rows = [line.split("|") for line in (path / "u.item").read_text("latin-1").splitlines()]
    flag = 5 + GENRES[genre][1]
    of_genre = np.array([int(row[0]) for row in rows if row[flag] == "1"])
    n_ratings = np.bincount(log[:, 1].astype(np.int64), minlength=of_genre.max() + 1)[of_genre]
    return of_genre[np.argsort(-n_ratings, kind="stable")[:N_MOVIES]]


def make_table(log: np.ndarray, movies: np.ndarray) -> np.ndarray:
    """Ratings of some movies, halves rounded up, of users with enough of them: (n_users, n_movies), 0 unknown."""
    log = log[np.isin(log[:, 1], movies)]
    users, rows = np.unique(log[:, 0], return_inverse=True)
    order = np.argsort(movies)
    columns = order[np.searchsorted(movies[order], log[:, 1])]
    table = np.zeros((users.size, movies.size), np.int64)
    table[rows, columns] = np.floor(log[:, 2] + 0.5)
    return table[(table > 0).sum(axis=1) >= MIN_RATINGS]


def hide_ratings(table: np.ndarray, seed: int) -> Split:
    """Deal the known ratings: 50 % to learn from, 20 % to choose on, 30 % to be scored on."""
    known = np.flatnonzero(table)
    dealt = np.random.default_rng(seed).permutation(known)
    parts = []
    for cells in np.split(dealt, [known.size // 2, known.size * 7 // 10]):
        part = np.zeros_like(table)
        part.flat[cells] = table.flat[cells]
        parts.append(part)
    return Split(*parts)


def measure(guess: Guess, table: np.ndarray) -> tuple[float, float]:
    """Root mean squared and mean absolute error over the known ratings of a table."""
    error = (guess - table)[table > 0]
    return float(np.sqrt(np.mean(error**2))), float(np.mean(np.abs(error)))


def average(split: Split) -> dict[str, Callable[[], Guess]]:
    """Global, user's and movie's mean rating; the global one where there is no other."""
    train = split.train
    overall = train.sum() / (train > 0).sum()

    def along(axis: int) -> Guess:
        number = (train > 0).sum(axis=axis, keepdims=True)
        means = np.where(
            number > 0, train.sum(axis=axis, keepdims=True) / np.maximum(number, 1), overall
        )
        return np.broadcast_to(means, train.shape)

    return {
        "Global Average": lambda: np.full(train.shape, overall),
        "User Average": lambda: along(1),
        "Movie Average": lambda: along(0),
    }


def factorise(split: Split) -> Guess:
    """Biased matrix factorisation; rank and penalty by validation RMSE, which also stops the sweeps."""
    best = (np.inf, np.zeros(split.train.shape))
    for rank in FACTOR_RANKS:
        for penalty in FACTOR_PENALTIES:
            best = min(best, _factorise(split, rank, penalty), key=lambda pair: pair[0])
    return best[1]


def _factorise(split: Split, rank: int, penalty: float) -> tuple[float, Guess]:
    rng = np.random.default_rng(0)
    held = (split.train > 0).astype(np.float64)
    overall = split.train.sum() / held.sum()
    centred = np.where(held > 0, split.train - overall, 0.0)
    n_users, n_movies = centred.shape
    # columns: bias of the user, a one for the movie's, factors; and the same the other way round
    user_bias, movie_bias = np.zeros(n_users), np.zeros(n_movies)
    users, movies = np.zeros((n_users, rank)), 0.1 * rng.standard_normal((n_movies, rank))
    best = (np.inf, np.zeros(centred.shape))
    for _ in range(100):
        user_bias, users = _solve(centred - movie_bias, held, movies, penalty)
        movie_bias, movies = _solve((centred - user_bias[:, None]).T, held.T, users, penalty)
        guess = overall + user_bias[:, None] + movie_bias + users @ movies.T
        guess = np.clip(guess, 1, LEVELS)
        reached = measure(guess, split.validation)[0]
        if reached >= best[0]:
            break
        best = reached, guess
    return best


def _solve(
    wanted: np.ndarray, held: np.ndarray, factors: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression of each row on a one and the factors: biases and coefficients."""
    design = np.hstack([np.ones((len(factors), 1)), factors])
    squares = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    grams = (held @ squares).reshape(len(held), design.shape[1], -1)
    grams += penalty * np.eye(design.shape[1])
    found = np.linalg.solve(grams, ((wanted * held) @ design)[:, :, None])[:, :, 0]
    return found[:, 0], found[:, 1:]


def expect(model: pmf.JointPMF, codes: np.ndarray, values: np.ndarray) -> Guess:
    """Expected value of every movie's level given what is known of the user."""
    means = np.stack([values @ model.factor(j) for j in range(codes.shape[1])])
    return model.posterior(codes) @ means.T


RATINGS = np.arange(1.0, LEVELS + 1)


def fit_plain(split: Split) -> Guess:
    """The joint PMF of the ratings as they are."""
    codes = (split.train - 1).astype(np.int8)
    return average_best(search(codes, RATINGS, 0.0, split.validation))


def fit_ours(split: Split) -> Guess:
    """The joint PMF of the ratings less the user's own mean, and as much of the plain one as validation likes."""
    found: list[tuple[float, Guess]] = []
    held = split.train > 0
    for penalty, n_levels in product(USER_PENALTIES, RESIDUAL_LEVELS):
        base = estimate_users(split.train, penalty)
        residual = split.train - base
        edges = np.quantile(residual[held], np.linspace(0, 1, n_levels + 1)[1:-1])
        codes = np.where(held, np.searchsorted(edges, residual), -1).astype(np.int8)
        values = np.array([residual[codes == level].mean() for level in range(n_levels)])
        found += search(codes, values, base, split.validation)
    centred, plain = average_best(found), fit_plain(split)
    blends = [(1 - weight) * centred + weight * plain for weight in PLAIN_WEIGHTS]
    return min(blends, key=lambda guess: measure(guess, split.validation)[0])


def estimate_users(train: np.ndarray, penalty: float) -> np.ndarray:
    """Each user's mean rating, as of average movies, shrunk to all users': (n_users, 1)."""
    held = train > 0
    overall = train.sum() / held.sum()
    users, movies = np.zeros(len(train)), np.zeros(train.shape[1])
    for _ in range(10):
        left = np.where(held, train - overall - users[:, None], 0.0)
        movies = left.sum(axis=0) / (held.sum(axis=0) + 1)
        left = np.where(held, train - overall - movies, 0.0)
        users = left.sum(axis=1) / (held.sum(axis=1) + penalty)
    return overall + users[:, None]


def search(
    codes: np.ndarray, values: np.ndarray, base: np.ndarray | float, validation: np.ndarray
) -> list[tuple[float, Guess]]:
    """Validation RMSE and guess of every rank, pseudo-count and number of passes: means of several fits."""
    schema = pmf.Schema.from_cardinalities([values.size] * codes.shape[1])
    found = []
    for model in fit_averages(codes, schema, RANKS, SMOOTHINGS, PASSES):
        guess = base + expect(model, codes, values)
        found.append((measure(guess, validation)[0], guess))
    return found


def average_best(found: list[tuple[float, Guess]]) -> Guess:
    """Mean of the guesses that do best on the validation ratings."""
    best = sorted(found, key=lambda pair: pair[0])[:BEST]
    return np.mean([guess for _, guess in best], axis=0)


def fit_published(split: Split, method: str) -> Guess:
    """The paper's methods: rank by validation RMSE from its grid, 30 passes of EM."""
    codes = (split.train - 1).astype(np.int8)
    counts = pmf.count_pairs(codes, [LEVELS] * codes.shape[1], n_folds=1)
    best = (np.inf, np.full(codes.shape, 2.75))
    for rank in (5, 10, 15, 20, 25):
        model = pmf.fit(counts, rank, method="opt" if method == "CNMF-OPT" else "spa").model
        if method == "CNMF-SPA-EM":
            model = pmf.fit_em(codes, model, smoothing=0.0, max_passes=30).model
        guess = expect(model, codes, RATINGS)
        best = min(best, (measure(guess, split.validation)[0], guess), key=lambda pair: pair[0])
    return best[1]


def list_fits(split: Split) -> dict[str, Callable[[], Guess]]:
    """All methods by name."""
    published = ("CNMF-SPA", "CNMF-OPT", "CNMF-SPA-EM")
    return {
        **{name: partial(fit_published, split, name) for name in published},
        "BMF": lambda: factorise(split),
        **average(split),
        "joint PMF": lambda: fit_plain(split),
        "ours": lambda: fit_ours(split),
    }


def run_genre(table: np.ndarray, genre: str, n_trials: int) -> None:
    """Errors of all methods over random splits, and a table of them."""
    share = np.mean(table > 0)
    print(
        f"\n{genre}: {table.shape[0]} users, {table.shape[1]} movies, {share:.0%} known, {n_trials} trials"
    )
    errors: dict[str, list[tuple[float, float]]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(n_trials):
        split = hide_ratings(table, seed)
        fits = list_fits(split)
        # as published: users of whom nothing is known are left out
        test = np.where((split.train > 0).any(axis=1, keepdims=True), split.test, 0)
        for name, fit in fits.items():
            began = time.process_time()
            errors.setdefault(name, []).append(measure(fit(), test))
            seconds.setdefault(name, []).append(time.process_time() - began)
    number = GENRES[genre][0]
    published = [read_published(REFERENCE, number, metric) for metric in ("rmse", "mae")]
    print(f"{'method':<16}{'published':>16}{'RMSE':>9}{'sd':>8}{'MAE':>9}{'sd':>8}{'CPU s':>8}")
    for name, each in errors.items():
        told = " ".join(f"{part[name]:.4f}" for part in published if name in part)
        line = f"{name:<16}{told:>16}"
        for place in (0, 1):
            values = [pair[place] for pair in each]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            line += f"{statistics.mean(values):>9.4f}{spread:>8.4f}"
        print(line + f"{statistics.median(seconds[name]):>8.2f}", flush=True)


def main() -> None:
    """Run the genres."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="a MovieLens folder")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--genres", default=",".join(GENRES))
    parser.add_argument("--short", action="store_true", help="1 trial")
    options = parser.parse_args()
    # the choice of passes stops EM, and the published limits belong to the methods
    warnings.simplefilter("ignore", pmf.ConvergenceWarning)
    log = read_log(options.path)
    for genre in options.genres.split(","):
        table = make_table(log, list_movies(options.path, log, genre))
        run_genre(table, genre, 1 if options.short else options.trials)


if __name__ == "__main__":
    main()
