"""Spills: encoded rows of one file, sorted by sample and split into pages; lists of spills."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.errors import StoreError
from pmflib.base.hashing import HashArray
from pmflib.base.json_files import parse_json
from pmflib.base.json_records import from_json
from pmflib.ingest.dataset.identifiers import find_buckets, hash_identifiers, list_keys, make_keys
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry, Reference, Store, number_inputs
from pmflib.store.dataset import FileStep
from pmflib.store.file_digests import holds, read_checked, read_ranges

SPILL_BYTES = 32 << 20
"""Size of the buffer of rows that are sorted and written together, bytes."""
PAGE_ROWS = 1024
"""Largest number of rows of a page: about 30 kB of a long log, with one per cent of overhead."""
PAGES_AT_ONCE = 256
"""Number of pages that are read at once when all are read, about 8 MB."""

ROWS_FILE = "rows.pages"
"""Pages end to end: Arrow record batches of rows of one bucket, sorted by the keys of their samples."""
KEYS_FILE = "keys.pages"
"""Distinct keys of each page, ascending, page after page: little-endian uint64."""
INDEX_FILE = "pages.index"
"""One record per page, sorted by bucket: see ``PAGE``."""
FIELDS_FILE = "fields.arrow"
"""Arrow schema of the rows, with metadata on the encoding and the sections of the index."""
SECTIONS = "sections"
"""Metadata key: for each section of the index, the number of records up to its end and the CRC-32 of its records."""
MOST_SECTIONS = 64
"""Largest number of sections of an index, of about equally many buckets each; readers of some buckets read only the
sections of these."""

WEIGHT = "weight"
"""Column of sample weights: int64, in units."""

UNITS = ("stratum", "unit")
"""Columns of sampling units: int64, hashes of the stratum and of the unit within it."""

REPLICATES = "replicates"
"""Column of replicate weights: those of a row end to end, int64, little-endian, in units."""

PAGE = np.dtype(
    [
        ("bucket", "<i8"),
        ("n_rows", "<i8"),
        ("start", "<i8"),
        ("stop", "<i8"),
        ("checksum", "<u4"),
        ("first_key", "<i8"),
        ("last_key", "<i8"),
        ("keys_checksum", "<u4"),
        ("oldest", "<f8"),
        ("newest", "<f8"),
    ]
)
"""Record of a page: bucket and number of rows; byte range in ``ROWS_FILE`` and its CRC-32; range of keys in
``KEYS_FILE`` and its CRC-32; oldest and newest time of its rows, NaN if they have none."""

_POSITION_BITS = 22
"""Bits for the position of a row in the buffer, below the 42 bits of its key."""


class SpillWriter:
    """Writes a spill: rows sorted by sample, in pages that can be read one by one.

    Rows are sorted and written whenever ``SPILL_BYTES`` are buffered, so that memory depends neither on the number of
    rows nor on that of buckets. Rows of one sample keep the order of their file. Equal calls of `append` give equal
    bytes. Use it as a context manager: a spill that was not closed has no index and cannot be read.

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
        self._fields = fields
        self._n_buckets = n_buckets
        self._waiting: list[pa.RecordBatch] = []
        self._n_bytes = self._n_rows = 0
        self._keys: list[HashArray] = []
        self._pages: list[tuple[float, ...]] = []
        self._rows_file: IO[bytes] | None = None
        self._keys_file: IO[bytes] | None = None

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
        new = np.ones(keys.size, np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        firsts = np.array(
            [list_keys(bucket)[0] for bucket in range(self._n_buckets + 1)], np.uint64
        )
        edges = np.searchsorted(keys, firsts).tolist()
        for bucket, (first, last) in enumerate(pairwise(edges)):
            for start in range(first, last, PAGE_ROWS):
                part = slice(start, min(start + PAGE_ROWS, last))
                new[start] = True
                page = rows.slice(part.start, part.stop - part.start)
                self._write(bucket, page, keys[part][new[part]])

    def _write(self, bucket: int, rows: pa.RecordBatch, keys: HashArray) -> None:
        assert self._rows_file is not None
        assert self._keys_file is not None
        content, names = rows.serialize(), keys.astype("<u8", copy=False).tobytes()
        start, first = map(int, (self._pages[-1][3], self._pages[-1][6]) if self._pages else (0, 0))
        self._rows_file.write(content)
        self._keys_file.write(names)
        stop, checksum = start + content.size, zlib.crc32(content)
        key_range = first, first + keys.size, zlib.crc32(names)
        times = math.nan, math.nan
        if "time" in rows.schema.names:
            column = rows.column("time").to_numpy()
            times = float(column.min()), float(column.max())
        self._pages.append((bucket, rows.num_rows, start, stop, checksum, *key_range, *times))

    def __enter__(self) -> SpillWriter:
        self._rows_file = (self._folder / ROWS_FILE).open("wb")
        self._keys_file = (self._folder / KEYS_FILE).open("wb")
        return self

    def __exit__(self, error_type: object, *error: object) -> None:
        assert self._rows_file is not None
        assert self._keys_file is not None
        with self._rows_file, self._keys_file:
            if error_type is None:
                self._flush()
        if error_type is None:
            # written last, as metadata may depend on the first rows
            pages = np.array(self._pages, PAGE)
            pages = pages[np.argsort(pages["bucket"], kind="stable")]
            sections = list_sections(self._n_buckets)
            ends = np.searchsorted(pages["bucket"], [stop for _, stop in sections]).tolist()
            parts = [pages[start:stop] for start, stop in pairwise([0, *ends])]
            index = [
                [end, zlib.crc32(part.tobytes())] for end, part in zip(ends, parts, strict=True)
            ]
            fields = self._fields.with_metadata({**self.metadata, SECTIONS: json.dumps(index)})
            (self._folder / FIELDS_FILE).write_bytes(fields.serialize())
            (self._folder / INDEX_FILE).write_bytes(pages.tobytes())


class Spill:
    """A spill opened for reading; only the required sections of its index are read.

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
        try:
            fields = pa.ipc.read_schema(pa.py_buffer(read_checked(folder / FIELDS_FILE)))
            self.metadata = {k.decode(): v.decode() for k, v in fields.metadata.items()}
            self._n_buckets = int(self.metadata["buckets"])
            self._index = [(int(end), int(crc)) for end, crc in json.loads(self.metadata[SECTIONS])]
            if len(self._index) != len(list_sections(self._n_buckets)):
                raise ValueError(f"its index has {len(self._index)} sections")
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._refuse(error) from error
        del self.metadata[SECTIONS]
        self._fields = fields.remove_metadata()
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
        if not 0 <= start < stop <= self._n_buckets:
            raise StoreError(
                f"buckets {start} to {stop - 1} are outside [0, {self._n_buckets}) of spill {self._folder.name!r}; "
                "assemble with the number of buckets it was spilled with"
            )
        return self._read_rows(self._find_pages(start, stop))

    def read_pages(self) -> Iterator[pa.RecordBatch]:
        """Read all rows page by page, those of each sample in the order of the file."""
        try:
            for first in range(0, self._pages.size, PAGES_AT_ONCE):
                yield from self._read_some(self._pages[first : first + PAGES_AT_ONCE])
        except (OSError, pa.ArrowException) as error:
            raise self._refuse(error) from error

    def read_samples(self, keys: HashArray) -> pa.Table:
        """Read the rows of samples with some keys, uint64 and sorted, those of each sample in the order of the file.

        Only the sections of the index for their buckets are read, and pages without these samples are skipped.
        """
        pages = np.empty(0, PAGE)
        if keys.size:
            first, last = find_buckets(keys[[0, -1]]).tolist()
            pages = self._find_pages(first, last + 1)
        found = np.zeros(pages.size, np.bool_)
        matches = is_among(self._read_keys(pages), keys)
        if matches.any():
            sizes = pages["last_key"] - pages["first_key"]
            found = np.logical_or.reduceat(matches, np.cumsum(sizes) - sizes)
        rows = self._read_rows(pages[found])
        if not rows.num_rows:
            return rows
        hashes = hash_identifiers(_join_chunks(rows["sample"]))
        return rows.filter(pa.array(is_among(make_keys(hashes, self._n_buckets), keys)))

    def read_keys(self, after: int = 0) -> HashArray:
        """Read the distinct keys of all samples, or of those with rows after a given number: uint64, sorted."""
        if not after:
            return np.unique(self._read_keys(self._pages))
        keys = [np.empty(0, np.uint64)]
        for batch in self.read_pages():
            later = batch.filter(pa.array(batch["row"].to_numpy() > after))
            keys.append(make_keys(hash_identifiers(later["sample"]), self._n_buckets))
        return np.unique(np.concatenate(keys))

    def count_rows(self, stop: float) -> int:
        """Count the rows before a time."""
        past = self._pages["newest"] < stop
        partly = ~past & (self._pages["oldest"] < stop)
        times = self._read_pages(self._pages[partly])["time"].to_numpy()
        return int(self._pages["n_rows"][past].sum()) + int(np.count_nonzero(times < stop))

    def read_keys_between(self, start: float, stop: float) -> HashArray:
        """Read the distinct keys of samples with rows in the time interval [start, stop): uint64, sorted."""
        pages = (self._pages["newest"] >= start) & (self._pages["oldest"] < stop)
        rows = self._read_pages(self._pages[pages])
        times = rows["time"].to_numpy()
        rows = rows.filter(pa.array((times >= start) & (times < stop)))
        hashes = hash_identifiers(_join_chunks(rows["sample"]))
        return np.unique(make_keys(hashes, self._n_buckets))

    def _read_keys(self, pages: npt.NDArray[Any]) -> HashArray:
        """Read the keys of some pages, page after page."""
        try:
            ranges = [
                (8 * start, 8 * stop)
                for start, stop in zip(
                    pages["first_key"].tolist(), pages["last_key"].tolist(), strict=True
                )
            ]
            parts = read_ranges(self._folder / KEYS_FILE, ranges)
        except OSError as error:
            raise self._refuse(error) from error
        for part, checksum in zip(parts, pages["keys_checksum"].tolist(), strict=True):
            if zlib.crc32(part) != checksum:
                raise self._refuse("keys of a page fail their checksum")
        return np.frombuffer(b"".join(parts), "<u8").astype(np.uint64, copy=False)

    @property
    def n_buckets(self) -> int:
        """Number of buckets."""
        return self._n_buckets

    @property
    def fields(self) -> pa.Schema:
        """Schema of the rows."""
        return self._fields

    @cached_property
    def _pages(self) -> npt.NDArray[Any]:
        """Records of all pages in the order of writing."""
        pages = self._find_pages(0, self._n_buckets)
        return pages[np.argsort(pages["start"])]

    def _find_pages(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Read the records of the pages of the buckets in [start, stop), sorted by bucket."""
        sections = list_sections(self._n_buckets)
        needed = [k for k, (a, b) in enumerate(sections) if a < stop and b > start]
        ends = [0, *(end for end, _ in self._index)]
        ranges = [(PAGE.itemsize * ends[k], PAGE.itemsize * ends[k + 1]) for k in needed]
        try:
            found = read_ranges(self._folder / INDEX_FILE, ranges)
        except OSError as error:
            raise self._refuse(error) from error
        parts = [np.empty(0, PAGE)]
        for section, content in zip(needed, found, strict=True):
            if zlib.crc32(content) != self._index[section][1]:
                raise self._refuse("a section of its index fails its checksum")
            parts.append(np.frombuffer(content, PAGE))
        pages = np.concatenate(parts)
        return pages[(pages["bucket"] >= start) & (pages["bucket"] < stop)]

    def _read_rows(self, pages: npt.NDArray[Any]) -> pa.Table:
        """Read the rows of some pages that are within the window."""
        rows = self._read_pages(pages[~(pages["newest"] < self._since)])
        if (pages["oldest"] < self._since).any():
            rows = rows.filter(pa.array(rows["time"].to_numpy() >= self._since))
        return rows

    def _read_pages(self, records: npt.NDArray[Any]) -> pa.Table:
        try:
            pages = self._read_some(records)
        except (OSError, pa.ArrowException) as error:
            raise self._refuse(error) from error
        return pa.Table.from_batches(pages, self._fields)

    def _read_some(self, pages: npt.NDArray[Any]) -> list[pa.RecordBatch]:
        ranges = list(zip(pages["start"].tolist(), pages["stop"].tolist(), strict=True))
        parts = read_ranges(self._folder / ROWS_FILE, ranges)
        return list(map(self._read_page, parts, pages))

    def _read_page(self, content: bytes, page: Any) -> pa.RecordBatch:
        if zlib.crc32(content) != page["checksum"]:
            raise self._refuse(f"the page at byte {page['start']} fails its checksum")
        batch = pa.ipc.read_record_batch(pa.py_buffer(content), self._fields)
        if batch.num_rows != page["n_rows"]:
            raise self._refuse(f"the page at byte {page['start']} has {batch.num_rows} rows")
        return batch

    def _refuse(self, problem: object) -> StoreError:
        return StoreError(
            f"spill {self._folder.name!r} cannot be read ({problem}); delete its folder and run the pipeline again"
        )


def list_sections(n_buckets: int) -> Sequence[tuple[int, int]]:
    """Range of buckets of each section of an index: ``MOST_SECTIONS`` sections, or fewer, one per bucket."""
    n_sections = min(n_buckets, MOST_SECTIONS)
    return list(pairwise(n_buckets * section // n_sections for section in range(n_sections + 1)))


def _join_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Concatenate the chunks of a column, even if there are none."""
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


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


def find_levels(folder: Path, schema: Schema, *, strict: bool = True) -> IntArray | None:
    """Map the levels of a spill to those of a schema.

    Parameters
    ----------
    folder
        Folder of the spill.
    schema
        Schema to map to.
    strict
        Whether unknown levels are an error; otherwise they are missing.

    Returns
    -------
    int64 of shape (n_part_levels + 1,), whose last element, for missing, is -1; None if the spill names no levels, so
    that it must have been encoded with this schema.

    Raises
    ------
    StoreError
        If the names are damaged, or the schema lacks one of them.
    """
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
    if levels.null_count and strict:
        unknown = names.filter(levels.is_null())[0].as_py()
        raise StoreError(
            f"spill {folder.name!r} was encoded with {unknown}, which the schema lacks; spill its file again"
        )
    return np.append(levels.fill_null(-1).to_numpy().astype(np.int64), -1)


def _name_levels(schema: Schema) -> list[str]:
    """Unique text for the variable and label of every level."""
    return [
        json.dumps([variable.name, label], ensure_ascii=False)
        for variable in schema
        for label in variable.levels
    ]
