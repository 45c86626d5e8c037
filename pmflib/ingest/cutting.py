"""Cutting large files to pieces: row groups of Parquet; byte ranges of CSV, moved to the rows that begin there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pmflib.config import SourceConfig
from pmflib.errors import PmfError, StoreError
from pmflib.ingest import pieces as sizes
from pmflib.ingest.csv_rows import find_data
from pmflib.ingest.fingerprints import find_digest, take_marks
from pmflib.ingest.pieces import Piece, choose_groups, choose_ranges
from pmflib.ingest.readable_files import attempt
from pmflib.ingest.readers import count_group_rows, is_parquet
from pmflib.ingest.row_starts import follow_range, is_bytewise, is_random_access, join_ranges
from pmflib.ingest.sources import PACKED, Source
from pmflib.json_files import parse_json
from pmflib.running.clients import Client
from pmflib.running.item_maps import map_items
from pmflib.store.artefacts import Entry, Reference, Store, identify
from pmflib.store.file_digests import read_checked

CUTS = "cuts"
"""Kind of the artefact that says where a CSV file is cut, and its file there with ``.json``."""
VERSION = 1
"""Version of the artefact: raised when its content changes."""
LEAST_PARQUET = 16 << 20
"""Bytes of a Parquet file below which it is not opened to see whether it is cut."""


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

    A file is cut if its file system gives marks by which a change would be seen; CSV if it is plain as well, a byte is
    a character in it or it is in UTF-8, its delimiter is one character, and it can be read from any place. A first pass
    then finds, for each range of bytes and each state that its beginning may be in, the rows that end in it. Its result
    is an artefact, so that it is made once.

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
    parquet = [source for source, _ in files if _is_large_parquet(source, config)]
    groups = map_items(client, partial(attempt, build=count_group_rows), parquet)
    rows = dict(zip((source.name for source in parquet), groups, strict=True))
    large = [(source, raw) for source, raw in files if can_cut(source, config)]
    cuts = _find_cuts(client, store, config, large)
    out: list[list[FilePart] | PmfError] = []
    for source, raw in files:
        found = rows.get(source.name, cuts.get(source.name))
        if isinstance(found, PmfError):
            out.append(found)
        elif isinstance(found, Entry):
            out.append(_apply_cuts(store, found, source, raw))
        else:
            pieces = [Piece(source)] if found is None else cut_groups(source, found)
            out.append([FilePart(piece, raw) for piece in pieces])
    return out


def _is_large_parquet(source: Source, config: SourceConfig) -> bool:
    large = is_parquet(source, config) and source.size >= LEAST_PARQUET
    return large and bool(take_marks(source))


def _apply_cuts(store: Store, cuts: Entry, source: Source, raw: Reference) -> list[FilePart]:
    """Pieces of a CSV file; the whole of it where rows begin in one range only."""
    rows = read_cuts(store, cuts.reference)
    if len(rows) < 2:
        return [FilePart(Piece(source), raw)]
    return [
        FilePart(Piece(source, place, None, (start, stop), first, n_rows), raw, cuts.reference)
        for place, (start, stop, first, n_rows) in enumerate(rows)
    ]


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
    """Whether a file is CSV that is large enough to be cut, and of a form in which it can be: see `cut_files`."""
    plain = not is_parquet(source, config) and not source.name.lower().endswith(PACKED)
    if not plain or len(choose_ranges(source.size)) < 2:
        return False
    simple = len(config.delimiter) == 1 and config.delimiter.isascii()
    return simple and is_bytewise(config.encoding) and bool(take_marks(source))


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
