"""Cutting large files to pieces: row groups of Parquet; byte ranges of CSV, moved to the rows that begin there."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.arrays import IntArray
from pmflib.config import SourceConfig
from pmflib.errors import PmfError, StoreError
from pmflib.ingest import pieces as sizes
from pmflib.ingest.csv_rows import find_data
from pmflib.ingest.fingerprints import find_digest, take_marks
from pmflib.ingest.pieces import Piece, choose_groups, choose_ranges
from pmflib.ingest.readable_files import attempt
from pmflib.ingest.readers import count_group_rows, is_parquet
from pmflib.ingest.sources import DAMAGED, PACKED, Source, open_source, spare_transient
from pmflib.json_files import parse_json
from pmflib.running.clients import Client
from pmflib.running.maps import map_items
from pmflib.store.artefacts import Entry, Reference, Store, identify
from pmflib.store.file_digests import read_checked

CUTS = "cuts"
"""Kind of the artefact that says where a CSV file is cut, and its file there with ``.json``."""
VERSION = 1
"""Version of the artefact: raised when its content changes."""
LEAST_PARQUET = 16 << 20
"""Bytes of a Parquet file below which it is not opened to see whether it is cut."""
SCAN_BYTES = 4 << 20
"""Bytes that are looked through at a time."""


@dataclass(frozen=True)
class FilePart:
    """A piece of a file, and the artefacts that it is read by.

    Parameters
    ----------
    piece
        What is read.
    raw
        The bytes of the whole file.
    cuts
        Where a CSV file is cut; None for others.
    """

    piece: Piece
    raw: Reference
    cuts: Reference | None = None


def cut_files(
    client: Client, store: Store, config: SourceConfig, files: Sequence[tuple[Source, Reference]]
) -> list[list[FilePart] | PmfError]:
    """Cut files to what one task reads: most are one piece. Where depends on the file and how it is read alone.

    A CSV file is cut if it is plain, a byte is a character in it or it is in UTF-8, its delimiter is one character,
    and its file system gives marks by which a change would be seen and reads from any place; a first pass then finds,
    for each range of bytes and each state that its beginning may be in, the rows that end in it. Its result is an
    artefact, so that it is made once.

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
    Pieces of each file, in order; or the error of one that cannot be read.
    """
    parquet = [
        source for source, _ in files if is_parquet(source, config) and source.size >= LEAST_PARQUET
    ]
    groups = map_items(client, partial(attempt, build=count_group_rows), parquet)
    rows = dict(zip((source.name for source in parquet), groups, strict=True))
    large = [(s, raw) for s, raw in files if s.name not in rows and can_cut(s, config)]
    cuts = _find_cuts(client, store, config, large)
    out: list[list[FilePart] | PmfError] = []
    for source, raw in files:
        entry, counted = cuts.get(source.name), rows.get(source.name)
        pieces = [Piece(source)]
        if isinstance(counted, PmfError):
            out.append(counted)
            continue
        if isinstance(entry, PmfError):
            out.append(entry)
            continue
        if counted is not None:
            pieces = cut_groups(source, counted)
        elif entry is not None:
            rows_at = read_cuts(store, entry.reference)
            if len(rows_at) > 1:
                pieces = [
                    Piece(source, place, None, (start, stop), first, n_rows)
                    for place, (start, stop, first, n_rows) in enumerate(rows_at)
                ]
        of_cuts = None if entry is None or pieces[0].is_whole else entry.reference
        out.append([FilePart(piece, raw, of_cuts) for piece in pieces])
    return out


def cut_groups(source: Source, rows: Sequence[int]) -> list[Piece]:
    """Cut a Parquet file by the rows of its groups."""
    runs = choose_groups(rows, sizes.PIECE_ROWS)
    if len(runs) < 2:
        return [Piece(source)]
    ends = np.cumsum(rows).tolist()
    return [
        Piece(source, place, groups, first_row=1 + (ends[groups.start - 1] if groups.start else 0))
        for place, groups in enumerate(runs)
    ]


def can_cut(source: Source, config: SourceConfig) -> bool:
    """Whether a file is CSV that is large enough to be cut, and can be: see `cut_files`."""
    plain = not is_parquet(source, config) and not source.name.lower().endswith(PACKED)
    if not plain or len(choose_ranges(source.size)) < 2:
        return False
    simple = len(config.delimiter) == 1 and config.delimiter.isascii()
    if not (simple and is_bytewise(config.encoding) and take_marks(source)):
        return False
    with open_source(source, unpack=False) as stream:
        return stream.seekable()


def is_bytewise(encoding: str) -> bool:
    """Whether texts in an encoding can be cut before any ASCII character: UTF-8, or a byte for a character."""
    if encoding == "utf-8":
        return True
    for byte in range(256):
        text = codecs.getincrementaldecoder(encoding)("replace").decode(bytes([byte]))
        # a byte that waits for others gives no text yet
        if len(text) != 1 or text.isascii() != (byte < 128) or (byte < 128 and text != chr(byte)):
            return False
    return True


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
    from pmflib.kernels.records import N_STATES, follow_records

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
    """Join what was found in the ranges of a file, in order, to its pieces.

    Parameters
    ----------
    ranges
        First byte of each range and the one after its last; the first begins with the first row of data.
    followed
        What `follow_range` gives for each.

    Returns
    -------
    First byte of each piece, the one after its last, the number of its first row and of its rows. A range in which no
    row begins belongs to the piece before it.
    """
    from pmflib.kernels.records import ROW_START

    state, n_rows = ROW_START, 0
    starts: list[tuple[int, int]] = []
    for (start, stop), lanes in zip(ranges, followed, strict=True):
        now, ended, cut = lanes[state].tolist()
        if state == ROW_START:
            starts.append((start, n_rows))
        elif 0 <= cut < stop:
            starts.append((cut, n_rows + 1))
        state, n_rows = now, n_rows + ended
    n_rows += state != ROW_START
    ends = [*starts[1:], (ranges[-1][1], n_rows)]
    return [
        (start, stop, before + 1, after - before)
        for (start, before), (stop, after) in zip(starts, ends, strict=True)
    ]


def _find_cuts(
    client: Client, store: Store, config: SourceConfig, files: Sequence[tuple[Source, Reference]]
) -> dict[str, Entry | PmfError]:
    """Artefacts of the cuts of CSV files, by the name of the file; the ranges of all are followed at once."""
    options = {
        "delimiter": config.delimiter,
        "encoding": config.encoding,
        "header": config.columns is None,
        "piece": sizes.PIECE_BYTES,
    }
    found: dict[str, Entry | PmfError] = {}
    items: list[tuple[Source, int, int]] = []
    missing: list[tuple[Source, Reference, list[tuple[int, int]]]] = []
    for source, raw in files:
        known = store.find(identify(CUTS, {"source": raw}, options, VERSION))
        first = attempt(source, config, build=find_data) if known is None else 0
        if known is not None or isinstance(first, PmfError):
            found[source.name] = known or first  # type: ignore[assignment]
            continue
        ranges = [(max(a, first), b) for a, b in choose_ranges(source.size) if b > first]
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
                (folder / f"{CUTS}.json").write_text(json.dumps(rows), "utf-8")
                return {"pieces": len(rows), "rows": sum(each[3] for each in rows)}

            return store.build(
                CUTS, inputs={"source": raw}, options=options, version=VERSION, write=write
            )

        found[source.name] = (
            errors[0] if errors else attempt(source, raw, join_ranges(ranges, lanes), build=build)
        )
    return found


def read_cuts(store: Store, cuts: Reference) -> list[tuple[int, int, int, int]]:
    """Read where a CSV file is cut: what `join_ranges` gave.

    Raises
    ------
    StoreError
        If that is not in the store, or damaged.
    """
    file = store.locate(cuts) / f"{CUTS}.json"
    try:
        rows = parse_json(read_checked(file))
        return [(int(start), int(stop), int(first), int(n)) for start, stop, first, n in rows]
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"cuts {cuts.digest[:12]} are damaged ({error}); delete folder {cuts.path!r} of the store and run again"
        ) from error
