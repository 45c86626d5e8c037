"""Search quarantined rows, report pages and exports for lines that mention identifiers.

An erasure removes the rows of a sample. Rows of other samples and texts may still mention it, but only a person can
decide whether "17" in a line means sample 17. Such lines are therefore listed, and kept.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.base.errors import PmfError
from pmflib.ingest.dataset.quarantine import QUARANTINE, read_part
from pmflib.ingest.options import make_source
from pmflib.ingest.readers import read_columns, read_rows
from pmflib.ingest.source_paths import escape_text
from pmflib.ingest.sources import find_sources
from pmflib.schema.variable import as_text
from pmflib.store.artefacts import Store
from pmflib.store.care.exports import Export, list_exports
from pmflib.store.parquet_batches import read_batches
from pmflib.store.run_pages import list_pages
from pmflib.store.table_files import list_suffixes

NAMES_AT_ONCE = 200
"""Number of identifiers per regular expression; more would exceed the memory limit of RE2."""
SEARCHED = (".html", *list_suffixes())
"""Suffixes of exported files with texts; others are pictures."""
AROUND = 60
"""Number of characters shown before and after an identifier."""
ROWS_AT_ONCE = 1 << 14
"""Number of lines searched at a time."""
_OUTSIDE = r"[^\p{L}\p{N}_]"
"""Pattern around an identifier: no letter, digit or underscore, so that 7 is not found in 17."""


@dataclass(frozen=True)
class Mention:
    """A line that mentions an identifier.

    Parameters
    ----------
    location
        Quarantine and raw file, page of the store, or absolute path of an exported file.
    row
        Number of the row of data or of the line, from 1.
    text
        The identifier with its context.
    """

    location: str
    row: int
    text: str


@dataclass(frozen=True)
class Names:
    """Identifiers to search for.

    Parameters
    ----------
    texts
        The identifiers.
    """

    texts: tuple[str, ...]

    def find(self, lines: Sequence[str]) -> list[int]:
        """Indices of the lines that mention an identifier."""
        found = pa.array([False] * len(lines), pa.bool_())
        column = pa.array(lines, pa.string())
        for start in range(0, len(self.texts), NAMES_AT_ONCE):
            some = "|".join(map(re.escape, self.texts[start : start + NAMES_AT_ONCE]))
            pattern = rf"(?:^|{_OUTSIDE})(?:{some})(?:$|{_OUTSIDE})"
            found = pc.or_(found, pc.match_substring_regex(column, pattern))
        return [row for row, is_found in enumerate(found.to_pylist()) if is_found]

    def cut(self, line: str) -> str:
        """Cut out the first identifier of a line with its context."""
        starts = [line.find(text) for text in self.texts if text in line]
        start = max(min(starts, default=0) - AROUND, 0)
        longest = max(map(len, self.texts))
        return line[start : start + longest + 2 * AROUND]


def find_mentions(store: Store, identifiers: Sequence[str]) -> list[Mention]:
    """Find the quarantined rows and the lines of report pages and exports that mention some identifiers.

    Parameters
    ----------
    store
        The store, which is only read.
    identifiers
        Identifiers of samples, tasks or workers.

    Returns
    -------
    The lines, first those of the store.

    Raises
    ------
    StoreError
        If a quarantine or the record of an export is damaged.
    """
    names = Names(tuple(sorted({each.strip() for each in identifiers} - {""})))
    if not names.texts:
        return []
    found = find_in_store(store, names)
    for export in list_exports(store):
        found += find_in_export(export, names)
    return found


def find_in_store(store: Store, names: Names) -> list[Mention]:
    """Find mentions in the quarantines and pages of a store."""
    found: dict[Mention, None] = {}
    for entry in store.entries():
        if entry.reference.kind not in ("spill", "samples"):
            continue
        folder = store.locate(entry.reference)
        for batch in read_part(folder / QUARANTINE, None):
            lines = batch["raw"].to_pylist()
            for index in names.find(lines):
                location = f"quarantine, {batch['file'][index].as_py()}"
                row = batch["row"][index].as_py()
                # several artefacts may have the same row
                found[Mention(location, row, names.cut(lines[index]))] = None
    for name in list_pages(store):
        text = store.objects.read(name)[0].decode("utf-8", "replace")
        found |= dict.fromkeys(_search(name, enumerate(_split_page(text), 1), names))
    return list(found)


def find_in_export(export: Export, names: Names) -> list[Mention]:
    """Find mentions in the files of an export, except files that cannot be read."""
    found: list[Mention] = []
    for path in map(Path, export.files):
        suffix = path.suffix.lower()
        try:
            if suffix in (".html", ".csv"):
                text = path.read_text("utf-8", "replace")
                lines = _split_page(text) if suffix == ".html" else text.splitlines()
                # the first line of a table is its header
                found += _search(str(path), enumerate(lines, int(suffix == ".html")), names)
            elif suffix in SEARCHED:
                found += _search(str(path), _read_rows(path), names)
        except (OSError, pa.ArrowInvalid, PmfError):
            continue
    return found


def _split_page(text: str) -> list[str]:
    """Visible lines of a page."""
    return html.unescape(text).splitlines()


def _read_rows(path: Path) -> Iterator[tuple[int, str]]:
    """Row numbers and texts of a table; identifiers may be numbers in files of SPSS and Stata."""
    number = 0
    for batch in _read_batches(path):
        columns = [
            [None if value is None else as_text(value) for value in column.to_pylist()]
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if _holds_text(column.type) or name == "sample"
        ]
        for row in zip(*columns, strict=True):
            number += 1
            yield number, ",".join(text for text in row if text is not None)


def _read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    if path.suffix.lower() == ".parquet":
        yield from read_batches(pq.ParquetFile(path), ROWS_AT_ONCE)
        return
    config = make_source({"path": str(path), "layout": "wide"})
    (source,) = find_sources(escape_text(str(path)))
    for raw in read_rows(source, config, read_columns(source, config)):
        yield raw.batch


def _holds_text(dtype: pa.DataType) -> bool:
    inner = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _search(location: str, lines: Iterable[tuple[int, str]], names: Names) -> list[Mention]:
    found, waiting = [], list[tuple[int, str]]()

    def look() -> None:
        texts = [text for _, text in waiting]
        for index in names.find(texts):
            found.append(Mention(location, waiting[index][0], names.cut(texts[index])))
        waiting.clear()

    for line in lines:
        waiting.append(line)
        if len(waiting) >= ROWS_AT_ONCE:
            look()
    look()
    return found
