"""Raw logs drawn from a model: large, interleaved and, on request, dirty."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, count, islice, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pyarrow as pa

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError, SchemaError
from pmflib.model.sampling import check_model, choose_variables, sample_answers, sample_codes
from pmflib.synthetic.raw_logs import (
    RATING_DAMAGE,
    SURVEY_DAMAGE,
    TEXT_DAMAGE,
    UNKNOWN_LABEL,
    Format,
    answer_texts,
    damage_answers,
    damage_ratings,
    open_sink,
    pick_rows,
    plan_paths,
    rating_texts,
    take,
)

RATING_HEADER = pa.schema(
    {"user": pa.string(), "movie": pa.string(), "rating": pa.string(), "ts": pa.int64()}
)
"""Columns of a rating log."""
POPULARITY_EXPONENT = 0.9
"""Exponent of the Zipf law of the movies' popularity."""
FIRST_SECOND = 1_500_000_000
"""Time of the first rating, seconds since 1970."""
FILE_SECONDS = 30 * 24 * 3600
"""Period of one file of a rating log, seconds."""


@dataclass(frozen=True)
class LogSummary:
    """Exact account of the rows that a writer wrote, with which an ingest of the files must agree.

    Attributes
    ----------
    paths
        The files, in chronological order.
    variables, levels
        Names of the variables, and of the levels; variable j uses the first ``cardinalities[j]``.
    n_rows
        Rows written to all files, headers apart, damaged and repeated ones included.
    n_answers
        Answers that are left when rows with an unknown level, an unknown variable, a wrong number
        of fields or undecodable bytes are set aside, and of a repeated answer one is kept.
    unknown_level, missing_field, extra_field, undecodable, empty_value, duplicate, unknown_variable
        Rows damaged in each way; no row is damaged in two. A duplicate is a row more.
    """

    paths: tuple[Path, ...]
    variables: tuple[str, ...]
    levels: tuple[str, ...]
    n_rows: int
    n_answers: int
    unknown_level: int = 0
    missing_field: int = 0
    extra_field: int = 0
    undecodable: int = 0
    empty_value: int = 0
    duplicate: int = 0
    unknown_variable: int = 0


def write_rating_log(
    path: str | Path,
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    *,
    n_samples: int,
    ratings_per_sample: float,
    rng: np.random.Generator,
    n_files: int = 1,
    format: Format = "csv",
    batch: int = 4096,
    dirt: float = 0.0,
) -> LogSummary:
    """Write a long log with the columns user, movie, rating, ts, drawn from a model.

    Parameters
    ----------
    path
        The file, or with several files a directory, which must be empty or not exist.
    prior, factors, offsets
        The model; its first variable is the movie "m0001", its first level the rating "1".
    n_samples
        Users, >= 1.
    ratings_per_sample
        Mean number of ratings of a user; users vary (gamma, shape 2) within [1, n_variables].
    rng
        Source of randomness; one seed gives the same bytes.
    n_files
        Files, each a period after the one before; a user's ratings spread over all of them.
    format
        "csv", "csv.gz" or "parquet".
    batch
        Users drawn at a time: the rows of so many users are shuffled together.
    dirt
        Share of rows to damage, in [0, 1]; the ways of damage alternate. Parquet has no
        ragged rows and no undecodable bytes.

    Returns
    -------
    The exact account of what was written.

    Raises
    ------
    RankError, SchemaError, PmfError
        If the model does not fit together or a number is out of range.
    SourceError
        If the format is unknown or the directory is not empty.

    Notes
    -----
    Memory is some 300 bytes per row of a batch. Movies are chosen by Zipf weights without
    replacement: a few have most ratings. Times do not decrease within a file and have ties; a
    duplicate is strictly later than its original, in the same file or a later one, and its level
    is another.
    """
    check_model(prior, factors, offsets)
    _check_sizes(offsets, n_samples, batch, dirt)
    if not ratings_per_sample > 0:
        raise PmfError(f"ratings_per_sample is {ratings_per_sample}: it must be above 0")
    paths = plan_paths(Path(path), n_files, format)
    ways = RATING_DAMAGE if format == "parquet" else RATING_DAMAGE + TEXT_DAMAGE
    movies = tuple(f"m{j + 1:04d}" for j in range(offsets.size - 1))
    levels = tuple(str(i + 1) for i in range(np.diff(offsets).max()))
    movie_texts, level_texts = rating_texts(movies, levels, format)
    popularity = rng.permutation(np.arange(1.0, len(movies) + 1) ** -POPULARITY_EXPONENT)
    starts = range(0, n_samples, batch)
    span = max(3600, FILE_SECONDS // len(starts))
    damage, n_rows, n_answers = dict.fromkeys(ways, 0), 0, 0
    with ExitStack() as stack:
        sinks = [stack.enter_context(open_sink(target, format, RATING_HEADER)) for target in paths]
        for b, first in enumerate(starts):
            activity = rng.gamma(2.0, ratings_per_sample / 2, min(batch, n_samples - first))
            rows = _draw_ratings(prior, factors, offsets, popularity, activity, rng)
            picked = pick_rows(np.arange(len(rows)), dirt, damage, rng)
            repeats = damage_ratings(rows, picked, offsets, rng)
            n_rows += len(rows) + len(repeats)
            n_answers += len(rows) - sum(hit.size for hit in picked.values()) + len(repeats)
            users = [b"u%06d" % user for user in range(first + 1, first + activity.size + 1)]
            homes = rng.integers(picked["duplicate"] % n_files, n_files)
            for f, write in enumerate(sinks):
                part, late = rows[f::n_files], repeats[homes == f]
                start = FIRST_SECOND + (f * len(starts) + b) * span
                seconds = _spread_times(start, span, len(part), len(late))
                user, movie, rating = np.concatenate([part, late]).T
                columns = [take(users, user), take(movie_texts, movie)]
                write([*columns, take(level_texts, rating), pa.array(seconds)])
    return LogSummary(paths, movies, levels, n_rows, n_answers, **damage)


def write_survey(
    path: str | Path,
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    *,
    n_samples: int,
    observed: float | FloatArray,
    rng: np.random.Generator,
    dirt: float = 0.0,
    format: Format = "csv",
    level_labels: Sequence[str] | None = None,
    batch: int = 16384,
) -> LogSummary:
    """Write a wide table with the columns id, q01, q02, ..., drawn from a model.

    Parameters
    ----------
    path
        The file.
    prior, factors, offsets
        The model.
    n_samples
        People, >= 1.
    observed
        Probability that a question is answered, one number or shape (n_variables,).
    rng
        Source of randomness; one seed gives the same bytes.
    dirt
        Share of the rows with an answer to damage, in [0, 1], each in one cell; the ways of
        damage alternate. A duplicate repeats an id later in the file, with one answer changed.
    format
        "csv", "csv.gz" or "parquet"; an unanswered question is an empty field or null.
    level_labels
        Text of each level, different and not empty; default "a", "b", ... Labels with commas and
        quotes are quoted.
    batch
        Rows drawn at a time.

    Returns
    -------
    The exact account of what was written.

    Raises
    ------
    RankError, SchemaError, PmfError
        If the model does not fit together, a number is out of range or labels are unfit.
    SourceError
        If the format is unknown.
    """
    check_model(prior, factors, offsets)
    _check_sizes(offsets, n_samples, batch, dirt)
    paths = plan_paths(Path(path), 1, format)
    ways = SURVEY_DAMAGE if format == "parquet" else SURVEY_DAMAGE + TEXT_DAMAGE
    levels = _check_labels(level_labels, int(np.diff(offsets).max()))
    width = max(2, len(str(offsets.size - 1)))
    questions = tuple(f"q{j + 1:0{width}d}" for j in range(offsets.size - 1))
    texts = answer_texts(levels, format)
    damage, n_rows, n_answers = dict.fromkeys(ways, 0), 0, 0
    schema = pa.schema([(name, pa.string()) for name in ("id", *questions)])
    with open_sink(paths[0], format, schema) as write:
        for first in range(0, n_samples, batch):
            n_batch = min(batch, n_samples - first)
            codes = sample_codes(prior, factors, offsets, n_batch, rng, observed=observed)
            rows = np.where(codes < 0, len(levels), codes.astype(np.int64))
            picked = pick_rows(np.flatnonzero((codes >= 0).any(axis=1)), dirt, damage, rng)
            repeats, usable = damage_answers(rows, picked, offsets, len(levels), rng)
            n_rows += n_batch + len(repeats)
            n_answers += int(np.sum(rows[usable] < len(levels)))
            people = [b"s%06d" % person for person in range(first + 1, first + n_batch + 1)]
            identity = np.concatenate([np.arange(n_batch), picked["duplicate"]])
            cells = np.concatenate([rows, repeats]).T
            write([take(people, identity), *(take(texts, cell) for cell in cells)])
    return LogSummary(paths, questions, levels, n_rows, n_answers, **damage)


def _check_sizes(offsets: IntArray, n_samples: int, batch: int, dirt: float) -> None:
    if n_samples < 1 or batch < 1:
        raise PmfError(f"n_samples is {n_samples} and batch {batch}: both must be >= 1")
    if not 0 <= dirt <= 1:
        raise PmfError(f"dirt is {dirt}, outside [0, 1]: pass the share of rows to damage")
    if dirt > 0 and np.diff(offsets).min() < 2:
        raise SchemaError(
            "a variable has 1 level, a duplicate with another needs 2: pass dirt=0 or add levels"
        )


def _check_labels(labels: Sequence[str] | None, n_needed: int) -> tuple[str, ...]:
    if labels is None:
        letters = (product(ascii_lowercase, repeat=width) for width in count(1))
        return tuple("".join(word) for word in islice(chain.from_iterable(letters), n_needed))
    if len(labels) < n_needed:
        raise SchemaError(f"level_labels has {len(labels)} texts, the widest variable {n_needed}")
    if len(set(labels)) < len(labels) or not {"", UNKNOWN_LABEL}.isdisjoint(labels):
        raise SchemaError(
            f"level_labels is {list(labels)!r}: texts must differ and be neither empty nor "
            f"{UNKNOWN_LABEL!r}, which marks damage"
        )
    return tuple(labels[:n_needed])


def _draw_ratings(
    prior: FloatArray,
    factors: FloatArray,
    offsets: IntArray,
    popularity: FloatArray,
    activity: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Draw shuffled rows (user, variable, level), users counted from 0."""
    sizes = np.rint(activity).astype(np.int64).clip(1, popularity.size)
    row_starts = np.concatenate([[0], np.cumsum(sizes)])
    variables = choose_variables(popularity, row_starts, rng)
    codes = sample_answers(prior, factors, offsets, row_starts, variables, rng)
    rows = np.stack([np.repeat(np.arange(sizes.size), sizes), variables, codes], axis=1)
    return rows[rng.permutation(len(rows))]


def _spread_times(start: int, span: int, n_regular: int, n_late: int) -> IntArray:
    """Seconds in [start, start + span), in pairs at least; the last one is for the late rows."""
    steps = np.arange(n_regular) // 2 * 2
    regular = start + steps * (span - 1) // max(1, n_regular)
    return np.concatenate([regular, np.full(n_late, start + span - 1)])
