"""What artefacts of features hold of samples, and how it is taken out: what an erasure asks each feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.base.errors import StoreError
from pmflib.ingest.dataset.erased_samples import ErasedSamples
from pmflib.ingest.dataset.identifiers import hash_identifiers
from pmflib.store.artefacts import Entry, Store
from pmflib.store.erasures import Erasure, ErasureList
from pmflib.store.file_digests import check_file
from pmflib.store.parquet_batches import read_batches
from pmflib_tasks.features import list_offers


@dataclass(frozen=True)
class ErasedRows:
    """Rows of erased samples in an artefact.

    Parameters
    ----------
    rows
        Number of rows, including quarantined ones.
    digests
        Salted digests of the samples found, without those of quarantined rows.
    """

    rows: int = 0
    digests: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RawFile:
    """A raw file of a last run that still contains rows of erased samples.

    Parameters
    ----------
    name, digest
        Name and digest recorded by the run.
    rows
        Number of rows of erased samples.
    """

    name: str
    digest: str
    rows: int


LookInto: TypeAlias = Callable[[Path, Entry, ErasedSamples], ErasedRows]
"""Function that finds the rows of erased samples in an artefact, given its folder and its entry."""


@dataclass(frozen=True)
class LogHolder:
    """A kind of log whose stores hold nothing else, and which rewrites what it holds.

    Parameters
    ----------
    is_in
        Whether a store contains such a log.
    instead
        What such a store holds, and the options that name what to erase from it.
    check
        Raises StoreError if a store contains other data beside the log.
    take_out
        Builds the artefacts in use again without the erased samples and workers, and notes in the erasure which are
        replaced and deleted. Returns all entries of the store as they were, and the raw files with rows of them.
    """

    is_in: Callable[[Store], bool]
    instead: str
    check: Callable[[Store], None]
    take_out: Callable[[Store, ErasureList, Erasure], tuple[Mapping[str, Entry], list[RawFile]]]


@dataclass(frozen=True)
class Holder:
    """What the artefacts of a feature hold of samples: the object of `Feature.erase`.

    Parameters
    ----------
    kinds
        Kinds of artefacts that no other feature makes, and how rows of erased samples are found in one; None if there
        are none, or `log` takes them out.
    sums
        Those of them that are sums of counts: deleted with any of the counts that were added.
    log
        Log that it rewrites by itself.
    """

    kinds: Mapping[str, LookInto | None] = field(default_factory=dict)
    sums: Sequence[str] = ()
    log: LogHolder | None = None


def find_log(store: Store) -> LogHolder | None:
    """Find the kind of log that a store contains; None for a store of samples."""
    logs: list[LogHolder] = [each.log for each in list_offers("erase") if each.log is not None]
    return next((log for log in logs if log.is_in(store)), None)


def look_into_tables(folder: Path, entry: Entry, erased: ErasedSamples) -> ErasedRows:
    """Find the rows of erased samples in the Parquet files of an artefact, by their column ``sample``."""
    total = ErasedRows()
    for path in sorted(folder.glob("*.parquet")):
        check_file(path)
        try:
            table = pq.ParquetFile(path)
            if "sample" not in table.schema_arrow.names:
                continue
            for batch in read_batches(table, 1 << 16, columns=["sample"]):
                samples = batch.column(0).cast(pa.binary()).fill_null(b"")
                mine = samples.filter(pa.array(erased.find(samples, hash_identifiers(samples))))
                more = describe_rows(len(mine), mine, erased)
                total = ErasedRows(total.rows + more.rows, total.digests | more.digests)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"{path.parent.parent.name} {path.parent.name!r} cannot be read ({error}); delete its folder"
            ) from error
    return total


def describe_rows(rows: int, samples: pa.BinaryArray, erased: ErasedSamples) -> ErasedRows:
    """Make the account of some rows, of which these are the identifiers."""
    names = samples.unique().to_pylist()
    return ErasedRows(rows, frozenset(erased.digest_identifier(name) for name in names))
