"""Splitting large files into chunks: row groups of Parquet, byte ranges of CSV that begin with a row."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.cluster.clients import Client
from pmflib.cluster.item_maps import map_items
from pmflib.core.arrays import IntArray
from pmflib.core.errors import PmfError, StoreError
from pmflib.core.json_files import parse_json
from pmflib.ingest import chunks
from pmflib.ingest.chunks import FileChunk, choose_groups, choose_ranges
from pmflib.ingest.csv.rows import find_data
from pmflib.ingest.options import SourceOptions
from pmflib.ingest.readers import count_group_rows, is_parquet
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
"""Bytes that are looked through at a time."""
SPLITS = "cuts"
"""Kind of the artefact that says where a CSV file is split, and its file there with ``.json``."""
VERSION = 1
"""Version of the artefact: raised when its content changes."""
LEAST_PARQUET = 16 << 20
"""Bytes of a Parquet file below which it is not opened to see whether it is split."""


@dataclass(frozen=True)
class FilePart:
    """A chunk of a file, and the artefacts that it is read by.

    Parameters
    ----------
    chunk
        What is read.
    raw
        The bytes of the whole file.
    splits
        Where a CSV file is split; None for others.
    """

    chunk: FileChunk
    raw: Reference
    splits: Reference | None = None


def split_files(
    client: Client, store: Store, config: SourceOptions, files: Sequence[tuple[Source, Reference]]
) -> list[list[FilePart] | PmfError]:
    """Split files into what one task reads: most are one chunk. Where depends on the file and how it is read alone.

    A file is split if its file system gives marks by which a change would be seen; CSV if it is plain as well, a byte
    is a character in it or it is in UTF-8, its delimiter is one character, and it can be read from any position. A
    first pass then finds, for each range of bytes and each state that its beginning may be in, the rows that end in it.
    Its result is an artefact, so that it is made once.

    Parameters
    ----------
    client
        Dask client, or None.
    store
        Store for the artefacts.
    config
        How the files are read.
    files
        The files, with their digests, and the artefacts of their bytes.

    Returns
    -------
    Chunks of each file, in order; or the error of one that cannot be read.
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
            parts = [FileChunk(source)] if found is None else split_groups(source, found)
            out.append([FilePart(chunk, raw) for chunk in parts])
    return out


def _is_large_parquet(source: Source, config: SourceOptions) -> bool:
    large = is_parquet(source, config) and source.size >= LEAST_PARQUET
    return large and bool(take_marks(source))


def _apply_splits(store: Store, splits: Entry, source: Source, raw: Reference) -> list[FilePart]:
    """Chunks of a CSV file; the whole of it where rows begin in one range only."""
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
    """Read where a CSV file is split: what `join_ranges` gave.

    Raises
    ------
    StoreError
        If that is not in the store, or damaged.
    """
    file = store.locate(splits) / f"{SPLITS}.json"
    try:
        rows = parse_json(read_checked(file))
        return [(int(start), int(stop), int(first), int(n)) for start, stop, first, n in rows]
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"cuts {splits.digest[:12]} are damaged ({error}); delete folder {splits.path!r} of the store and run again"
        ) from error


def split_groups(source: Source, rows: Sequence[int]) -> list[FileChunk]:
    """Split a Parquet file by the rows of its groups."""
    runs = choose_groups(rows, chunks.FILE_CHUNK_ROWS)
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
    """Whether a file is CSV that is large enough to be split, and of a form in which it can be: see `split_files`."""
    plain = not is_parquet(source, config) and not source.name.lower().endswith(PACKED)
    if not plain or len(choose_ranges(source.size)) < 2:
        return False
    simple = len(config.delimiter) == 1 and config.delimiter.isascii()
    return simple and is_bytewise(config.encoding) and bool(take_marks(source))


def is_bytewise(encoding: str) -> bool:
    """Whether texts in an encoding can be split before any ASCII character: UTF-8, or a byte for a character."""
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
    followed = iter(map_items(client, follow, items, config.delimiter))
    for source, raw, ranges in missing:
        mine = [next(followed) for _ in ranges]
        errors = [each for each in mine if isinstance(each, PmfError)]
        lanes = [each for each in mine if not isinstance(each, PmfError)]

        def build(source: Source, raw: Reference, rows: Any) -> Entry:
            def write(folder: Path, work: Path) -> Mapping[str, Any]:
                source.check(find_digest(source, store.address))
                (folder / f"{SPLITS}.json").write_text(json.dumps(rows), "utf-8")
                return {"pieces": len(rows), "rows": sum(each[3] for each in rows)}

            return store.build(
                SPLITS, inputs={"source": raw}, options=options, version=VERSION, write=write
            )

        found[source.name] = (
            errors[0] if errors else attempt(source, raw, join_ranges(ranges, lanes), build=build)
        )
    return found


def follow_range(item: tuple[Source, int, int], delimiter: str) -> IntArray:
    """Follow the rows of a range of bytes of a CSV file, from every state that it may begin in.

    Parameters
    ----------
    item
        The file, the first byte, and the one after the last.
    delimiter
        Character between fields.

    Returns
    -------
    int64 of shape (N_STATES, 3): see `follow_records`.
    """
    from pmflib.kernels.texts import N_STATES, follow_records

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
    """Join what was found in the ranges of a file, in order, to its chunks.

    Parameters
    ----------
    ranges
        First byte of each range and the one after its last; the first begins with the first row of data.
    followed
        What `follow_range` gives for each.

    Returns
    -------
    First byte of each chunk, the one after its last, the number of its first row and of its rows. A range in which no
    row begins belongs to the chunk before it.
    """
    from pmflib.kernels.texts import ROW_START

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
