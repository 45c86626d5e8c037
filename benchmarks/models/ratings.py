"""Tables XII to XIV of the joint-PMF paper: hidden ratings of 30 movies of a genre, against matrix factorisation.

    python -m benchmarks.models.ratings ../shared/data/ml-100k --trials 5
    python -m benchmarks.models.ratings ../shared/data/ml-100k --genres comedy,drama,thriller
    python -m benchmarks.models.ratings PATH/ml-20m --genres action --short

takes a MovieLens folder: of ml-100k the 30 most-rated movies of each genre, of the others (`ratings.csv`) the published
lists. Users with at least 5 ratings of these movies; of the ratings 50 % to learn from, 20 % to choose on and 30 % to
be scored on. The methods were designed on splits 0 to 3 of the published genres; --first 100 takes splits that had no
part in it.

The paper's methods choose the rank by validation RMSE, and predict the expected rating given what is known of the user;
so does `joint PMF`, averages of ten fits. `ours` takes of the same averages the means and covariances of ratings only,
and makes the best linear prediction from them: states picture users too coarsely for the full posterior. Covariances
are scaled to those of the counted pairs, and drawn to a common correlation.

`BMF` is biased matrix factorisation as published, by alternating least squares; `BMF, tuned` has a penalty of its own
for users' biases, movies' biases and factors. `BMF, tuned`, `joint PMF` and `ours` are each the mean of the five
candidates that do best on the validation ratings.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, product
from pathlib import Path

import numpy as np

import pmflib as pmf
from benchmarks.models.averages import fit_averages
from benchmarks.models.movielens import list_movies, make_table, read_log
from benchmarks.published import REFERENCE, read_published

GENRES = {"action": 12, "animation": 13, "romance": 14}
"""Number of the published table."""

LEVELS = 5

RANKS = (2, 4, 8, 16, 32)
PSEUDO_COUNTS = (0.1, 0.5, 2.0, 6.0)
PASSES = (4, 12, 25)
COMMON = (0.25, 0.5, 0.75)
INFLATIONS = (1.0, 1.25)
LEAST_EIGENVALUE = 0.02
BEST = 5

FACTOR_RANKS = (0, 1, 2, 5, 10)
FACTOR_PENALTIES = (2.0, 5.0, 8.0, 12.0, 20.0)
USER_PENALTIES = (2.0, 4.0, 8.0)
MOVIE_PENALTIES = (1.0, 5.0)


@dataclass(frozen=True)
class Split:
    """Tables of shape (n_users, n_movies): ratings 1 to 5, 0 where not known."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


Guess = np.ndarray
"""Ratings of every user and movie, float64 of shape (n_users, n_movies)."""


def hide_ratings(table: np.ndarray, seed: int) -> Split:
    """Deal the known ratings: 50 % to learn from, 20 % to choose on, 30 % to be scored on."""
    known = np.flatnonzero(table)
    shuffled = np.random.default_rng(seed).permutation(known)
    parts = []
    for cells in np.split(shuffled, [known.size // 2, known.size * 7 // 10]):
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
    """Biased matrix factorisation as published: rank by validation RMSE, a penalty of 10 on everything."""
    found = [_factorise(split, rank, 10.0, 10.0, 10.0) for rank in (5, 10, 15, 20)]
    return min(found, key=lambda pair: pair[0])[1]


def factorise_tuned(split: Split) -> Guess:
    """The same with rank, none among them, and three penalties by validation RMSE."""
    grid = product(FACTOR_RANKS, FACTOR_PENALTIES, USER_PENALTIES, MOVIE_PENALTIES)
    return average_best([_factorise(split, *each) for each in grid if each[0] or each[1] == 2])


def _factorise(
    split: Split, rank: int, penalty: float, of_users: float, of_movies: float
) -> tuple[float, Guess]:
    """Alternating least squares until validation RMSE rises; that, and the guess."""
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
        user_bias, users = solve_ridge(centred - movie_bias, held, movies, of_users, penalty)
        left = (centred - user_bias[:, None]).T
        movie_bias, movies = solve_ridge(left, held.T, users, of_movies, penalty)
        guess = overall + user_bias[:, None] + movie_bias + users @ movies.T
        guess = np.clip(guess, 1, LEVELS)
        reached = measure(guess, split.validation)[0]
        if reached >= best[0]:
            break
        best = reached, guess
    return best


def solve_ridge(
    observed: np.ndarray, held: np.ndarray, factors: np.ndarray, of_bias: float, penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ridge regression of each row on a one and the factors: biases and coefficients."""
    design = np.hstack([np.ones((len(factors), 1)), factors])
    squares = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    grams = (held @ squares).reshape(len(held), design.shape[1], -1)
    grams += np.diag([of_bias] + [penalty] * factors.shape[1])
    found = np.linalg.solve(grams, ((observed * held) @ design)[:, :, None])[:, :, 0]
    return found[:, 0], found[:, 1:]


RATINGS = np.arange(1.0, LEVELS + 1)


def expect(model: pmf.JointPMF, codes: np.ndarray) -> Guess:
    """Expected rating of every movie given what is known of the user."""
    means = np.stack([RATINGS @ model.factor(j) for j in range(codes.shape[1])])
    return model.posterior(codes) @ means.T


def fit_joint(split: Split) -> dict[str, Callable[[], Guess]]:
    """The joint PMF's expected ratings, and its best linear prediction; the time of the fits is the first's."""
    codes = (split.train - 1).astype(np.int8)
    schema = pmf.Schema.from_cardinalities([LEVELS] * codes.shape[1])

    @cache
    def fits() -> list[pmf.JointPMF]:
        return list(fit_averages(codes, schema, RANKS, PSEUDO_COUNTS, PASSES))

    def predict() -> Guess:
        return score(split, (expect(model, codes) for model in fits()))

    def predict_by_pairs() -> Guess:
        return score(split, chain(*(predict_linearly(model, split.train) for model in fits())))

    return {"joint PMF": predict, "ours": predict_by_pairs}


def score(split: Split, guesses: Iterable[Guess]) -> Guess:
    """The mean of those that do best on the validation ratings."""
    return average_best([(measure(guess, split.validation)[0], guess) for guess in guesses])


def average_best(found: list[tuple[float, Guess]]) -> Guess:
    """The mean of the guesses of least error."""
    best = sorted(found, key=lambda pair: pair[0])[:BEST]
    return np.asarray(np.mean([guess for _, guess in best], axis=0))


def predict_linearly(model: pmf.JointPMF, train: np.ndarray) -> list[Guess]:
    """Best linear predictions from a model's pair marginals, for all ways to repair its covariances."""
    factors = [model.factor(j) for j in range(train.shape[1])]
    means = np.stack([RATINGS @ factor for factor in factors])
    mean = means @ model.prior
    variance = np.stack([RATINGS**2 @ factor for factor in factors]) @ model.prior - mean**2
    covariance = (means * model.prior) @ means.T - np.outer(mean, mean)
    np.fill_diagonal(covariance, 0)
    # EM on few ratings a user finds covariances 0.4 to 0.7 times as large as counted pairs have
    held = (train > 0).astype(np.float64)
    left = held * (train - mean)
    scale = np.sum(covariance * (left.T @ left)) / np.sum(covariance**2 * (held.T @ held))
    deviations = np.sqrt(variance)
    correlation = scale * covariance / np.outer(deviations, deviations)
    common = correlation.sum() / (mean.size * (mean.size - 1))
    guesses = []
    for share, enlargement in product(COMMON, INFLATIONS):
        repaired = enlargement * ((1 - share) * correlation + share * common)
        np.fill_diagonal(repaired, 1)
        if np.linalg.eigvalsh(repaired)[0] > LEAST_EIGENVALUE:
            guesses.append(_krige(mean, repaired * np.outer(deviations, deviations), train))
    return guesses


def _krige(mean: np.ndarray, covariance: np.ndarray, train: np.ndarray) -> Guess:
    """Linear prediction from each user's ratings, and from means by generalised least squares."""
    held = train > 0
    both = held[:, :, None] & held[:, None, :]
    known = np.where(both, covariance, np.eye(mean.size))
    precision = np.linalg.inv(known) * both
    # the model's own mean is for a movie without a rating
    ridge = 1e-6 * np.eye(mean.size)
    total = np.einsum("ujk,uk->j", precision, train)
    mean = np.linalg.solve(precision.sum(axis=0) + ridge, total + ridge @ mean)
    weights = np.einsum("ujk,uk->uj", precision, held * (train - mean))
    return np.asarray(np.clip(mean + weights @ covariance, 1, LEVELS))


def fit_published(split: Split, method: str) -> Guess:
    """The paper's methods: rank by validation RMSE from its grid, 30 passes of EM."""
    codes = (split.train - 1).astype(np.int8)
    schema = pmf.Schema.from_cardinalities([LEVELS] * codes.shape[1])
    counts = pmf.count_pairs(codes, schema, n_folds=1)
    triples = pmf.counts.count_triples(codes, schema) if method == "CTD" else None
    best = (np.inf, np.full(codes.shape, 2.75))
    for rank in (5, 10, 15, 20, 25):
        if triples is not None:
            model = pmf.fits.fit_triples(triples, rank, loss="squares").model
        else:
            model = pmf.fit(counts, rank, method="opt" if method == "CNMF-OPT" else "spa").model
        if method == "CNMF-SPA-EM":
            model = pmf.fit_em(codes, model, pseudo_count=0.0, max_passes=30).model
        guess = expect(model, codes)
        best = min(best, (measure(guess, split.validation)[0], guess), key=lambda pair: pair[0])
    return best[1]


def list_fits(split: Split) -> dict[str, Callable[[], Guess]]:
    """All methods by name."""
    published = ("CNMF-SPA", "CNMF-OPT", "CNMF-SPA-EM", "CTD")
    return {
        **{name: partial(fit_published, split, name) for name in published},
        "BMF": lambda: factorise(split),
        "BMF, tuned": lambda: factorise_tuned(split),
        **average(split),
        **fit_joint(split),
    }


def run_genre(table: np.ndarray, genre: str, seeds: range) -> None:
    """Errors of all methods over random splits, and a table of them."""
    share = np.mean(table > 0)
    size = f"{table.shape[0]} users, {table.shape[1]} movies, {share:.0%} known"
    print(f"\n{genre}: {size}, splits {seeds[0]} to {seeds[-1]}")
    errors: dict[str, list[tuple[float, float]]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in seeds:
        split = hide_ratings(table, seed)
        fits = list_fits(split)
        # as published: users of whom nothing is known are left out
        test = np.where((split.train > 0).any(axis=1, keepdims=True), split.test, 0)
        for name, fit in fits.items():
            began = time.process_time()
            errors.setdefault(name, []).append(measure(fit(), test))
            seconds.setdefault(name, []).append(time.process_time() - began)
    number = GENRES.get(genre, 0)
    published = [read_published(REFERENCE, number, metric) for metric in ("rmse", "mae")]
    print(f"{'method':<16}{'published':>16}{'RMSE':>9}{'sd':>8}{'MAE':>9}{'sd':>8}{'CPU s':>8}")
    for name, each in errors.items():
        shown = " ".join(f"{part[name]:.4f}" for part in published if name in part)
        line = f"{name:<16}{shown:>16}"
        for index in (0, 1):
            values = [pair[index] for pair in each]
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
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--genres", default=",".join(GENRES), help="of ml-100k any, in lower case")
    parser.add_argument("--short", action="store_true", help="1 trial")
    options = parser.parse_args()
    # the choice of passes stops EM, and the published limits belong to the methods
    warnings.simplefilter("ignore", pmf.errors.ConvergenceWarning)
    seeds = range(options.first, options.first + (1 if options.short else options.trials))
    log = read_log(options.path)
    for genre in options.genres.split(","):
        table = make_table(log, list_movies(options.path, log, genre))
        run_genre(table, genre, seeds)


if __name__ == "__main__":
    main()
