"""Split large files into chunks: row groups of Parquet files, byte ranges of CSV files that begin with a row."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.base.arrays import IntArray
from pmflib.base.errors import PmfError, StoreError
from pmflib.base.json_files import parse_json
from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.ingest import chunks
from pmflib.ingest.chunks import (
    FileChunk,
    choose_groups,
    choose_ranges,
    group_results,
    is_parquet,
    is_text,
)
from pmflib.ingest.csv.rows import find_data
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import count_group_rows
from pmflib.ingest.sources import (
    DAMAGED,
    PACKED,
    Source,
    attempt,
    find_digest,
    open_source,
    spare_transient,
    take_marks,
)
from pmflib.store.artefacts import Entry, Reference, Store, identify
from pmflib.store.file_digests import read_checked

SCAN_BYTES = 4 << 20
"""Chunk size for scanning files, bytes."""
SPLITS = "cuts"
"""Kind of the artefact with the splits of a CSV file, and stem of its file."""
VERSION = 1
"""Version of the artefact; increase it when its content changes."""
LEAST_PARQUET = 16 << 20
"""Size below which Parquet files are not split, bytes."""


@dataclass(frozen=True)
class FilePart:
    """A chunk of a file with the artefacts it depends on.

    Parameters
    ----------
    chunk
        The chunk.
    raw
        The raw file.
    splits
        Splits of a CSV file; None for other files.
    """

    chunk: FileChunk
    raw: Reference
    splits: Reference | None = None


def split_files(
    client: Client, store: Store, config: SourceOptions, files: Sequence[tuple[Source, Reference]]
) -> list[list[FilePart] | PmfError]:
    """Split files into chunks, one per task; most files are one chunk. Splits depend only on the file and its options.

    Files are split only if their file system reports metadata that change with the file. CSV files must also be
    uncompressed, in UTF-8 or a single-byte encoding, with a delimiter of one character, and support random access. For
    these, a first pass finds the rows that end in each byte range, for every parser state in which the range may begin.
    Its result is stored as an artefact.

    Parameters
    ----------
    client
        Dask client, or None.
    store
        Store for the artefacts.
    config
        How the files are read.
    files
        The files, with their digests, and their references.

    Returns
    -------
    Chunks of each file in order, or its error.
    """
    parquet = [source for source, _ in files if _is_large_parquet(source, config)]
    groups = map_items(client, partial(attempt, build=count_group_rows), parquet)
    rows = dict(zip((source.name for source in parquet), groups, strict=True))
    large = [(source, raw) for source, raw in files if can_split(source, config)]
    splits = _find_splits(client, store, config, large)
    out: list[list[FilePart] | PmfError] = []
    for source, raw in files:
        found = rows.get(source.name, splits.get(source.name))
        if isinstance(found, PmfError):
            out.append(found)
        elif isinstance(found, Entry):
            out.append(_apply_splits(store, found, source, raw))
        else:
            own = split_groups(source, found or [], chunks.FILE_CHUNK_ROWS)
            out.append([FilePart(chunk, raw) for chunk in own])
    return out


def _is_large_parquet(source: Source, config: SourceOptions) -> bool:
    large = is_parquet(source, config) and source.size >= LEAST_PARQUET
    return large and bool(take_marks(source))


def _apply_splits(store: Store, splits: Entry, source: Source, raw: Reference) -> list[FilePart]:
    """Chunks of a CSV file; the whole file if rows begin in only one range."""
    rows = read_splits(store, splits.reference)
    if len(rows) < 2:
        return [FilePart(FileChunk(source), raw)]
    return [
        FilePart(
            FileChunk(source, index, None, (start, stop), first, n_rows), raw, splits.reference
        )
        for index, (start, stop, first, n_rows) in enumerate(rows)
    ]


def read_splits(store: Store, splits: Reference) -> list[tuple[int, int, int, int]]:
    """Read the splits of a CSV file: see `join_ranges`.

    Raises
    ------
    StoreError
        If the artefact is missing or damaged.
    """
    file = store.locate(splits) / f"{SPLITS}.json"
    try:
        rows = parse_json(read_checked(file))
        return [(int(start), int(stop), int(first), int(n)) for start, stop, first, n in rows]
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"cuts {splits.digest[:12]} are damaged ({error}); delete folder {splits.path!r} of the store and run again"
        ) from error


def split_groups(source: Source, rows: Sequence[int], most_rows: int) -> list[FileChunk]:
    """Split a Parquet file by the numbers of rows of its groups: see `choose_groups`."""
    runs = choose_groups(rows, most_rows)
    if len(runs) < 2:
        return [FileChunk(source)]
    ends = np.cumsum(rows).tolist()
    return [
        FileChunk(
            source, index, groups, first_row=1 + (ends[groups.start - 1] if groups.start else 0)
        )
        for index, groups in enumerate(runs)
    ]


def can_split(source: Source, config: SourceOptions) -> bool:
    """Whether a file is a CSV file that is large enough and suitable for splitting: see `split_files`."""
    plain = is_text(source, config) and not source.name.lower().endswith(PACKED)
    if not plain or len(choose_ranges(source.size)) < 2:
        return False
    simple = len(config.delimiter) == 1 and config.delimiter.isascii()
    return simple and is_bytewise(config.encoding) and bool(take_marks(source))


def is_bytewise(encoding: str) -> bool:
    """Whether an encoding can be split before any ASCII character: UTF-8 or a single-byte encoding."""
    if encoding == "utf-8":
        return True
    for byte in range(256):
        text = codecs.getincrementaldecoder(encoding)("replace").decode(bytes([byte]))
        # a byte that waits for others gives no text yet
        if len(text) != 1 or text.isascii() != (byte < 128) or (byte < 128 and text != chr(byte)):
            return False
    return True


def is_random_access(source: Source) -> bool:
    """Whether a file can be read from any position, and not only from its beginning."""
    with open_source(source, unpack=False) as stream:
        try:
            stream.seek(source.size // 2)
        except (OSError, ValueError, NotImplementedError):
            return False
    return True


def _find_splits(
    client: Client, store: Store, config: SourceOptions, files: Sequence[tuple[Source, Reference]]
) -> dict[str, Entry | PmfError]:
    """Artefacts of the splits of CSV files, by the name of the file; the ranges of all are followed at once."""
    options = {
        "delimiter": config.delimiter,
        "encoding": config.encoding,
        "header": config.columns is None,
        "piece": chunks.FILE_CHUNK_BYTES,
        **({} if config.header_rows == 1 else {"header_rows": config.header_rows}),
    }
    found: dict[str, Entry | PmfError] = {}
    items: list[tuple[Source, int, int]] = []
    missing: list[tuple[Source, Reference, list[tuple[int, int]]]] = []
    for source, raw in files:
        known = store.find_before(identify(SPLITS, {"source": raw}, options, VERSION))
        if known is not None:
            found[source.name] = known
            continue
        able = attempt(source, build=is_random_access)
        first = attempt(source, config, build=find_data) if able is True else able
        if isinstance(first, PmfError):
            found[source.name] = first
        if isinstance(first, PmfError) or not able:
            continue
        ranges = [(max(a, first), b) for a, b in choose_ranges(source.size) if b > first]
        if len(ranges) < 2:
            continue
        items += [(source, *each) for each in ranges]
        missing.append((source, raw, ranges))
    follow = partial(attempt, build=follow_range)
    tried: list[IntArray | PmfError] = map_items(client, follow, items, config.delimiter)
    followed = group_results([ranges for *_, ranges in missing], tried)
    for (source, raw, ranges), lanes in zip(missing, followed, strict=True):

        def build(source: Source, raw: Reference, rows: Any) -> Entry:
            def write(folder: Path, work: Path) -> Mapping[str, Any]:
                source.check(find_digest(source, store.address))
                (folder / f"{SPLITS}.json").write_text(json.dumps(rows), "utf-8")
                return {"pieces": len(rows), "rows": sum(each[3] for each in rows)}

            return store.build(
                SPLITS, inputs={"source": raw}, options=options, version=VERSION, write=write
            )

        found[source.name] = (
            lanes
            if isinstance(lanes, PmfError)
            else attempt(source, raw, join_ranges(ranges, lanes), build=build)
        )
    return found


def follow_range(item: tuple[Source, int, int], delimiter: str) -> IntArray:
    """Scan a byte range of a CSV file from every parser state in which it may begin.

    Parameters
    ----------
    item
        The file and the range [start, stop).
    delimiter
        Field delimiter, one character.

    Returns
    -------
    int64 of shape (N_STATES, 3): see `follow_records`.
    """
    from pmflib.ingest.kernels.texts import N_STATES, follow_records

    source, start, stop = item
    lanes: IntArray = np.full((N_STATES, 3), -1, np.int64)
    lanes[:, 0], lanes[:, 1] = np.arange(N_STATES), 0
    with open_source(source, unpack=False) as stream:
        try:
            stream.seek(start)
            while start < stop and (content := stream.read(min(SCAN_BYTES, stop - start))):
                part = np.frombuffer(content, np.uint8)
                follow_records(part, ord(delimiter), start, lanes)
                start += len(content)
        except DAMAGED as error:
            spare_transient(error)
            raise
    return lanes


def join_ranges(
    ranges: Sequence[tuple[int, int]], followed: Sequence[IntArray]
) -> list[tuple[int, int, int, int]]:
    """Join the scanned ranges of a file, in order, to chunks.

    Parameters
    ----------
    ranges
        Byte ranges [start, stop), the first of which begins with the first row of data.
    followed
        Result of `follow_range` for each.

    Returns
    -------
    Start and stop, number of the first row and number of rows of each chunk. A range in which no row begins belongs to
    the chunk before it.
    """
    from pmflib.ingest.kernels.texts import ROW_START

    state, n_rows = ROW_START, 0
    starts: list[tuple[int, int]] = []
    for (start, stop), lanes in zip(ranges, followed, strict=True):
        now, ended, split = lanes[state].tolist()
        if state == ROW_START:
            starts.append((start, n_rows))
        elif 0 <= split < stop:
            starts.append((split, n_rows + 1))
        state, n_rows = now, n_rows + ended
    n_rows += state != ROW_START
    ends = [*starts[1:], (ranges[-1][1], n_rows)]
    return [
        (start, stop, before + 1, after - before)
        for (start, before), (stop, after) in zip(starts, ends, strict=True)
    ]
