"""Files of SPSS, Stata and SAS: rows in batches, labels of values, and codes declared missing."""

from __future__ import annotations

import struct
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.errors import PmfError, SourceError
from pmflib.base.texts import abridge_names
from pmflib.ingest.chunks import FileChunk, RawRows, find_columns, find_format
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import Reader
from pmflib.ingest.sources import (
    DAMAGED,
    PACKED,
    Source,
    digest_source,
    open_source,
    spare_transient,
)
from pmflib.schema.file_columns import Code, FileColumn
from pmflib.schema.tables import simplify
from pmflib.schema.variable import as_text, read_number
from pmflib.surveys.statistics_files.statistics_output import import_package

BATCH_CELLS = 1 << 21
"""Number of cells of a batch; fixed, so that results do not depend on the machine."""
BATCH_ROWS = 1 << 17
"""Largest number of rows of a batch."""
PIECE_CELLS = 1 << 23
"""Number of cells that are parsed at once of formats that are read piece by piece, of which each passes over the rows
before it: about 400 MB as objects of Python."""

XPORT_BYTES = 80
"""Length of the records of transport files of SAS, which state no number of rows."""


def read_file_columns(source: Source, config: SourceOptions) -> dict[str, FileColumn]:
    """Read what a file of SPSS, Stata or SAS says of its columns, by their names in order.

    Raises
    ------
    SourceError
        If the file cannot be read.
    PmfError
        If the packages that read it are not installed.
    """
    with open_source(source, unpack=False) as stream, _refuse_damage(source):
        return dict(_open(source, config, stream, None).columns)


def read_statistics_rows(
    source: Source,
    config: SourceOptions,
    columns: Sequence[str],
    chunk: FileChunk | None,
    coded: Sequence[str],
) -> Iterator[RawRows]:
    """Read some columns of a file of SPSS, Stata or SAS in batches, in bounded memory.

    Parameters
    ----------
    source, config
        The file, which may be in a bucket, and its options.
    columns
        Distinct names of the requested columns.
    chunk
        Not used: these files are read whole.
    coded
        Columns whose codes are read as their labels; in others they stay codes. Codes in a range that is declared
        missing and letters of missing numbers are null, unless they have a label.

    Raises
    ------
    SourceError
        If a column is missing, the file is damaged or was cut short, or its digest differs.
    """
    with open_source(source, unpack=False) as stream, _refuse_damage(source):
        names = list(_open(source, config, stream, None).columns)
        find_columns(source, names, columns)
        stream.seek(0)
        # without columns, a reader takes all
        opened = _open(source, config, stream, list(columns) or names[:1])
        if find_format(source, config) == "xpt" and source.size % XPORT_BYTES:
            raise SourceError(
                f"{source.name}: has {source.size:,} bytes, which are no whole records of {XPORT_BYTES}: it was cut "
                "short; copy it again"
            )
        n_rows, first = _choose_rows(len(columns), BATCH_CELLS), 1
        for batch in opened.read(n_rows):
            arrays = [
                _decode(opened.columns[name], batch.column(name), name in coded) for name in columns
            ]
            rows = np.arange(first, first + batch.num_rows, dtype=np.int64)
            yield RawRows(pa.RecordBatch.from_arrays(arrays, names=list(columns)), rows)
            first += batch.num_rows
    if source.digest:
        # these formats are not read sequentially, and so are hashed separately
        source.check(digest_source(source))


def _choose_rows(n_columns: int, cells: int) -> int:
    return max(1, min(BATCH_ROWS * (cells // BATCH_CELLS), cells // max(1, n_columns)))


def _decode(column: FileColumn, array: pa.Array, by_label: bool) -> pa.Array:
    """Convert the values of a column to texts of codes, or leave numbers as they are."""
    values, letters = array, None
    if pa.types.is_struct(array.type):
        values, letters = array.field(0), array.field(1)
        labelled = pa.array([code for code in column.missing if isinstance(code, str)], pa.string())
        letters = pc.if_else(pc.is_in(letters, labelled), letters, pa.scalar(None, pa.string()))
        letters = letters if letters.null_count < len(letters) else None
    texts = by_label and column.texts
    if letters is None and not texts:
        return simplify(_hide_ranges(column, values))
    coded = simplify(values).dictionary_encode()
    names = [
        None if code is None or code != code else column.name_code(code, by_label)
        for code in coded.dictionary.to_pylist()
    ]
    positions = pa.array([None if name is None else i for i, name in enumerate(names)], pa.int32())
    indices = positions.take(coded.indices)
    words = [name or "" for name in names]
    if letters is not None:
        marks = letters.dictionary_encode()
        shifted = pc.add(marks.indices, pa.scalar(len(words), pa.int32()))
        indices = pc.coalesce(shifted, indices)
        words += [
            column.name_code(letter, by_label) or "" for letter in marks.dictionary.to_pylist()
        ]
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def _hide_ranges(column: FileColumn, values: pa.Array) -> pa.Array:
    """Make codes without labels in ranges that are declared missing null."""
    if not column.ranges or not pa.types.is_floating(values.type):
        return values
    kept = [code for code in (*column.texts, *column.missing) if not isinstance(code, str)]
    hidden = pa.scalar(False)
    for low, high in column.ranges:
        within = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        hidden = pc.or_(hidden, within)
    is_kept = pc.is_in(values, pa.array(kept, values.type))
    return pc.if_else(pc.and_(hidden, pc.invert(is_kept)), pa.scalar(None, values.type), values)


def _name_labels(labels: Mapping[Code, str]) -> dict[Code, str]:
    """Give codes distinct texts: their labels, with the code behind those that others may be taken for."""
    given = {code: text for code, label in labels.items() if (text := label.strip())}
    times = Counter(given.values())
    named = {}
    # letters and texts behind numbers
    for code in sorted(given, key=lambda code: (isinstance(code, str), code)):
        text = given[code]
        number = read_number(text)
        is_other = number is not None and number != code
        named[code] = f"{text} ({as_text(code)})" if times[text] > 1 or is_other else text
    if len(set(named.values())) < len(named):
        return {code: f"{as_text(code)} {given[code]}" for code in named}
    return named


@dataclass(frozen=True)
class _OpenFile:
    """A file whose columns are known: ``read`` yields its rows in batches of a number of rows.

    A column of numbers with letters for missing ones is a structure of both.
    """

    columns: Mapping[str, FileColumn]
    read: Callable[[int], Iterator[pa.RecordBatch]]


def _open(
    source: Source, config: SourceOptions, stream: IO[bytes], columns: list[str] | None
) -> _OpenFile:
    if source.name.lower().endswith(PACKED):
        raise SourceError(
            f"{source.name}: is packed, and files of SPSS, Stata and SAS are not read in order; unpack it"
        )
    format = find_format(source, config)
    encoding = None if config.encoding == "utf-8" else config.encoding
    open_file = _open_arrow if format in ("sav", "dta") else _open_parsed
    opened = open_file(stream, format, columns, encoding)
    if not opened.columns:
        raise SourceError(f"{source.name}: has no columns; save it again with variables")
    return opened


@contextmanager
def _refuse_damage(source: Source) -> Iterator[None]:
    """Translate the errors of readers."""
    try:
        yield
    except (PmfError, GeneratorExit):
        raise
    except Exception as error:
        if not _is_of_reader(error):
            raise
        spare_transient(error)
        hint = "copy it again, or set source.format"
        if "encoding" in str(error) or isinstance(error, UnicodeError):
            hint = "set source.encoding (pmf infer: --encoding cp1252, say), or copy the file again"
        raise SourceError(
            f"{source.name}: is damaged, was cut short, or is of another format or encoding ({error}); {hint}"
        ) from error


def _is_of_reader(error: Exception) -> bool:
    if isinstance(
        error, (*DAMAGED, struct.error, ValueError, OverflowError, IndexError, MemoryError)
    ):
        return True
    return type(error).__module__.partition(".")[0] in ("readstat_arrow", "pyreadstat")


def _open_arrow(
    stream: IO[bytes], format: str, columns: list[str] | None, encoding: str | None
) -> _OpenFile:
    """Open a file of SPSS or Stata."""
    library = import_package("readstat_arrow", format)
    with warnings.catch_warnings():
        # records of an unknown kind, which are skipped
        warnings.simplefilter("ignore", library.ReadstatWarning)
        opened = (library.open_sav if format == "sav" else library.open_dta)(
            stream, columns=columns, encoding=encoding, preserve_user_missing=True
        )
    about = opened.metadata
    found = {}
    sets: dict[str, list[str]] = {}
    for each in about.multiple_response_sets:
        names = each["variables"]
        counted = f", of which {each['counted_value']} is counted" if each["is_dichotomy"] else ""
        sets.setdefault(names[0], []).append(
            f"{abridge_names(names)}: the file has them as the multiple-response set {each['name']}, "
            f"{each['label']!r}{counted}; they are drafted as variables of their own"
        )
    numbers = [item.name for item in opened.schema if not pa.types.is_large_string(item.type)]
    place = _find_weight(stream) if format == "sav" and columns is None else 0
    weight = numbers[place - 1] if 0 < place <= len(numbers) else ""
    for item in opened.schema:
        labels = {each["value"]: each["label"] for each in about.value_labels.get(item.name) or ()}
        is_number = not pa.types.is_large_string(item.type)
        declared = about.missing_values.get(item.name) or {}
        alone = [*declared.get("values", ()), *([declared["value"]] if "value" in declared else [])]
        ranges = [(declared["lo"], declared["hi"])] if "lo" in declared else []
        label, measure = about.variable_labels.get(item.name), about.measures.get(item.name)
        column = _describe(label, measure, labels, alone, ranges, is_number)
        own = tuple(sets.get(item.name, ()))
        found[item.name] = replace(column, is_weight=item.name == weight, notes=own)

    def read(n_rows: int) -> Iterator[pa.RecordBatch]:
        for batch in _pull(lambda put: opened.read_batches(put, batch_rows=n_rows)):
            names = batch.schema.names
            arrays = [_point_letters(column) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(arrays, names=names)

    return _OpenFile(found, read)


def _find_weight(stream: IO[bytes]) -> int:
    """Find which variable of numbers, from 1, the header of a file of SPSS names as the weight of cases; 0 if none.

    The header states a place among the records of variables, of which long texts have several ("SPSS System File
    Format", PSPP Developers Guide).
    """
    stream.seek(0)
    header = stream.read(176)
    order = "<" if header[64] else ">"
    (place,) = struct.unpack(f"{order}i", header[76:80])
    width = n_numbers = 0
    for _ in range(place):
        record = stream.read(32)
        kind, width, has_label, n_missing = struct.unpack(f"{order}4i", record[:16])
        if kind != 2:
            return 0
        n_numbers += width == 0
        if has_label:
            (size,) = struct.unpack(f"{order}i", stream.read(4))
            stream.seek(size + -size % 4, 1)
        stream.seek(8 * abs(n_missing), 1)
    return 0 if width else n_numbers


def _describe(
    label: str | None,
    measure: str | None,
    labels: Mapping[Code, str],
    missing: Sequence[Code],
    ranges: Sequence[tuple[float, float]],
    is_number: bool,
) -> FileColumn:
    """Collect what a file says of a column; letters among the codes of numbers are missing."""
    if is_number:
        labels = {f".{c}" if isinstance(c, str) else c: text for c, text in labels.items()}
        missing = [*missing, *(code for code in labels if isinstance(code, str))]
    else:
        labels = {str(code).rstrip(): text for code, text in labels.items()}
        missing = [str(code).rstrip() for code in missing]
    named = _name_labels(labels)
    known = measure if measure in ("nominal", "ordinal", "scale") else ""
    return FileColumn((label or "").strip(), known, named, tuple(missing), tuple(ranges), is_number)


def _point_letters(column: pa.Array) -> pa.Array:
    """Put a point before the letters of missing numbers: ".a"."""
    if not pa.types.is_struct(column.type):
        return column
    letters = column.field(1).dictionary_decode()
    pointed = pc.binary_join_element_wise(".", letters, "")
    return pa.StructArray.from_arrays([column.field(0), pointed], names=["value", "letter"])


AHEAD = 2
"""Number of batches that a reader may be ahead."""


def _pull(push: Callable[[Callable[[Any], None]], object]) -> Iterator[Any]:
    """Turn a function that calls another with each item into an iterator, by a thread."""
    items: SimpleQueue[Any] = SimpleQueue()
    free = threading.Semaphore(AHEAD)
    stopped = threading.Event()

    class Stopped(Exception):
        pass

    def put(item: Any) -> None:
        free.acquire()
        if stopped.is_set():
            raise Stopped
        items.put((item, None))

    def run() -> None:
        try:
            push(put)
            items.put((None, None))
        except BaseException as error:
            items.put((None, error))

    thread = threading.Thread(target=run, name="statistics-file", daemon=True)
    thread.start()
    try:
        while True:
            item, error = items.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
            free.release()
    finally:
        stopped.set()
        free.release()
        thread.join()


def _open_parsed(
    stream: IO[bytes], format: str, columns: list[str] | None, encoding: str | None
) -> _OpenFile:
    """Open a file of SAS, or a portable one of SPSS, which are read piece by piece."""
    library = import_package("pyreadstat", format)
    options: dict[str, Any] = {"usecols": columns, "output_format": "dict"}
    if format != "por":
        options["encoding"] = encoding
    if format == "sas7bdat":
        options["user_missing"] = True
    name = {"sas7bdat": "read_sas7bdat", "por": "read_por", "xpt": "read_xport"}[format]
    parse = getattr(library, name)
    _, about = parse(stream, metadataonly=True, **options)
    is_number = {name: kind != "string" for name, kind in about.readstat_variable_types.items()}
    found = {
        name: _describe(
            about.column_names_to_labels.get(name),
            about.variable_measure.get(name),
            about.variable_value_labels.get(name, {}),
            (),
            (),
            is_number[name],
        )
        for name in about.column_names
    }

    def read(n_rows: int) -> Iterator[pa.RecordBatch]:
        size, start = _choose_rows(len(found), PIECE_CELLS), 0
        while True:
            stream.seek(0)
            lists, _ = parse(stream, row_offset=start, row_limit=size, **options)
            arrays = [_join_lists(lists[name], is_number[name]) for name in found]
            piece = pa.RecordBatch.from_arrays(arrays, names=list(found))
            for first in range(0, piece.num_rows, n_rows):
                yield piece.slice(first, n_rows)
            start += size
            if piece.num_rows < size:
                return

    return _OpenFile(found, read)


def _join_lists(values: list[Any], is_number: bool) -> pa.Array:
    """Make an array of parsed values, in which texts among numbers are letters of missing ones."""
    if not is_number:
        return pa.array(values, pa.string())
    letters = [f".{each}" if isinstance(each, str) else None for each in values]
    if not any(letters):
        return pa.array(values)
    numbers = pa.array([None if isinstance(each, str) else each for each in values])
    return pa.StructArray.from_arrays([numbers, pa.array(letters)], names=["value", "letter"])


READER = Reader(
    lambda source, config: list(read_file_columns(source, config)),
    read_statistics_rows,
    read_file_columns,
)
"""Reader of the formats of SPSS, Stata and SAS."""
