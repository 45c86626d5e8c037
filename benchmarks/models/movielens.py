"""MovieLens folders: ratings, and the tables of the joint-PMF paper made of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

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


def read_log(path: Path) -> np.ndarray:
    """User, movie, rating and time of each rating of a MovieLens folder: float64 of shape (n_ratings, 4)."""
    for name, delimiter, n_heads in (
        ("u.data.gz", None, 0),
        ("u.data", None, 0),
        ("ratings.csv", ",", 1),
        ("ratings.csv.gz", ",", 1),
    ):
        file = path / name
        if file.exists():
            with gzip.open(file, "rt") if name.endswith(".gz") else file.open() as stream:
                return np.loadtxt(stream, delimiter=delimiter, skiprows=n_heads)
    raise SystemExit(f"{path} has neither u.data nor ratings.csv, nor one of them with .gz")


def list_movies(path: Path, log: np.ndarray, genre: str) -> np.ndarray:
    """Movies of a genre: the most-rated ones of ml-100k, else the published list."""
    if not (path / "u.item").exists():
        return np.array(PUBLISHED_MOVIES[genre].split(), np.int64)
    rows = [line.split("|") for line in (path / "u.item").read_text("latin-1").splitlines()]
    names = [line.split("|")[0].lower() for line in (path / "u.genre").read_text().split()]
    flag = 5 + names.index(genre)
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
    return np.asarray(table[(table > 0).sum(axis=1) >= MIN_RATINGS])
