"""Bytes and files that artefacts take in a store."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pmflib.planning.sizes import LogSize
from pmflib.store.sample_blocks import BlockReference, choose_block_rows

PLACE_BYTES = 16
"""Bytes of a cell of a table that is saved as the cells that are not zero: see `pmflib.counting.fold_counting`."""
COLUMN_CHUNK = 1 << 18
"""Entries of a chunk of the columns beside the codes: see `SampleWriter`."""
ROW_BYTES = 1.5
"""Bytes of a row number and of a tally, compressed."""
PARTITION_FILES = 7 + 1 + 3
"""Files of a partition besides the chunks of its columns: descriptions of a group and of six arrays, the table of
blocks, quarantined rows, their hashes or the counts of levels of a raw file, and the list of digests."""
SPILL_FILES = 7
"""Files of a spill: rows, keys, index of pages, fields, quarantined rows, level counts, list of digests."""


def code_bits(log: LogSize) -> float:
    """Bits of a cell, compressed: of the levels, if all were as frequent, and of whether it is observed."""
    p, size = log.observed, max(log.levels / log.variables, 1.0)
    missing = sum(-q * math.log2(q) for q in (p, 1 - p) if 0 < q < 1)
    return p * math.log2(size) + missing


def block_disk_bytes(log: LogSize) -> float:
    """Bytes of a sample's codes on disk."""
    if log.is_sparse:
        return log.variables * log.observed * math.log2(max(log.levels, 2)) / 8 + 1
    return log.variables * code_bits(log) / 8


def sample_disk_bytes(log: LogSize) -> float:
    """Bytes of a sample on disk: codes, row, tally and identifier."""
    return block_disk_bytes(log) + ROW_BYTES + 0.6 * log.identifier_bytes


def table_disk_bytes(log: LogSize, samples: float) -> float:
    """Bytes of a saved table of the pairs of some samples, at most: all cells, or those that can have been seen."""
    seen = samples * (log.variables * log.observed) ** 2
    return min(8.0 * log.levels**2, PLACE_BYTES * seen)


def spill_row_bytes(log: LogSize, *, timed: bool = True) -> float:
    """Bytes of an encoded row in a spill, in pages."""
    values = 4 if log.layout == "long" else log.variables * log.code_bytes
    times = 8 if timed and log.layout == "long" else 0
    # beside the rows, the key of each sample of a page
    keys = 8 * min(1.0, log.samples / max(log.rows, 1))
    return 1.01 * (log.identifier_bytes + 4 + values + times + 8) + keys


def count_partition_files(log: LogSize, blocks: Sequence[BlockReference]) -> int:
    """Count the files of one partition, from its blocks."""
    n_rows = blocks[-1].stop if blocks else 0
    by_rows = -(-n_rows // COLUMN_CHUNK)
    if log.is_sparse:
        cells = round(n_rows * log.variables * log.observed)
        codes, described = -(-cells // COLUMN_CHUNK) + by_rows, 1
    else:
        codes, described = -(-n_rows // choose_block_rows(log.variables)), 0
    texts = -(-round(n_rows * log.identifier_bytes) // COLUMN_CHUNK)
    return PARTITION_FILES + described + codes + 3 * by_rows + texts
