"""Spills: the encoded rows of one file, dealt to hash buckets, between the two passes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.arrays import IntArray
from pmflib.errors import StoreError
from pmflib.hashing import HashArray
from pmflib.ingest.sources import Source
from pmflib.json_files import read_json
from pmflib.schema import Schema

BUCKET_BYTES = 16 << 20
"""Raw CSV that is dealt to one bucket, bytes: the second pass holds one bucket in memory."""
MAX_BUCKETS = 4096
"""Buckets of a dataset, at most: beyond, buckets are larger."""
SPILL_BYTES = 32 << 20
"""Encoded rows that wait in memory before they are dealt to buckets, bytes."""

ROWS_FILE = "rows.arrow"
"""Encoded rows, in batches sorted by bucket."""
CUTS_FILE = "cuts.npy"
"""First row of each bucket in each batch, int64 of shape (n_batches, n_buckets + 1)."""
LEVELS_FILE = "levels.json"
"""Variable and label of each level, where the rows were encoded with a part of the schema."""


def choose_buckets(total_bytes: int, n_folds: int) -> int:
    """Choose the number of buckets for an amount of raw CSV: about ``BUCKET_BYTES`` each.

    Parameters
    ----------
    total_bytes
        Size of the sources as plain CSV: see `estimate_csv_bytes`.
    n_folds
        Folds; bucket b belongs to fold b % n_folds.

    Returns
    -------
    A multiple of n_folds, at least n_folds, at most the largest multiple up to 4096.
    """
    needed = -(-total_bytes // BUCKET_BYTES)
    most = max(1, MAX_BUCKETS // n_folds)
    return n_folds * min(most, max(1, -(-needed // n_folds)))


def estimate_csv_bytes(sources: Sequence[Source]) -> int:
    """Estimate the size that sources would have as plain CSV: packed bytes count five times, Parquet three times."""
    total = 0
    for source in sources:
        name = source.name.lower()
        packed = name.endswith((".gz", ".bz2", ".xz", ".zst"))
        factor = 5 if packed else 3 if name.endswith((".parquet", ".pq")) else 1
        total += factor * source.size
    return total


class SpillWriter:
    """Writes a spill: an Arrow file of batches sorted by bucket, and a table of where each bucket starts.

    Memory is ``SPILL_BYTES``, whatever the numbers of rows and buckets, and two files are open. Equal calls of
    `append` give equal bytes. Use it in a ``with`` block: a spill that was not closed has no table and is refused.

    Parameters
    ----------
    folder
        Folder for the two files.
    fields
        Schema of the rows.
    n_buckets
        At most 65536.
    """

    def __init__(self, folder: Path, fields: pa.Schema, n_buckets: int) -> None:
        self.metadata: dict[str, str] = {}
        self._folder = folder
        self._fields = fields
        self._n_buckets = n_buckets
        self._waiting: list[pa.RecordBatch] = []
        self._buckets: list[HashArray] = []
        self._cuts: list[IntArray] = []
        self._file: pa.RecordBatchFileWriter | None = None

    def append(self, hashes: HashArray, batch: pa.RecordBatch) -> None:
        """Add rows to the buckets that their hashes, uint64 of shape (n_rows,), belong to."""
        self._waiting.append(batch)
        self._buckets.append((hashes % np.uint64(self._n_buckets)).astype(np.uint16))
        if sum(part.nbytes for part in self._waiting) >= SPILL_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._file is None:
            # metadata are complete by now: they may depend on the first rows
            fields = self._fields.with_metadata(self.metadata)
            self._file = pa.ipc.new_file(str(self._folder / ROWS_FILE), fields)
        if not self._waiting:
            return
        buckets = np.concatenate(self._buckets)
        counts = np.bincount(buckets, minlength=self._n_buckets)
        # a stable sort of 16-bit integers is a radix sort
        order = np.argsort(buckets, kind="stable")
        rows = pa.concat_batches(self._waiting)
        self._waiting.clear()
        self._buckets.clear()
        rows = rows.take(pa.array(order)).replace_schema_metadata(self.metadata)
        self._file.write_batch(rows)
        self._cuts.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))

    def __enter__(self) -> SpillWriter:
        return self

    def __exit__(self, error_type: object, *error: object) -> None:
        if error_type is None:
            self._flush()
            cuts = np.array(self._cuts, np.int64).reshape(-1, self._n_buckets + 1)
            np.save(self._folder / CUTS_FILE, cuts)
        if self._file is not None:
            self._file.close()


def read_bucket(
    folder: Path, bucket: int, expected: Mapping[str, str]
) -> tuple[pa.Table, dict[str, str]]:
    """Read one bucket of a spill, in the order of the file it was made from.

    Parameters
    ----------
    folder
        Folder of the spill.
    bucket
        Number of the bucket.
    expected
        Metadata that the spill must have.

    Returns
    -------
    The rows, and the spill's metadata.

    Raises
    ------
    StoreError
        If the spill is incomplete, has no such bucket, or was made with another schema or layout.
    """
    try:
        cuts = np.load(folder / CUTS_FILE)
        with pa.memory_map(str(folder / ROWS_FILE)) as content, pa.ipc.open_file(content) as file:
            metadata = {k.decode(): v.decode() for k, v in (file.schema.metadata or {}).items()}
            wrong = {
                key: metadata.get(key)
                for key, value in expected.items()
                if metadata.get(key) != value
            }
            if wrong or len(cuts) != file.num_record_batches:
                raise StoreError(
                    f"spill {folder.name!r} has {wrong or 'lost batches'}, expected {dict(expected)}; "
                    "spill its file again"
                )
            if not 0 <= bucket < cuts.shape[1] - 1:
                raise StoreError(
                    f"bucket {bucket} is outside [0, {cuts.shape[1] - 1}) of spill {folder.name!r}; "
                    "assemble with the number of buckets it was spilled with"
                )
            parts = []
            for place, (start, stop) in enumerate(cuts[:, bucket : bucket + 2].tolist()):
                parts.append(file.get_batch(place).slice(start, stop - start))
            table = pa.Table.from_batches(parts, file.schema.remove_metadata())
            # a copy of this bucket alone, so that the memory map of the whole spill can be closed
            return table.take(pa.array(np.arange(table.num_rows))), metadata
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"spill {folder.name!r} cannot be read ({error}); spill its file again"
        ) from error


def write_levels(folder: Path, part: Schema) -> None:
    """Write the names of a spill's levels beside it: it is encoded with a part of the schema that it is read with."""
    (folder / LEVELS_FILE).write_text(json.dumps(_name_levels(part), ensure_ascii=False), "utf-8")


def find_levels(folder: Path, schema: Schema) -> IntArray | None:
    """Find a schema's levels for those of a spill.

    Parameters
    ----------
    folder
        Folder of the spill.
    schema
        Schema that its rows will be read with.

    Returns
    -------
    int64 of shape (n_part_levels + 1,), the last -1, which is missing; None where the spill names no levels: then it
    must have been encoded with the schema.

    Raises
    ------
    StoreError
        If the names do not read, or the schema lacks one of them.
    """
    path = folder / LEVELS_FILE
    if not path.exists():
        return None
    try:
        names = pa.array(read_json(path), pa.string())
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
    """Variable and label of every level, as one text that no other pair has."""
    return [
        json.dumps([variable.name, label], ensure_ascii=False)
        for variable in schema
        for label in variable.levels
    ]
