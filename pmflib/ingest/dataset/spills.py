"""Spills: encoded rows of one file in Parquet, sorted by sample; lists of spills."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.errors import StoreError
from pmflib.base.hashing import HashArray
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import from_json
from pmflib.ingest.dataset.identifiers import list_keys, make_keys
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, number_inputs
from pmflib.store.dataset import FileStep
from pmflib.store.file_digests import fetch_files, holds, list_dropped, read_checked
from pmflib.store.parquet_batches import read_batches

SPILL_BYTES = 32 << 20
"""Size of the buffer of rows that are sorted and written together, bytes."""
GROUP_ROWS = 8192
"""Largest number of rows of a row group, the least that is read: a few samples of a long log take one or two."""
FILE_BUCKETS, FILE_ROWS = 16, 1 << 16
"""Least number of buckets of a file, and of rows that the first buffer has for each: whoever reads a few buckets parses
the footers of these alone, and small spills are one file."""
MOST_FILES = 64
"""Largest number of files."""
BATCH_ROWS = 1 << 17
"""Number of rows that are decoded at once, before those that are not asked for are dropped."""

CONTENT = "spill.json"
"""Metadata on the encoding, and the size and CRC-32 of the footer of each file."""
FOOTERS = "footers"
"""Metadata key of the footers."""

KEY = "key"
"""Column of the keys of samples: uint64, sorted within each buffer."""
WEIGHT = "weight"
"""Column of sample weights: int64, in units."""

UNITS = ("stratum", "unit")
"""Columns of sampling units: int64, hashes of the stratum and of the unit within it."""

REPLICATES = "replicates"
"""Column of replicate weights: those of a row end to end, int64, little-endian, in units."""

_ENCODINGS = {KEY: "DELTA_BINARY_PACKED", "row": "DELTA_BINARY_PACKED", "time": "BYTE_STREAM_SPLIT"}
_REPEATED = ("sample", WEIGHT, *UNITS)
"""Columns whose values repeat from row to row."""
_POSITION_BITS = 22
"""Bits for the position of a row in the buffer, below the 42 bits of its key."""


class SpillWriter:
    """Writes a spill: Parquet files of runs of buckets, with rows sorted by sample in small row groups.

    Rows are sorted and written whenever ``SPILL_BYTES`` are buffered, so that memory depends neither on the number of
    rows nor on that of buckets. Rows of one sample keep the order of their file. Equal calls of `append` give equal
    bytes. Use it as a context manager: a spill that was not closed cannot be read.

    Parameters
    ----------
    folder
        Folder for the files.
    fields
        Schema of the rows.
    n_buckets
        Number of buckets, at most 4096.
    """

    def __init__(self, folder: Path, fields: pa.Schema, n_buckets: int) -> None:
        self.metadata: dict[str, str] = {"buckets": str(n_buckets)}
        self._folder = folder
        self._fields = pa.schema([pa.field(KEY, pa.uint64()), *fields])
        self._n_buckets = n_buckets
        self._waiting: list[pa.RecordBatch] = []
        self._n_bytes = self._n_rows = 0
        self._keys: list[HashArray] = []
        self._files: list[pq.ParquetWriter] = []
        self._open = ExitStack()

    def append(self, hashes: HashArray, batch: pa.RecordBatch) -> None:
        """Add rows to the buckets given by their hashes, uint64 of shape (n_rows,)."""
        self._waiting.append(batch)
        self._keys.append(make_keys(hashes, self._n_buckets))
        self._n_bytes += batch.nbytes
        self._n_rows += batch.num_rows
        # the second limit, for rows of less than 16 bytes, is that of the bits for positions
        if self._n_bytes >= SPILL_BYTES or self._n_rows >= 1 << (_POSITION_BITS - 1):
            self._flush()

    def _flush(self) -> None:
        if not self._files:
            self._open_files()
        if not self._waiting:
            return
        keys = np.concatenate(self._keys)
        # key and position in one integer, as sorting integers is faster than an indirect sort
        keys <<= np.uint64(_POSITION_BITS)
        keys |= np.arange(keys.size, dtype=np.uint64)
        keys.sort()
        order = (keys & np.uint64((1 << _POSITION_BITS) - 1)).view(np.int64)
        rows = pa.concat_batches(self._waiting).take(pa.array(order))
        self._waiting.clear()
        self._keys.clear()
        self._n_bytes = self._n_rows = 0
        keys >>= np.uint64(_POSITION_BITS)
        table = pa.Table.from_arrays([pa.array(keys), *rows.columns], schema=self._fields)
        firsts = [first for first, _ in list_ranges(self._n_buckets, len(self._files))]
        edges = [*np.searchsorted(keys, np.array(firsts, np.uint64)).tolist(), keys.size]
        for file, (start, stop) in zip(self._files, pairwise(edges), strict=True):
            if start < stop:
                file.write_table(table.slice(start, stop - start), GROUP_ROWS)

    def _open_files(self) -> None:
        n_files = min(self._n_buckets // FILE_BUCKETS, self._n_rows // FILE_ROWS, MOST_FILES)
        for index in range(max(n_files, 1)):
            file = pq.ParquetWriter(
                self._folder / name_file(index),
                self._fields,
                compression="zstd",
                use_dictionary=[name for name in self._fields.names if name in _REPEATED],
                column_encoding={
                    name: _ENCODINGS[name] for name in self._fields.names if name in _ENCODINGS
                },
                write_statistics=[KEY, "time"],
                write_page_checksum=True,
            )
            self._files.append(self._open.enter_context(file))

    def __enter__(self) -> SpillWriter:
        return self

    def __exit__(self, error_type: object, *error: object) -> None:
        with self._open:
            if error_type is None:
                self._flush()
        if error_type is None:
            footers = []
            for index in range(len(self._files)):
                path = self._folder / name_file(index)
                n_bytes = pq.read_metadata(path).serialized_size + 8
                footers.append((n_bytes, zlib.crc32(_read_end(path, n_bytes))))
            # written last, as metadata may depend on the first rows
            content = json.dumps({**self.metadata, FOOTERS: footers})
            (self._folder / CONTENT).write_text(content, "utf-8")


def name_file(index: int) -> str:
    """Name of a file of a spill."""
    return f"rows-{index:02}.parquet"


def list_ranges(n_buckets: int, n_files: int) -> list[tuple[int, int]]:
    """First and last key of each file of a spill: all have about equally many buckets."""
    edges = pairwise(n_buckets * index // n_files for index in range(n_files + 1))
    return [(list_keys(first)[0], list_keys(stop - 1)[1]) for first, stop in edges]


Overlaps: TypeAlias = Callable[[HashArray, HashArray], BoolArray]
"""Whether some keys of interest are in each of several ranges of keys, given by their first and last key; in a range of
one key, whether it is one of them."""


class Spill:
    """A spill opened for reading; only the row groups that may hold what is asked for are read.

    Parameters
    ----------
    folder
        Folder of the spill.
    expected
        Required metadata.
    since
        Start of the window: rows with an earlier time are skipped.

    Raises
    ------
    StoreError
        If the spill is incomplete or damaged, or was made with another schema or layout. Methods raise it if a page is
        damaged.
    """

    def __init__(self, folder: Path, expected: Mapping[str, str], since: float = -math.inf) -> None:
        self._folder = folder
        self._since = since
        if not holds(folder / CONTENT):
            raise self._refuse(f"it has no {CONTENT}: an earlier version wrote it, or it was lost")
        try:
            content = parse_json(read_checked(folder / CONTENT))
            self._footers = from_json(list[tuple[int, int]], content.pop(FOOTERS))
            self.metadata = from_json(dict[str, str], content)
            self.n_buckets = int(self.metadata["buckets"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._refuse(error) from error
        if list_dropped(folder):
            raise StoreError(
                f"rows of spill {folder.name!r} are no longer in the store: its file has changed since, and `pmf gc` "
                "keeps the rows of the last runs only"
            )
        found = {key: self.metadata.get(key) for key in expected}
        if wrong := {key: value for key, value in found.items() if value != expected[key]}:
            raise StoreError(
                f"spill {folder.name!r} has {wrong}, expected {dict(expected)}; spill its file again"
            )

    def read_buckets(self, start: int, stop: int) -> pa.Table:
        """Read the rows of the buckets in [start, stop), those of each sample in the order of the file.

        Raises
        ------
        StoreError
            If the spill does not have these buckets.
        """
        if not 0 <= start < stop <= self.n_buckets:
            raise StoreError(
                f"buckets {start} to {stop - 1} are outside [0, {self.n_buckets}) of spill {self._folder.name!r}; "
                "assemble with the number of buckets it was spilled with"
            )
        first, last = list_keys(start)[0], list_keys(stop - 1)[1]
        return self._read_rows(lambda lowest, highest: (highest >= first) & (lowest <= last))

    def read_samples(self, keys: HashArray) -> pa.Table:
        """Read the rows of samples with some keys, uint64 and sorted, those of each sample in the order of the file."""
        return self._read_rows(
            lambda lowest, highest: (
                np.searchsorted(keys, lowest) < np.searchsorted(keys, highest, "right")
            )
        )

    def read_keys(self, after: int = 0) -> HashArray:
        """Read the distinct keys of all samples, or of those with rows after a given number: uint64, sorted."""
        keys = [np.empty(0, np.uint64)]
        for rows in self._scan([KEY, "row"] if after else [KEY]):
            found = rows[KEY].to_numpy()
            if after:
                found = found[rows["row"].to_numpy() > after]
            # rows of a sample mostly follow each other
            keys.append(found[np.flatnonzero(np.diff(found, prepend=~found[:1]))])
        return np.unique(np.concatenate(keys))

    def read_names(self) -> Iterator[pa.BinaryArray]:
        """Read the identifiers of batches of rows, each once in a batch."""
        yield from (rows["sample"].unique() for rows in self._scan(["sample"]))

    def count_rows(self, stop: float) -> int:
        """Count the rows before a time."""
        parts = self._scan(["time"], times=(-math.inf, stop))
        return sum(int(np.count_nonzero(part["time"].to_numpy() < stop)) for part in parts)

    def read_keys_between(self, start: float, stop: float) -> HashArray:
        """Read the distinct keys of samples with rows in the time interval [start, stop): uint64, sorted."""
        keys = [np.empty(0, np.uint64)]
        for rows in self._scan([KEY, "time"], times=(start, stop)):
            times = rows["time"].to_numpy()
            keys.append(np.unique(rows[KEY].to_numpy()[(times >= start) & (times < stop)]))
        return np.unique(np.concatenate(keys))

    def _read_rows(self, overlaps: Overlaps) -> pa.Table:
        """Read the rows of some keys within the window."""
        found = []
        for rows in self._scan(None, overlaps, (self._since, math.inf)):
            keys = rows[KEY].to_numpy()
            kept = overlaps(keys, keys)
            if self._since > -math.inf:
                kept &= rows["time"].to_numpy() >= self._since
            rows = rows.drop_columns(KEY)
            found.append(rows if kept.all() else rows.filter(pa.array(kept)))
        return pa.Table.from_batches(found)

    def _scan(
        self,
        columns: Sequence[str] | None = None,
        overlaps: Overlaps = lambda lowest, highest: lowest <= highest,
        times: tuple[float, float] = (-math.inf, math.inf),
    ) -> Iterator[pa.RecordBatch]:
        """Read columns of the row groups that may have some keys and times; the first batch of a file has no rows."""
        ranges = np.array(list_ranges(self.n_buckets, len(self._footers)), np.uint64)
        chosen = np.flatnonzero(overlaps(*ranges.T)).tolist() or [0]
        fetch_files(self._folder, map(name_file, chosen))
        try:
            for index in chosen:
                with self._open(index) as file:
                    yield pa.RecordBatch.from_pylist([], file.schema_arrow)
                    found = overlaps(*_list_bounds(file, KEY, np.uint64))
                    if times != (-math.inf, math.inf):
                        oldest, newest = _list_bounds(file, "time", np.float64)
                        found &= (newest >= times[0]) & (oldest < times[1])
                    groups = np.flatnonzero(found).tolist()
                    yield from read_batches(file, BATCH_ROWS, groups=groups, columns=columns)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._refuse(error) from error

    def _open(self, index: int) -> pq.ParquetFile:
        """Open a file whose footer, which has no checksum in Parquet, is as it was written."""
        path, (n_bytes, checksum) = self._folder / name_file(index), self._footers[index]
        if zlib.crc32(_read_end(path, n_bytes)) != checksum:
            raise ValueError(f"the footer of {path.name} fails its checksum")
        return pq.ParquetFile(path, page_checksum_verification=True)

    def _refuse(self, problem: object) -> StoreError:
        return StoreError(
            f"spill {self._folder.name!r} cannot be read ({problem}); delete its folder and run the pipeline again"
        )


def _read_end(path: Path, n_bytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(-n_bytes, os.SEEK_END)
        return file.read()


def _list_bounds(file: pq.ParquetFile, column: str, dtype: type) -> npt.NDArray[Any]:
    """Least and largest value of a column in each row group: shape (2, n_groups)."""
    place = file.schema_arrow.get_field_index(column)
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    statistics = [group.column(place).statistics for group in groups]
    return np.array([[each.min for each in statistics], [each.max for each in statistics]], dtype)


def is_among(keys: HashArray, known: HashArray) -> BoolArray:
    """Whether each key is in a sorted array: bool of the shape of ``keys``."""
    if not known.size:
        return np.zeros(keys.shape, np.bool_)
    positions: npt.NDArray[np.intp] = np.minimum(np.searchsorted(known, keys), known.size - 1)
    found: BoolArray = known[positions] == keys
    return found


SPILL_LIST = "spill-list"
"""Kind of the artefact that lists spills."""
LIST = "spills.json"
"""Its file, with the file name and the reference of each spill in order."""
VERSION = 1
"""Version of the artefact; increase it when its content changes."""


def list_spills(store: Store, steps: Sequence[FileStep]) -> Entry:
    """Build the list of all spills as an artefact, whose inputs are the spills.

    Parameters
    ----------
    store
        The store.
    steps
        Files and their spills, in the order of files and rows.
    """
    names, spills = [step.name for step in steps], [step.step for step in steps]

    def write(folder: Path, work: Path) -> Mapping[str, Any]:
        content = [[name, asdict(spill)] for name, spill in zip(names, spills, strict=True)]
        (folder / LIST).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
        return {"files": len({*names}), "spills": len(spills)}

    return store.build(
        SPILL_LIST,
        inputs=number_inputs("spill", spills),
        options={"names": names},
        version=VERSION,
        write=write,
    )


def read_spill_list(store: Store, spills: Reference) -> tuple[list[Path], list[str]]:
    """Read the folders of the listed spills and the names of their files.

    Raises
    ------
    StoreError
        If the list or a spill is not in the store, or the list is damaged.
    """
    file = store.locate(spills) / LIST
    try:
        content = parse_json(read_checked(file))
        found = [(str(name), from_json(Reference, spill)) for name, spill in content]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"list of spills {spills.digest[:12]} is damaged ({error}); run the pipeline again"
        ) from error
    return store.locate_all([spill for _, spill in found]), [name for name, _ in found]


LEVELS_FILE = "levels.json"
"""Variable and label of each level, for spills that were encoded with a part of the schema."""


def write_levels(folder: Path, part: Schema) -> None:
    """Write the names of the levels of a spill that is encoded with a part of the schema."""
    (folder / LEVELS_FILE).write_text(json.dumps(_name_levels(part), ensure_ascii=False), "utf-8")


def find_levels(folder: Path, schema: Schema) -> IntArray | None:
    """Map the levels of a spill to those of a schema.

    Parameters
    ----------
    folder
        Folder of the spill.
    schema
        Schema to map to.

    Returns
    -------
    int64 of shape (n_part_levels + 1,), whose last element, for missing, is -1; None if the spill names no levels, so
    that it must have been encoded with this schema.

    Raises
    ------
    StoreError
        If the names are damaged, or the schema lacks one of them.
    """
    import pyarrow.compute as pc

    path = folder / LEVELS_FILE
    if not holds(path):
        return None
    try:
        names = pa.array(parse_json(read_checked(path)), pa.string())
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StoreError(
            f"spill {folder.name!r} cannot be read ({error}); spill its file again"
        ) from error
    levels = pc.index_in(names, pa.array(_name_levels(schema), pa.string()))
    if levels.null_count:
        unknown = names.filter(levels.is_null())[0].as_py()
        raise StoreError(
            f"spill {folder.name!r} was encoded with {unknown}, which the schema lacks; spill its file again"
        )
    return np.append(levels.to_numpy().astype(np.int64), -1)


def _name_levels(schema: Schema) -> list[str]:
    """Unique text for the variable and label of every level."""
    return [
        json.dumps([variable.name, label], ensure_ascii=False)
        for variable in schema
        for label in variable.levels
    ]
