"""Raw log files: their texts, their damage, and how batches of columns become lines."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.arrays import BoolArray, IntArray
from pmflib.errors import PmfError, SourceError

Format: TypeAlias = Literal["csv", "csv.gz", "parquet"]
FORMATS = ("csv", "csv.gz", "parquet")
"""Formats of the files of a log."""
UNKNOWN_LABEL = "no such level"
"""Text of an answer that is no level."""
TEXT_DAMAGE = ("missing_field", "extra_field", "undecodable")
SURVEY_DAMAGE = ("unknown_level", "empty_value", "duplicate")
RATING_DAMAGE = (*SURVEY_DAMAGE, "unknown_variable")
"""Ways to damage a row of a survey or of a rating log; those of ``TEXT_DAMAGE`` need lines of text."""


def plan_paths(path: Path, n_files: int, format: Format) -> tuple[Path, ...]:
    """Name the files of a log, and make the directory they go to."""
    if format not in FORMATS:
        raise SourceError(f"format is {format!r}: pass one of {', '.join(FORMATS)}")
    if n_files < 1:
        raise PmfError(f"n_files is {n_files}, below 1: pass a count of files")
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
    """Open a file for batches of columns; in text the columns are pieces that make up the lines."""
    if format == "parquet":
        with pq.ParquetWriter(path, schema) as writer:
            yield lambda columns: writer.write_table(_build_table(columns, schema))
        return
    with ExitStack() as stack:
        stream: Any = stack.enter_context(path.open("wb"))
        if format == "csv.gz":
            # No name and no time in the header: one seed, the same bytes.
            stream = stack.enter_context(gzip.GzipFile("", "wb", 1, stream, mtime=0))
        stream.write(",".join(schema.names).encode() + b"\n")
        yield lambda columns: stream.write(_join_lines(columns))


def _build_table(columns: list[Any], schema: Any) -> Any:
    typed = [column.cast(dtype) for column, dtype in zip(columns, schema.types, strict=True)]
    return pa.table(typed, schema=schema)


def _join_lines(pieces: list[Any]) -> memoryview:
    texts = [
        piece.cast(pa.large_string()).cast(pa.large_binary()) if piece.type == pa.int64() else piece
        for piece in pieces
    ]
    ends = (pa.scalar(text, pa.large_binary()) for text in (b"\n", b""))
    lines = pc.binary_join_element_wise(*texts, *ends)
    # An array of binaries stores them end to end: that buffer is the text of the file.
    _, bounds, data = lines.buffers()
    return memoryview(data)[: np.frombuffer(bounds, np.int64)[len(lines)]]


def take(texts: Sequence[bytes | None], indices: IntArray) -> Any:
    """Arrow array of the texts at the indices."""
    return pa.array(texts, pa.large_binary()).take(pa.array(indices))


def rating_texts(
    movies: Sequence[str], levels: Sequence[str], format: Format
) -> tuple[list[bytes | None], list[bytes | None]]:
    """Texts of movies and ratings, damaged ones last in the order of `damage_ratings`."""
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
    """Texts of levels, a missing answer, then damage in the order of `damage_answers`."""
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
    """Choose the rows of a batch to damage, the ways of damage alternating, and add them to the account."""
    hit = candidates[rng.random(candidates.size) < dirt]
    way = (np.arange(hit.size) + sum(damage.values())) % len(damage)
    picked = {name: hit[way == place] for place, name in enumerate(damage)}
    for name, rows in picked.items():
        damage[name] += rows.size
    return picked


def damage_ratings(
    rows: IntArray, picked: dict[str, IntArray], offsets: IntArray, rng: np.random.Generator
) -> IntArray:
    """Point damaged rows to the texts of damage; return the repeats, rows like the others."""
    cardinalities = np.diff(offsets)
    beyond = int(cardinalities.max())
    unknown = picked["unknown_level"]
    rows[unknown, 2] = beyond + np.arange(unknown.size) % 2
    rows[picked["unknown_variable"], 1] = cardinalities.size
    for place, name in enumerate(("empty_value", *TEXT_DAMAGE), start=2):
        rows[picked.get(name, []), 2] = beyond + place
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
    """Damage one answered cell in each picked row; return the repeats and which rows are usable."""
    usable = np.ones(len(rows), np.bool_)
    columns = {}
    for name, hit in picked.items():
        keys = np.where(rows[hit] < missing, rng.random((hit.size, rows.shape[1])), -1.0)
        columns[name] = keys.argmax(axis=1)
    for place, name in enumerate(("empty_value", "unknown_level", *TEXT_DAMAGE)):
        if name in picked:
            rows[picked[name], columns[name]] = missing + place
            usable[picked[name]] = name == "empty_value"
    cell = (np.arange(picked["duplicate"].size), columns["duplicate"])
    repeats = rows[picked["duplicate"]]
    repeats[cell] = _change_levels(repeats[cell], np.diff(offsets)[cell[1]], rng)
    return repeats, usable


def _change_levels(codes: IntArray, cardinalities: IntArray, rng: np.random.Generator) -> IntArray:
    return (codes + rng.integers(1, cardinalities)) % cardinalities
