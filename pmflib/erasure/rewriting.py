"""Write artefacts again without erased samples: as they would be had these never been there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.arrays import BoolArray, IntArray
from pmflib.blocks import SPARSE_BELOW
from pmflib.config.csv_options import name_separator
from pmflib.erasure.holdings import find_in_partition, find_rejected, read_reading
from pmflib.ingest.accounts import Account
from pmflib.ingest.assembly import unpack_codes
from pmflib.ingest.erased_samples import ErasedSamples
from pmflib.ingest.identifiers import hash_identifiers, read_sample_hashes
from pmflib.ingest.quarantine import QUARANTINE, QUARANTINE_HASHES, QuarantineWriter
from pmflib.ingest.rejected_rows import read_part
from pmflib.ingest.spills import Spill, SpillWriter
from pmflib.schema import Schema
from pmflib.store.artefacts import Entry
from pmflib.store.dataset import LEVEL_COUNTS, SAMPLES
from pmflib.store.file_digests import check_file
from pmflib.store.sample_blocks import (
    SampleWriter,
    list_blocks,
    read_blocks,
    read_identifier_texts,
    read_tallies,
)
from pmflib.store.zarr_arrays import read_arrays


def rewrite_spill(
    old: Path, entry: Entry, schema: Schema, erased: ErasedSamples, folder: Path
) -> dict[str, Any]:
    """Write a spill again without erased samples.

    Parameters
    ----------
    old, entry
        Folder of the spill, and its entry.
    schema
        Schema of the rows.
    erased
        The erased samples.
    folder
        Existing folder for the new spill.

    Returns
    -------
    The account of its file, in which rows of erased samples are counted as such. Values that count as missing because
    they are no level are not kept one by one: those of erased samples stay in the account.
    """
    spill = Spill(old, {})
    counts = np.load(old / LEVEL_COUNTS, allow_pickle=False)
    writer = SpillWriter(folder, spill.fields, spill.n_buckets)
    writer.metadata = dict(spill.metadata)
    n_gone = 0
    with writer:
        for batch in spill.read_pages():
            hashes = hash_identifiers(batch["sample"])
            gone = erased.find(batch["sample"], hashes)
            if gone.any():
                n_gone += int(np.count_nonzero(gone))
                counts -= _count_levels(batch.filter(pa.array(gone)), schema, counts.size)
                batch, hashes = batch.filter(pa.array(~gone)), hashes[~gone]
            if hashes.size:
                writer.append(hashes, batch)
    np.save(folder / LEVEL_COUNTS, counts)
    rejected = find_rejected(old, int(spill.metadata["identifier"]), _delimiter(entry), erased)
    reasons = _rewrite_rejected(old, folder, rejected)
    known = entry.summary
    account = Account(
        known["rows_in"],
        known["rows_encoded"] - n_gone,
        known["rows_left_out"],
        known["rows_erased"] + n_gone + int(np.count_nonzero(rejected)),
        Counter(known["reasons"]) - reasons,
        Counter(known["cells_made_missing"]),
    )
    more = {key: known[key] for key in ("name", "ignored_columns") if key in known}
    return account.summarise(**more)


def rewrite_partition(
    old: Path, entry: Entry, erased: ErasedSamples, folder: Path
) -> dict[str, Any]:
    """Write a partition again without erased samples; the others stay in their folds, and in their order.

    Parameters
    ----------
    old, entry
        Folder of the partition, and its entry.
    erased
        The erased samples.
    folder
        Existing folder for the new partition.

    Returns
    -------
    Its account: see `assemble_buckets`.
    """
    path = old / SAMPLES
    gone, names = find_in_partition(path, erased)
    kept = ~gone
    rows: IntArray = read_arrays(path, ["row"])[0]["row"]
    schema = Schema.from_json(read_arrays(path, [])[1]["schema"])
    tallies, samples = read_tallies(path), _read_samples(path)
    sizes, observed = tallies[gone, :2].sum(axis=0, dtype=np.int64), int(tallies[kept, 2].sum())
    sparse = observed < SPARSE_BELOW * int(kept.sum()) * schema.n_variables
    writer = SampleWriter(folder / SAMPLES, schema, sparse=sparse)
    references = list_blocks(path)
    for reference, block in zip(references, read_blocks(references), strict=True):
        here = np.flatnonzero(kept[reference.start : reference.stop])
        if here.size:
            place = here + reference.start
            folds = np.full(here.size, reference.fold, np.int64)
            writer.append(block.take(here), folds, rows[place], samples[place], tallies[place, :2])
    hashes = np.load(old / QUARANTINE_HASHES, allow_pickle=False)
    # the rejected rows of a partition are duplicates: each is of a sample that it holds
    mine = np.isin(hashes, hash_identifiers(pa.array(names, pa.binary())))
    mine[mine] = find_rejected(old, *read_reading(entry), erased)[mine]
    reasons = _rewrite_rejected(old, folder, mine)
    np.save(folder / QUARANTINE_HASHES, hashes[~mine])
    known = entry.summary
    account = Account(
        known["rows_in"] - int(sizes[0]),
        known["rows_encoded"] - int(sizes[0] - sizes[1]),
        reasons=Counter(known["reasons"]) - reasons,
    )
    return account.summarise(**writer.close())


def find_same_rows(old: Path, new: Path, rows: IntArray) -> IntArray:
    """Rows of a partition that was written again: where the samples of some rows of the old one are now, int64."""
    hashes = read_sample_hashes(old)[rows]
    found: IntArray = np.flatnonzero(np.isin(read_sample_hashes(new), hashes)).astype(np.int64)
    return found


def rewrite_predictions(old: Path, erased: ErasedSamples, folder: Path) -> int:
    """Write predictions again without those for erased samples; return the number of the others."""
    n_rows = 0
    for path in sorted(old.glob("*.parquet")):
        check_file(path)
        table = pq.ParquetFile(path)
        with pq.ParquetWriter(folder / path.name, table.schema_arrow, compression="zstd") as writer:
            for group in range(table.num_row_groups):
                rows = table.read_row_group(group, use_threads=False)
                samples = rows["sample"].combine_chunks().cast(pa.binary()).fill_null(b"")
                rows = rows.filter(pa.array(~erased.find(samples, hash_identifiers(samples))))
                if rows.num_rows:
                    writer.write_table(rows)
                    n_rows += rows.num_rows
    return n_rows


def _count_levels(rows: pa.RecordBatch, schema: Schema, n_levels: int) -> IntArray:
    """Number of rows that hold each level."""
    if "level" in rows.schema.names:
        levels = rows["level"].to_numpy()
    else:
        codes = unpack_codes(pa.chunked_array([rows["codes"]]), schema).astype(np.int64)
        levels = np.where(codes < 0, -1, codes + schema.offsets[:-1])
    counts: IntArray = np.bincount(levels[levels >= 0], minlength=n_levels)
    return counts


def _rewrite_rejected(old: Path, folder: Path, gone: BoolArray) -> Counter[str]:
    """Write a quarantine again without some rows; give their number by reason."""
    reasons: Counter[str] = Counter()
    start = 0
    with QuarantineWriter(folder / QUARANTINE) as writer:
        for batch in read_part(old / QUARANTINE, None):
            lost = gone[start : start + batch.num_rows].tolist()
            start += batch.num_rows
            for row, is_lost in zip(batch.to_pylist(), lost, strict=True):
                if is_lost:
                    reasons[row["reason"]] += 1
                else:
                    writer.add(*row.values())
    return reasons


def _read_samples(path: Path) -> npt.NDArray[np.object_]:
    """Identifiers of a partition's samples, bytes."""
    texts, lengths = read_identifier_texts(path)
    content, ends = texts.tobytes(), np.cumsum(lengths, dtype=np.int64)
    starts = ends - lengths
    out = np.empty(lengths.size, object)
    out[:] = [content[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return out


def _delimiter(entry: Entry) -> str:
    return name_separator(entry.options["source"]["delimiter"])
