"""Which artefacts of a store hold erased samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pmflib.core.arrays import BoolArray
from pmflib.core.errors import StoreError
from pmflib.core.json_records import from_json
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import hash_identifiers, make_keys, read_sample_hashes
from pmflib.ingest.dataset.quarantine import QUARANTINE, QUARANTINE_HASHES, read_part
from pmflib.ingest.dataset.spills import Spill, is_among
from pmflib.ingest.options import name_separator
from pmflib.store.artefacts import Entry, Reference, Store
from pmflib.store.dataset import SAMPLES, read_content
from pmflib.store.file_digests import check_file
from pmflib.store.sample_blocks import read_identifier_texts

IDENTIFIED = ("spill", "samples", "predictions", "answers")
"""Kinds of artefacts that hold identifiers of samples."""


@dataclass(frozen=True)
class ErasedRows:
    """What an artefact holds of erased samples.

    Parameters
    ----------
    rows
        Its rows of them, rejected ones included.
    digests
        Salted digests of those whose identifiers it holds; of rejected rows they are not listed.
    """

    rows: int = 0
    digests: frozenset[str] = frozenset()


@dataclass
class Holdings:
    """Artefacts of a store that hold erased samples, or would reveal them.

    Parameters
    ----------
    entries
        All entries of the manifest, by identity.
    erased_rows
        What those of ``IDENTIFIED`` hold, by identity; those that hold nothing are left out.
    datasets
        Identities of the datasets that are made of such.
    counts
        Identities of the counts of such datasets, of datasets that are not in the store, so that nobody knows, and of
        those that are differences to such counts.
    """

    entries: Mapping[str, Entry]
    erased_rows: dict[str, ErasedRows] = field(default_factory=dict)
    datasets: set[str] = field(default_factory=set)
    counts: set[str] = field(default_factory=set)

    def list_samples(self) -> frozenset[str]:
        """Salted digests of the erased samples that were found."""
        return frozenset().union(*(each.digests for each in self.erased_rows.values()))


def find_holdings(store: Store, erased: ErasedSamples) -> Holdings:
    """Find what a store holds of erased samples.

    Raises
    ------
    StoreError
        If an artefact is damaged: what it holds is not known.
    """
    entries = {entry.reference.identity: entry for entry in store.entries()}
    found = Holdings(entries)
    read = {"spill": _look_into_spill, "samples": _look_into_partition}
    for identity, entry in entries.items():
        if entry.reference.kind in IDENTIFIED:
            folder = store.locate(entry.reference)
            rows_found = read.get(entry.reference.kind, _look_into_tables)(folder, entry, erased)
            if rows_found.rows:
                found.erased_rows[identity] = rows_found
    for identity, entry in entries.items():
        if entry.reference.kind == "dataset":
            parts = list_parts(store, entry.reference)
            if any(part.identity in found.erased_rows for part in parts):
                found.datasets.add(identity)
    if found.erased_rows:
        found.counts = _find_counts(found)
    return found


def list_parts(store: Store, dataset: Reference) -> list[Reference]:
    """Partitions of a dataset, and the artefacts of its files."""
    content = read_content(store, dataset)
    parts = from_json(list[Reference], content["partitions"])
    return parts + [from_json(Reference, each["step"]) for each in content["files"]]


def find_rejected(folder: Path, index: int, delimiter: str, erased: ErasedSamples) -> BoolArray:
    """Whether each rejected row of a step is of an erased sample; see `ErasedSamples.find_in_rows`."""
    found = [np.empty(0, np.bool_)]
    for batch in read_part(folder / QUARANTINE, None):
        ragged = pc.equal(batch["reason"], "ragged").to_pylist()
        found.append(erased.find_in_rows(batch["raw"].to_pylist(), ragged, index, delimiter))
    return np.concatenate(found)


def find_erased_rows(path: Path, erased: ErasedSamples) -> tuple[BoolArray, list[bytes]]:
    """Whether each row of a partition is an erased sample, and the identifiers of those that are."""
    found = is_among(read_sample_hashes(path), erased.hashes)
    rows = np.flatnonzero(found)
    texts, lengths = read_identifier_texts(path)
    ends = np.cumsum(lengths, dtype=np.int64)
    names = []
    for row in rows.tolist():
        name = texts[ends[row] - lengths[row] : ends[row]].tobytes()
        found[row] = erased.holds(name)
        names += [name] if found[row] else []
    return found, names


def _look_into_spill(folder: Path, entry: Entry, erased: ErasedSamples) -> ErasedRows:
    spill = Spill(folder, {})
    rows = spill.read_samples(np.unique(make_keys(erased.hashes, spill.n_buckets)))
    samples = rows["sample"].combine_chunks()
    mine = samples.filter(pa.array(erased.find(samples, hash_identifiers(samples))))
    index = int(spill.metadata["identifier"])
    delimiter = name_separator(entry.options["source"]["delimiter"])
    n_rejected = int(np.count_nonzero(find_rejected(folder, index, delimiter, erased)))
    return _describe(len(mine) + n_rejected, mine, erased)


def _look_into_partition(folder: Path, entry: Entry, erased: ErasedSamples) -> ErasedRows:
    if not (folder / QUARANTINE_HASHES).exists():
        # rows without identifiers are nobody's
        return ErasedRows()
    gone, names = find_erased_rows(folder / SAMPLES, erased)
    # rejected duplicates are of samples that the partition holds
    return _describe(int(np.count_nonzero(gone)), pa.array(names, pa.binary()), erased)


def _look_into_tables(folder: Path, entry: Entry, erased: ErasedSamples) -> ErasedRows:
    total = ErasedRows()
    for path in sorted(folder.glob("*.parquet")):
        check_file(path)
        try:
            table = pq.ParquetFile(path)
            if "sample" not in table.schema_arrow.names:
                continue
            for batch in table.iter_batches(columns=["sample"], use_threads=False):
                samples = batch.column(0).cast(pa.binary()).fill_null(b"")
                mine = samples.filter(pa.array(erased.find(samples, hash_identifiers(samples))))
                more = _describe(len(mine), mine, erased)
                total = ErasedRows(total.rows + more.rows, total.digests | more.digests)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"{path.parent.parent.name} {path.parent.name!r} cannot be read ({error}); delete its folder"
            ) from error
    return total


def _describe(rows: int, samples: pa.BinaryArray, erased: ErasedSamples) -> ErasedRows:
    names = samples.unique().to_pylist()
    return ErasedRows(rows, frozenset(erased.digest_identifier(name) for name in names))


def _find_counts(found: Holdings) -> set[str]:
    """Counts of datasets that held erased samples or are gone, and counts of differences to such."""
    counts = {i: entry for i, entry in found.entries.items() if entry.reference.kind == "counts"}
    clean = found.entries.keys() - found.datasets
    revealing = {i for i, entry in counts.items() if entry.inputs["dataset"].identity not in clean}
    while (
        more := {
            identity
            for identity, entry in counts.items()
            if any(each.identity in revealing for each in entry.inputs.values())
        }
        - revealing
    ):
        revealing |= more
    return revealing
