"""Hidden ratings of MovieLens 100K: continuous traits against matrix factorisation and averaged latent classes.

    python -m benchmarks.models.traits ../shared/data/ml-100k
    python -m benchmarks.models.traits ../shared/data/ml-100k --trials 1 --no-classes

takes the movies with at least 100 ratings, and hides a fifth of their ratings, chosen anew in each of five splits. What
a method leaves open is chosen on a tenth of the other ratings; then all of these are fitted. Besides, a tenth of the
people is taken out of the training ratings: of these, who are seen for the first time, hidden ratings are predicted
from the others, and the log-probability of all their ratings together is taken.

`BMF, tuned` is biased matrix factorisation by alternating least squares: rank, none among them, and penalties of users'
biases, movies' biases and factors by validation error, and so the number of rounds; the mean of the five best, each
fitted again to all ratings. `BMF, fold-in` takes the movies of each of these, and finds the users anew under the normal
prior that the fitted users have, as the traits are found. `classes` are ten averaged fits, of the rank that
is best on the validation ratings. `traits` predicts by fold-in, and `1000 states` are those that it is compiled into.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

import pmflib as pmf
from benchmarks.models.movielens import read_log
from benchmarks.models.ratings import (
    BEST,
    FACTOR_PENALTIES,
    FACTOR_RANKS,
    LEVELS,
    MOVIE_PENALTIES,
    RATINGS,
    USER_PENALTIES,
    solve_ridge,
)
from pmflib.core.blocks import DenseBlock

LEAST_RATINGS = 100
HIDDEN_SHARE, VALIDATION_SHARE, NEW_SHARE = 0.2, 0.1, 0.1
N_STATES = 1000
MEMBERS = 10
CLASS_RANKS = (2, 3, 4, 6, 8, 16)
MOST_ROUNDS = 60


@dataclass(frozen=True)
class Cells:
    """Ratings to predict: users, movies, and codes from 0, int64 of shape (n_cells,) each."""

    users: np.ndarray
    movies: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class Factors:
    """Biased matrix factorisation: overall mean, and of each side biases and factors."""

    mean: float
    users: np.ndarray
    movies: np.ndarray
    penalties: tuple[float, float, float]
    rounds: int


def make_table(path: Path) -> np.ndarray:
    """Codes of the ratings of the movies with enough of them: int8 of shape (n_users, n_movies), -1 unknown."""
    log = read_log(path).astype(np.int64)
    movies = np.flatnonzero(np.bincount(log[:, 1]) >= LEAST_RATINGS)
    log = log[np.isin(log[:, 1], movies)]
    users, rows = np.unique(log[:, 0], return_inverse=True)
    table = np.full((users.size, movies.size), -1, np.int8)
    table[rows, np.searchsorted(movies, log[:, 1])] = log[:, 2] - 1
    return table


def hide(codes: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, Cells]:
    """Take out a share of the ratings."""
    users, movies = np.nonzero((codes >= 0) & (rng.random(codes.shape) < share))
    left = codes.copy()
    left[users, movies] = -1
    return left, Cells(users, movies, codes[users, movies].astype(np.int64))


def factorise(
    codes: np.ndarray,
    rank: int,
    penalties: tuple[float, float, float],
    rounds: int,
    validation: Cells | None = None,
) -> tuple[Factors, float]:
    """Alternating least squares until the validation error rises, or a number of rounds; and that error."""
    held = (codes >= 0).astype(np.float64)
    mean = float(codes[codes >= 0].mean())
    centred = np.where(held > 0, codes - mean, 0.0)
    user_bias, movie_bias = (np.zeros(size) for size in codes.shape)
    movies = 0.1 * np.random.default_rng(0).standard_normal((codes.shape[1], rank))
    of_users, of_movies, penalty = penalties
    best: tuple[Factors, float] | None = None
    for number in range(1, rounds + 1):
        user_bias, users = solve_ridge(centred - movie_bias, held, movies, of_users, penalty)
        left = (centred - user_bias[:, None]).T
        movie_bias, movies = solve_ridge(left, held.T, users, of_movies, penalty)
        sides = np.column_stack([user_bias, users]), np.column_stack([movie_bias, movies])
        found = Factors(mean, *sides, penalties, number)
        error = np.inf if validation is None else measure(guess(found, validation), validation)[0]
        if validation is not None and best is not None and error >= best[1]:
            break
        best = found, error
    assert best is not None
    return best


def guess(factors: Factors, cells: Cells) -> np.ndarray:
    """Predicted codes."""
    users, movies = factors.users[cells.users], factors.movies[cells.movies]
    value = factors.mean + users[:, 0] + movies[:, 0] + (users[:, 1:] * movies[:, 1:]).sum(axis=1)
    return np.asarray(np.clip(value, 0, LEVELS - 1))


def choose_factors(
    codes: np.ndarray, seed: int
) -> list[tuple[int, tuple[float, float, float], int]]:
    """Rank, penalties and rounds of the best few by a tenth of the ratings."""
    left, validation = hide(codes, VALIDATION_SHARE, np.random.default_rng([seed, 1]))
    tried = []
    for rank, penalty, of_users, of_movies in product(
        FACTOR_RANKS, FACTOR_PENALTIES, USER_PENALTIES, MOVIE_PENALTIES
    ):
        if rank or penalty == FACTOR_PENALTIES[0]:
            penalties = of_users, of_movies, penalty
            found, error = factorise(left, rank, penalties, MOST_ROUNDS, validation)
            tried.append((error, (rank, penalties, found.rounds)))
    return [each for _, each in sorted(tried)[:BEST]]


def fold_users(factors: Factors, codes: np.ndarray, noise: float | None = None) -> Factors:
    """Users found anew from their ratings: by the penalties, or under the normal prior of the fitted users.

    noise is the variance of the ratings, for the latter.
    """
    held = (codes >= 0).astype(np.float64)
    observed = np.where(held > 0, codes - factors.mean - factors.movies[:, 0], 0.0)
    if noise is None:
        of_users, _, penalty = factors.penalties
        bias, users = solve_ridge(observed, held, factors.movies[:, 1:], of_users, penalty)
        return replace(factors, users=np.column_stack([bias, users]))
    design = np.column_stack([np.ones(len(factors.movies)), factors.movies[:, 1:]])
    mean = factors.users.mean(axis=0)
    covariance = np.cov(factors.users.T).reshape(mean.size, mean.size) + 1e-4 * np.eye(mean.size)
    squares = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    grams = (held @ squares).reshape(len(held), mean.size, mean.size)
    pull = ((observed - held * (design @ mean)) @ design)[:, :, None]
    steps = np.linalg.solve(grams + noise * np.linalg.inv(covariance), pull)[:, :, 0]
    return replace(factors, users=mean + steps)


def find_noise(factors: Factors, codes: np.ndarray) -> float:
    """Variance of the ratings around what is predicted, degrees of freedom of the users taken off."""
    users, movies = np.nonzero(codes >= 0)
    cells = Cells(users, movies, codes[users, movies].astype(np.int64))
    left = ((guess(factors, cells) - cells.codes) ** 2).sum()
    return float(left / max(users.size - factors.users.size, users.size / 2))


def fit_factors(
    codes: np.ndarray, chosen: list[tuple[int, tuple[float, float, float], int]]
) -> list[Factors]:
    """The chosen factorisations of all ratings."""
    return [factorise(codes, rank, penalties, rounds)[0] for rank, penalties, rounds in chosen]


def guess_mean(models: list[Factors], cells: Cells) -> np.ndarray:
    """Mean of the predictions."""
    return np.asarray(np.mean([guess(each, cells) for each in models], axis=0))


def predict_by_states(model: pmf.JointPMF, left: np.ndarray, cells: Cells) -> np.ndarray:
    """PMFs of the cells by the latent states alone: (n_cells, LEVELS)."""
    posteriors = model.posterior(left)
    chances = np.empty((cells.codes.size, LEVELS))
    for movie in np.unique(cells.movies):
        own = cells.movies == movie
        users = cells.users[own]
        chances[own] = model.predict_hidden(left[users], posteriors[users], int(movie))
    return chances


def choose_n_states(codes: np.ndarray, schema: pmf.Schema, seed: int) -> int:
    """Rank of the averaged fits that makes a tenth of the ratings most probable."""
    left, validation = hide(codes, VALIDATION_SHARE, np.random.default_rng([seed, 1]))
    found = []
    for rank in CLASS_RANKS:
        model = pmf.fit_em(left, rank=rank, schema=schema, members=MEMBERS, rng=seed).model
        chances = predict_by_states(model, left, validation)
        found.append((measure_chances(chances, validation)[2], rank))
    return max(found)[1]


def predict_by_traits(model: pmf.JointPMF, left: np.ndarray, cells: Cells) -> np.ndarray:
    """PMFs of the cells by fold-in."""
    assert model.trait_model is not None
    return model.trait_model.predict_cells(DenseBlock(left), cells.users, cells.movies)


def measure(predicted: np.ndarray, cells: Cells) -> tuple[float, float]:
    """Root mean squared and mean absolute error."""
    error = predicted - cells.codes
    return float(np.sqrt(np.mean(error**2))), float(np.abs(error).mean())


def measure_chances(chances: np.ndarray, cells: Cells) -> tuple[float, float, float]:
    """Errors of the expected ratings, and mean log-probability."""
    own = chances[np.arange(cells.codes.size), cells.codes]
    return (*measure(chances @ (RATINGS - 1), cells), float(np.log(own).mean()))


Scores = dict[str, list[tuple[float, ...]]]


def run_split(codes: np.ndarray, seed: int, found: Scores, *, classes: bool) -> None:
    """Scores of one split, of all people, and of people never seen ("new")."""
    rng = np.random.default_rng(seed)
    left, cells = hide(codes, HIDDEN_SHARE, rng)
    new = np.sort(rng.permutation(len(codes))[: round(NEW_SHARE * len(codes))])
    old = np.setdiff1d(np.arange(len(codes)), new)
    row = np.full(len(codes), -1)
    row[new] = np.arange(new.size)
    own = row[cells.users] >= 0
    new_cells = Cells(row[cells.users[own]], cells.movies[own], cells.codes[own])
    schema = pmf.Schema.from_cardinalities([LEVELS] * codes.shape[1])

    def keep(name: str, scores: tuple[float, ...], seconds: float, joint: float = np.nan) -> None:
        rmse, mae, *rest = scores
        found.setdefault(name, []).append((rmse, mae, rest[0] if rest else np.nan, joint, seconds))

    began = time.process_time()
    chosen = choose_factors(left, seed)
    models = fit_factors(left, chosen)
    seconds = time.process_time() - began
    keep("BMF, tuned", measure(guess_mean(models, cells), cells), seconds)
    folded = [fold_users(each, left, find_noise(each, left)) for each in models]
    keep("BMF, fold-in", measure(guess_mean(folded, cells), cells), time.process_time() - began)
    models = fit_factors(left[old], chosen)
    for name, normal in (("BMF, tuned, new", False), ("BMF, fold-in, new", True)):
        folded = [
            fold_users(each, left[new], find_noise(each, left[old]) if normal else None)
            for each in models
        ]
        keep(name, measure(guess_mean(folded, new_cells), new_cells), 0.0)

    began = time.process_time()
    result = pmf.fit_traits(left, schema, n_states=N_STATES, rng=seed)
    seconds = time.process_time() - began
    print(f"split {seed}: {result.notes[0]}", flush=True)
    chances = predict_by_traits(result.model, left, cells)
    keep("traits", measure_chances(chances, cells), seconds)
    chances = predict_by_states(result.model, left, cells)
    keep(f"{N_STATES} states", measure_chances(chances, cells), seconds)
    settings = {name: result.model.origin[name] for name in ("dimensions", "shrinkage", "passes")}
    model = pmf.fit_traits(left[old], schema, n_states=N_STATES, rng=seed, **settings).model
    assert model.trait_model is not None
    chances = predict_by_traits(model, left[new], new_cells)
    joint = float(model.trait_model.log_prob(codes[new]).mean())
    keep("traits, new", measure_chances(chances, new_cells), 0.0, joint)
    chances = predict_by_states(model, left[new], new_cells)
    joint = float(model.log_prob(codes[new]).mean())
    keep(f"{N_STATES} states, new", measure_chances(chances, new_cells), 0.0, joint)

    if classes:
        began = time.process_time()
        rank = choose_n_states(left, schema, seed)
        fitted = pmf.fit_em(left, rank=rank, schema=schema, members=MEMBERS, rng=seed).model
        seconds = time.process_time() - began
        print(f"split {seed}: {MEMBERS} fits of rank {rank}", flush=True)
        keep("classes", measure_chances(predict_by_states(fitted, left, cells), cells), seconds)
        fitted = pmf.fit_em(left[old], rank=rank, schema=schema, members=MEMBERS, rng=seed).model
        chances = predict_by_states(fitted, left[new], new_cells)
        joint = float(fitted.log_prob(codes[new]).mean())
        keep("classes, new", measure_chances(chances, new_cells), 0.0, joint)


def main() -> None:
    """Run the splits, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the MovieLens folder")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--no-classes", action="store_true", help="leave out the latent classes")
    options = parser.parse_args()
    # the choice of passes stops EM
    warnings.simplefilter("ignore", pmf.ConvergenceWarning)
    codes = make_table(options.path)
    print(f"{codes.shape[0]} people, {codes.shape[1]} movies, {(codes >= 0).sum()} ratings")
    # what is compiled on first use is no time of a fit
    tiny = pmf.Schema.from_cardinalities([LEVELS] * 3)
    pmf.fit_traits(np.zeros((20, 3), np.int8), tiny, dimensions=1, passes=1)
    found: Scores = {}
    for seed in range(options.first, options.first + options.trials):
        run_split(codes, seed, found, classes=not options.no_classes)
    head = ("RMSE", "MAE", "log-prob", "joint", "CPU s")
    print(f"{'method':<20}" + "".join(f"{name:>10}" for name in head))
    for name, scores in found.items():
        means = np.mean(scores, axis=0)
        texts = [f"{value:>10.4f}" for value in means[:3]] + [
            f"{value:>10.2f}" for value in means[3:]
        ]
        print(f"{name:<20}" + "".join(texts).replace("nan", "  -"))


if __name__ == "__main__":
    main()
