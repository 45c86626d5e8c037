"""Sample identifiers: their texts, their hashes, and the buckets that samples are assigned to by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.core.arrays import BoolArray, IntArray
from pmflib.core.hashing import HashArray, mix_hashes
from pmflib.ingest.sources import Source
from pmflib.schema.variable import as_text
from pmflib.store.sample_blocks import read_identifier_texts


@dataclass(frozen=True)
class Identifiers:
    """Identifiers of a batch of rows.

    Parameters
    ----------
    texts
        Binary of length n_rows: UTF-8, without blanks around it; empty where there is none.
    hashes
        uint64 of shape (n_rows,): the same for equal texts, on every machine.
    absent, undecodable
        Booleans of shape (n_rows,): no identifier, or one that is not UTF-8.
    """

    texts: pa.BinaryArray
    hashes: HashArray
    absent: BoolArray
    undecodable: BoolArray

    def take(self, rows: IntArray) -> Identifiers:
        """Identifiers of some rows, int64."""
        texts = self.texts.take(pa.array(rows))
        return Identifiers(texts, self.hashes[rows], self.absent[rows], self.undecodable[rows])


def read_identifiers(column: pa.Array) -> Identifiers:
    """Read a column of identifiers; numbers become texts as a level would, 5.0 is "5"."""
    from pmflib.kernels.texts import EMPTY, FOREIGN, PADDED

    texts = as_binary(column)
    hashes, marks = _hash(texts)
    if (marks & PADDED).any():
        texts = pa.array([text.strip() for text in texts.to_pylist()], pa.binary())
        hashes, marks = _hash(texts)
    undecodable = np.zeros(len(texts), np.bool_)
    foreign = np.flatnonzero(marks & FOREIGN)
    if foreign.size and not _is_utf8(texts):
        undecodable[foreign] = [not _decodes(texts[row].as_py()) for row in foreign.tolist()]
    return Identifiers(texts, mix_hashes(hashes), (marks & EMPTY).astype(np.bool_), undecodable)


LONGEST_FORM = 64
"""Length from which on identifiers count as of one length, bytes."""
_CLASSES = ("digits", "lower", "upper", "other", "not ASCII")
"""Alphabets, by the bit that stands for each."""


def count_forms(texts: pa.BinaryArray) -> Counter[str]:
    """Count identifiers by what they look like: alphabets, length, and whether digits begin with a zero.

    Parameters
    ----------
    texts
        Identifiers, none empty.

    Returns
    -------
    Numbers by form: "digits 5", "zero digits 8", "digits lower other 12". A form is shared by many.
    """
    content, ends = view_texts(texts)
    if not len(texts):
        return Counter()
    lengths = np.diff(ends)
    starts = ends[:-1].astype(np.int64)
    masks = np.bitwise_or.reduceat(_BYTE_CLASSES[content[: ends[-1]]], starts)
    zeros = (content[starts] == ord("0")) & (masks == 1) & (lengths > 1)
    codes = (zeros * 32 + masks.astype(np.int64)) * (LONGEST_FORM + 1)
    found, counts = np.unique(codes + np.minimum(lengths, LONGEST_FORM), return_counts=True)
    forms: Counter[str] = Counter()
    for code, count in zip(found.tolist(), counts.tolist(), strict=True):
        mask, length = divmod(code, LONGEST_FORM + 1)
        words = ["zero"] * (mask >> 5) + [w for bit, w in enumerate(_CLASSES) if mask >> bit & 1]
        forms[" ".join([*words, str(length)])] = count
    return forms


def _classify_bytes() -> npt.NDArray[np.uint8]:
    classes = np.full(256, 1 << 3, np.uint8)
    for bit, (first, last) in enumerate((b"09", b"az", b"AZ")):
        classes[first : last + 1] = 1 << bit
    classes[128:] = 1 << 4
    return classes


_BYTE_CLASSES = _classify_bytes()


def hash_identifiers(texts: pa.BinaryArray) -> HashArray:
    """Hashes of identifiers as `read_identifiers` gives them: uint64 of shape (n_rows,)."""
    return mix_hashes(_hash(texts)[0])


def read_sample_hashes(path: Path) -> HashArray:
    """Hashes of the identifiers of a stored partition's samples, uint64, in the order of its rows."""
    from pmflib.kernels.texts import hash_texts

    texts, lengths = read_identifier_texts(path)
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    hashes, marks = np.empty(lengths.size, np.uint64), np.empty(lengths.size, np.uint8)
    if lengths.size:
        hash_texts(texts, ends, hashes, marks)
    return mix_hashes(hashes)


def as_binary(column: pa.Array) -> pa.BinaryArray:
    """Texts of a column as binary; null and not-a-number are empty."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    dtype = column.type
    if pa.types.is_integer(dtype):
        column = column.cast(pa.string())
    elif not (_is_text(dtype) or dtype == pa.binary()):
        # a batch has fewer distinct values than rows: Python reads each of them once
        coded = column.dictionary_encode()
        values = coded.dictionary.to_pylist()
        texts = ["" if value is None or value != value else as_text(value) for value in values]
        column = pa.array(texts, pa.string()).take(coded.indices)
    return pc.fill_null(column.cast(pa.binary()), b"")


def view_texts(texts: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Bytes and ends of the texts of a binary array, without copying."""
    _, ends, data = texts.buffers()
    first = texts.offset
    offsets = np.frombuffer(ends, np.int32)[first : first + len(texts) + 1]
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    return content, offsets


def _hash(texts: pa.BinaryArray) -> tuple[HashArray, npt.NDArray[Any]]:
    from pmflib.kernels.texts import hash_texts

    hashes = np.empty(len(texts), np.uint64)
    marks = np.empty(len(texts), np.uint8)
    if len(texts):
        hash_texts(*view_texts(texts), hashes, marks)
    return hashes, marks


def _is_text(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_large_binary(dtype)
    )


def _is_utf8(texts: pa.BinaryArray) -> bool:
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


BUCKET_BYTES = 16 << 20
"""Raw CSV that is assigned to one bucket, bytes: the second pass holds one bucket in memory."""
MAX_BUCKETS = 4096
"""Buckets of a dataset, at most: beyond, buckets are larger."""
LEAST_GROUPS = 16
"""Groups that buckets are assembled in, at least, where there are as many buckets: small data are still shared out."""
HASH_BITS = 30
"""Bits of a sample's hash in its key, below those of its bucket. Keys of 42 bits leave room for the index of a row in a
64-bit integer, and one sort of integers then sorts rows by sample. That two samples share a key is rare, and costs
nothing but that the one is read where the other is looked for."""


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


def group_buckets(total_bytes: int, n_buckets: int) -> list[tuple[int, int]]:
    """Choose which buckets are assembled together, by one task into one partition: about ``BUCKET_BYTES`` of raw CSV.

    Buckets that were chosen for the data are as large, and assembled one by one; smaller ones, of a configured number
    or that of an earlier dataset, are not, for every task opens the spills of all files.

    Parameters
    ----------
    total_bytes
        Size of the sources as plain CSV: see `estimate_csv_bytes`.
    n_buckets
        Buckets of the dataset.

    Returns
    -------
    First bucket of each group and the one after its last, in order; sizes differ by one at most. The number of groups
    is the number of partitions of a fresh dataset, and with that of files it gives the number of spill openings.
    """
    n_needed = max(LEAST_GROUPS, -(-total_bytes // BUCKET_BYTES))
    n_groups = min(n_buckets, n_needed)
    edges = [n_buckets * group // n_groups for group in range(n_groups + 1)]
    return list(pairwise(edges))


def estimate_csv_bytes(sources: Sequence[Source]) -> int:
    """Estimate the size that sources would have as plain CSV: packed bytes count five times, Parquet three times."""
    total = 0
    for source in sources:
        name = source.name.lower()
        packed = name.endswith((".gz", ".bz2", ".xz", ".zst"))
        factor = 5 if packed else 3 if name.endswith((".parquet", ".pq")) else 1
        total += factor * source.size
    return total


def make_keys(hashes: HashArray, n_buckets: int) -> HashArray:
    """Keys of samples: the bucket, and below it the upper bits of the hash.

    Parameters
    ----------
    hashes
        uint64 of shape (n_rows,): hashes of identifiers.
    n_buckets
        Buckets of the dataset, at most ``MAX_BUCKETS``.

    Returns
    -------
    uint64 of shape (n_rows,), below 2**42.
    """
    buckets = hashes % np.uint64(n_buckets)
    return (buckets << np.uint64(HASH_BITS)) | (hashes >> np.uint64(64 - HASH_BITS))


def find_buckets(keys: HashArray) -> HashArray:
    """Bucket of each key."""
    return keys >> np.uint64(HASH_BITS)


def list_keys(bucket: int) -> tuple[int, int]:
    """First and last key that samples of a bucket may have."""
    return bucket << HASH_BITS, ((bucket + 1) << HASH_BITS) - 1
