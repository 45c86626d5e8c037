"""Raw logs drawn from a model: large, interleaved and optionally damaged."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.base.arrays import BoolArray, FloatArray, IntArray
from pmflib.base.constraints import Interval, OneOf, at_least, check
from pmflib.base.errors import SchemaError, SourceError
from pmflib.model.sampling import check_parameters, choose_variables, sample_answers, sample_codes

Format: TypeAlias = Literal["csv", "csv.gz", "parquet"]
FORMATS = ("csv", "csv.gz", "parquet")
"""File formats of a log."""
UNKNOWN_LABEL = "no such level"
"""Text of an answer that is not a level."""
TEXT_DAMAGE = ("missing_field", "extra_field", "undecodable")
SURVEY_DAMAGE = ("unknown_level", "empty_value", "duplicate")
RATING_DAMAGE = (*SURVEY_DAMAGE, "unknown_variable")
"""Types of damage for rows of a survey or of a rating log; those of ``TEXT_DAMAGE`` need text files."""


def plan_paths(path: Path, n_files: int, format: Format) -> tuple[Path, ...]:
    """Name the files of a log, and create their directory."""
    check(OneOf(FORMATS), SourceError, format=format)
    check(at_least(1), n_files=n_files)
    if path.is_dir() if n_files == 1 else path.is_file():
        found, needed = ("directory", "file") if n_files == 1 else ("file", "directory")
        raise SourceError(f"path {path} is a {found}, {n_files} file(s) need a {needed}: rename it")
    if n_files == 1:
        path.parent.mkdir(parents=True, exist_ok=True)
        return (path,)
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise SourceError(f"directory {path} is not empty: name a new one or clear it")
    return tuple(path / f"part-{f:05d}.{format}" for f in range(n_files))


@contextmanager
def open_sink(path: Path, format: Format, schema: Any) -> Iterator[Callable[[list[Any]], object]]:
    """Open a file for batches of columns; in text formats the columns are joined to lines."""
    if format == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            yield lambda columns: writer.write_table(_build_table(columns, schema))
        return
    with ExitStack() as stack:
        stream: Any = stack.enter_context(path.open("wb"))
        if format == "csv.gz":
            # No name and no time in the header: equal seeds give equal bytes.
            stream = stack.enter_context(gzip.GzipFile("", "wb", 1, stream, mtime=0))
        stream.write(",".join(schema.names).encode() + b"\n")
        yield lambda columns: stream.write(_join_lines(columns))


def _build_table(columns: list[Any], schema: Any) -> Any:
    typed = [column.cast(dtype) for column, dtype in zip(columns, schema.types, strict=True)]
    return pa.table(typed, schema=schema)


def _join_lines(columns: list[Any]) -> memoryview:
    texts = [
        column.cast(pa.large_string()).cast(pa.large_binary())
        if column.type == pa.int64()
        else column
        for column in columns
    ]
    ends = (pa.scalar(text, pa.large_binary()) for text in (b"\n", b""))
    lines = pc.binary_join_element_wise(*texts, *ends)
    # An array of binaries stores them contiguously: that buffer is the text of the file.
    _, bounds, data = lines.buffers()
    return memoryview(data)[: np.frombuffer(bounds, np.int64)[len(lines)]]


def take(texts: Sequence[bytes | None], indices: IntArray) -> Any:
    """Return an Arrow array of the texts at the indices."""
    return pa.array(texts, pa.large_binary()).take(pa.array(indices))


def rating_texts(
    movies: Sequence[str], levels: Sequence[str], format: Format
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return texts of movies and ratings, damaged ones last, in the order of `damage_ratings`."""
    movie_texts = [name.encode() for name in (*movies, "x0001")]
    level_texts = [text.encode() for text in (*levels, str(len(levels) + 1), "five")]
    if format == "parquet":
        return [*movie_texts], [*level_texts, None]
    ragged: list[bytes] = [b"", b"3,5,", b"3\xbd,"]
    return (
        [b",%b," % text for text in movie_texts],
        [*(b"%b," % text for text in level_texts), b",", *ragged],
    )


def answer_texts(levels: Sequence[str], format: Format) -> list[bytes | None]:
    """Return texts of levels, a missing answer, then damaged texts in the order of `damage_answers`."""
    if format == "parquet":
        return [*(text.encode() for text in levels), None, UNKNOWN_LABEL.encode()]
    quoted = [
        '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text
        for text in (*levels, "", UNKNOWN_LABEL)
    ]
    return [*(b",%b" % text.encode() for text in quoted), b"", b",,", b",\xe9"]


def pick_rows(
    candidates: IntArray, dirt: float, damage: dict[str, int], rng: np.random.Generator
) -> dict[str, IntArray]:
    """Choose the rows of a batch to damage, cycling through the types of damage, and count them."""
    hit = candidates[rng.random(candidates.size) < dirt]
    way = (np.arange(hit.size) + sum(damage.values())) % len(damage)
    picked = {name: hit[way == index] for index, name in enumerate(damage)}
    for name, rows in picked.items():
        damage[name] += rows.size
    return picked


def damage_ratings(
    rows: IntArray, picked: dict[str, IntArray], offsets: IntArray, rng: np.random.Generator
) -> IntArray:
    """Replace entries of damaged rows by damaged texts; return the duplicates, rows like the others."""
    cardinalities = np.diff(offsets)
    beyond = int(cardinalities.max())
    unknown = picked["unknown_level"]
    rows[unknown, 2] = beyond + np.arange(unknown.size) % 2
    rows[picked["unknown_variable"], 1] = cardinalities.size
    for index, name in enumerate(("empty_value", *TEXT_DAMAGE), start=2):
        rows[picked.get(name, []), 2] = beyond + index
    repeats = rows[picked["duplicate"]]
    repeats[:, 2] = _change_levels(repeats[:, 2], cardinalities[repeats[:, 1]], rng)
    return repeats


def damage_answers(
    rows: IntArray,
    picked: dict[str, IntArray],
    offsets: IntArray,
    missing: int,
    rng: np.random.Generator,
) -> tuple[IntArray, BoolArray]:
    """Damage one answered cell in each selected row; return the duplicates and which rows are usable."""
    usable = np.ones(len(rows), np.bool_)
    columns = {}
    for name, hit in picked.items():
        keys = np.where(rows[hit] < missing, rng.random((hit.size, rows.shape[1])), -1.0)
        columns[name] = keys.argmax(axis=1)
    for index, name in enumerate(("empty_value", "unknown_level", *TEXT_DAMAGE)):
        if name in picked:
            rows[picked[name], columns[name]] = missing + index
            usable[picked[name]] = name == "empty_value"
    cell = (np.arange(picked["duplicate"].size), columns["duplicate"])
    repeats = rows[picked["duplicate"]]
    repeats[cell] = _change_levels(repeats[cell], np.diff(offsets)[cell[1]], rng)
    return repeats, usable


def _change_levels(codes: IntArray, cardinalities: IntArray, rng: np.random.Generator) -> IntArray:
    return (codes + rng.integers(1, cardinalities)) % cardinalities


RATING_HEADER = pa.schema(
    {"user": pa.string(), "movie": pa.string(), "rating": pa.string(), "ts": pa.int64()}
)
"""Columns of a rating log."""
POPULARITY_EXPONENT = 0.9
"""Exponent of the Zipf distribution of the movies' popularity."""
FIRST_SECOND = 1_500_000_000
"""Time of the first rating, seconds since 1970."""
FILE_SECONDS = 30 * 24 * 3600
"""Period of one file of a rating log, seconds."""


@dataclass(frozen=True)
class LogSummary:
    """Exact counts of the rows written, with which an ingest of the files must agree.

    Attributes
    ----------
    paths
        The files, in chronological order.
    variables, levels
        Names of the variables and of the levels; variable j uses the first ``cardinalities[j]``.
    n_rows
        Number of rows in all files without headers, including damaged and repeated ones.
    n_answers
        Number of answers left after rejecting rows with an unknown level, an unknown variable, a wrong number of fields
        or undecodable bytes, and keeping one of each repeated answer.
    unknown_level, missing_field, extra_field, undecodable, empty_value, duplicate, unknown_variable
        Number of rows with each type of damage; no row has two. A duplicate is an additional row.
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
        The file, or a directory for several files, which must be empty or not exist.
    prior, factors, offsets
        The model; its first variable is the movie "m0001", its first level the rating "1".
    n_samples
        Users, >= 1.
    ratings_per_sample
        Mean number of ratings per user; individual numbers follow a gamma distribution (shape 2) within [1,
        n_variables].
    rng
        Random generator; equal seeds give equal bytes.
    n_files
        Number of files, each covering one period; a user's ratings are spread over all of them.
    format
        "csv", "csv.gz" or "parquet".
    batch
        Number of users drawn at a time, whose rows are shuffled together.
    dirt
        Share of rows to damage, in [0, 1]; the types of damage alternate. Parquet has no ragged rows and no undecodable
        bytes.

    Returns
    -------
    Exact counts of what was written.

    Raises
    ------
    RankError, SchemaError, PmfError
        If the model is inconsistent or a number is out of range.
    SourceError
        If the format is unknown or the directory is not empty.

    Notes
    -----
    Memory is about 300 bytes per row of a batch. Movies are chosen by Zipf weights without replacement, so a few have
    most ratings. Times are non-decreasing within a file, with ties; a duplicate is strictly later than its original, in
    the same file or a later one, and has a different level.
    """
    check_parameters(prior, factors, offsets)
    _check_sizes(offsets, n_samples, batch, dirt)
    check(Interval(0, closed="right"), ratings_per_sample=ratings_per_sample)
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
        Probability that a question is answered, a number or an array of shape (n_variables,).
    rng
        Random generator; equal seeds give equal bytes.
    dirt
        Share of the rows with an answer to damage, in [0, 1], each in one cell; the types of damage alternate. A
        duplicate repeats an id later in the file, with one answer changed.
    format
        "csv", "csv.gz" or "parquet"; an unanswered question is an empty field or null.
    level_labels
        Text of each level, distinct and not empty; by default "a", "b", ... Labels with commas and quotes are quoted.
    batch
        Number of rows drawn at a time.

    Returns
    -------
    Exact counts of what was written.

    Raises
    ------
    RankError, SchemaError, PmfError
        If the model is inconsistent, a number is out of range or labels are invalid.
    SourceError
        If the format is unknown.
    """
    check_parameters(prior, factors, offsets)
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
    check(at_least(1), n_samples=n_samples, batch=batch)
    check(Interval(0, 1, hint="the share of rows to damage"), dirt=dirt)
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
    """Draw shuffled rows (user, variable, level), with users numbered from 0."""
    sizes = np.rint(activity).astype(np.int64).clip(1, popularity.size)
    row_starts = np.concatenate([[0], np.cumsum(sizes)])
    variables = choose_variables(popularity, row_starts, rng)
    codes = sample_answers(prior, factors, offsets, row_starts, variables, rng)
    rows = np.stack([np.repeat(np.arange(sizes.size), sizes), variables, codes], axis=1)
    return rows[rng.permutation(len(rows))]


def _spread_times(start: int, span: int, n_regular: int, n_late: int) -> IntArray:
    """Spread times over [start, start + span) in seconds, at least in pairs; the last one is for the late rows."""
    steps = np.arange(n_regular) // 2 * 2
    regular = start + steps * (span - 1) // max(1, n_regular)
    return np.concatenate([regular, np.full(n_late, start + span - 1)])
