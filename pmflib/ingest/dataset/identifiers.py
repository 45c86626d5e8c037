"""Sample identifiers: texts, hashes, and the assignment of samples to buckets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.hashing import HashArray, mix_hashes
from pmflib.ingest.sources import Source
from pmflib.schema.variable import as_text
from pmflib.store.sample_blocks import read_identifier_texts


@dataclass(frozen=True)
class Identifiers:
    """Identifiers of a batch of rows.

    Parameters
    ----------
    texts
        Stripped UTF-8 texts, binary of length n_rows; empty if missing.
    hashes
        Hashes of the texts, uint64 of shape (n_rows,), the same on every machine.
    absent, undecodable
        Whether the identifier is missing, or not UTF-8; bool of shape (n_rows,).
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
    """Read a column of identifiers; numbers are formatted like levels, 5.0 as "5"."""
    from pmflib.ingest.kernels.texts import EMPTY, FOREIGN, PADDED

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
"""Length from which lengths are not distinguished, bytes."""
_CLASSES = ("digits", "lower", "upper", "other", "not ASCII")
"""Character classes, in the order of their bits."""


def count_forms(texts: pa.BinaryArray) -> Counter[str]:
    """Count identifiers by form: character classes, length, and whether digits begin with a zero.

    Parameters
    ----------
    texts
        Nonempty identifiers.

    Returns
    -------
    Counts by form, such as "digits 5", "zero digits 8" or "digits lower other 12".
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


_NUMBER = r"^0*([0-9]+?)(\.0*)?$"
"""Whole numbers, as spreadsheets and pandas spell them: 17, 00017, 17.0."""


def spell_plainly(texts: pa.Array) -> pa.Array:
    """Spell whole numbers without leading zeros and decimals, "00017" and "17.0" as "17"; other texts stay.

    Parameters
    ----------
    texts
        Stripped texts: strings, or binary in UTF-8.
    """
    import pyarrow.compute as pc

    return pc.replace_substring_regex(texts.cast(pa.string()), pattern=_NUMBER, replacement=r"\1")


def may_respell(forms: Collection[str]) -> bool:
    """Whether identifiers of some forms of `count_forms` may spell one number in two ways."""
    padded, plain, mixed = _list_lengths(forms)
    longest = max([*padded, *mixed], default=0)
    return longest > min([*padded, *plain], default=longest)


def spell_like(texts: pa.BinaryArray, forms: Collection[str]) -> pa.BinaryArray:
    """Spell whole numbers as a dataset does, if it spells all alike: without zeros before them, or to one length.

    Parameters
    ----------
    texts
        Identifiers, in UTF-8.
    forms
        Forms of the identifiers of the dataset, from `count_forms`.
    """
    import pyarrow.compute as pc

    padded, plain, mixed = _list_lengths(forms)
    lengths = {*padded, *plain}
    # "digits other" may be numbers with decimals
    if mixed or not lengths or (padded and len(lengths) > 1):
        return texts
    spelt = spell_plainly(texts)
    if padded:
        is_number = pc.match_substring_regex(texts.cast(pa.string()), _NUMBER)
        spelt = pc.if_else(is_number, pc.ascii_lpad(spelt, lengths.pop(), "0"), spelt)
    return spelt.cast(pa.binary())


def _list_lengths(forms: Collection[str]) -> tuple[list[int], list[int], list[int]]:
    """Lengths of numbers that are padded with zeros, of other ones, and of texts of digits and signs."""
    lengths: dict[str, list[int]] = {}
    for form in forms:
        alphabet, _, length = form.rpartition(" ")
        lengths.setdefault(alphabet, []).append(int(length))
    padded, plain, mixed = (lengths.get(x, []) for x in ("zero digits", "digits", "digits other"))
    return padded, plain, mixed


def find_respelled(texts: pa.Array) -> list[list[str]]:
    """Find the numbers that distinct identifiers spell in several ways.

    Returns
    -------
    The spellings of each such number, sorted.
    """
    table = pa.table({"text": texts.cast(pa.string()), "plain": spell_plainly(texts)})
    grouped = table.group_by("plain", use_threads=False).aggregate([("text", "distinct")])
    found = [sorted(each) for each in grouped["text_distinct"].to_pylist()]
    return sorted(each for each in found if len(each) > 1)


def _classify_bytes() -> npt.NDArray[np.uint8]:
    classes = np.full(256, 1 << 3, np.uint8)
    for bit, (first, last) in enumerate((b"09", b"az", b"AZ")):
        classes[first : last + 1] = 1 << bit
    classes[128:] = 1 << 4
    return classes


_BYTE_CLASSES = _classify_bytes()


def hash_identifiers(texts: pa.BinaryArray) -> HashArray:
    """Hash identifiers as `read_identifiers` does: uint64 of shape (n_rows,)."""
    return mix_hashes(_hash(texts)[0])


def read_sample_hashes(path: Path) -> HashArray:
    """Hashes of the identifiers of a stored partition, uint64, in the order of its rows."""
    from pmflib.ingest.kernels.texts import hash_texts

    texts, lengths = read_identifier_texts(path)
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    hashes, marks = np.empty(lengths.size, np.uint64), np.empty(lengths.size, np.uint8)
    if lengths.size:
        hash_texts(texts, ends, hashes, marks)
    return mix_hashes(hashes)


def as_binary(column: pa.Array) -> pa.BinaryArray:
    """Convert a column to binary texts; null and NaN are empty."""
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    dtype = column.type
    if pa.types.is_integer(dtype):
        column = column.cast(pa.string())
    elif not (_is_text(dtype) or dtype == pa.binary()):
        # convert each distinct value once
        coded = column.dictionary_encode()
        values = coded.dictionary.to_pylist()
        texts = ["" if value is None or value != value else as_text(value) for value in values]
        column = pa.array(texts, pa.string()).take(coded.indices)
    return pc.fill_null(column.cast(pa.binary()), b"")


def view_texts(texts: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Content and offsets of a binary array, without copying."""
    _, ends, data = texts.buffers()
    first = texts.offset
    offsets = np.frombuffer(ends, np.int32)[first : first + len(texts) + 1]
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    return content, offsets


def _hash(texts: pa.BinaryArray) -> tuple[HashArray, npt.NDArray[Any]]:
    from pmflib.ingest.kernels.texts import hash_texts

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
"""Raw CSV per bucket, bytes: the second pass holds one bucket in memory."""
MAX_BUCKETS = 4096
"""Largest number of buckets; buckets of very large datasets are larger."""
LEAST_GROUPS = 16
"""Least number of groups of buckets, if there are as many buckets, so that small data are processed in parallel."""
HASH_BITS = 30
"""Bits of a sample's hash in its key, below those of its bucket. Keys of 42 bits leave room for a row index in a 64-bit
integer, so that sorting integers sorts rows by sample. Collisions of keys are rare, and only cause additional reads."""


def choose_buckets(total_bytes: int, n_folds: int) -> int:
    """Choose the number of buckets, of about ``BUCKET_BYTES`` of raw CSV each.

    Parameters
    ----------
    total_bytes
        Size of the sources as plain CSV: see `estimate_csv_bytes`.
    n_folds
        Number of folds; bucket b belongs to fold b % n_folds.

    Returns
    -------
    A positive multiple of n_folds, at most ``MAX_BUCKETS`` if n_folds is.
    """
    needed = -(-total_bytes // BUCKET_BYTES)
    most = max(1, MAX_BUCKETS // n_folds)
    return n_folds * min(most, max(1, -(-needed // n_folds)))


def group_buckets(total_bytes: int, n_buckets: int) -> list[tuple[int, int]]:
    """Choose the groups of buckets that one task assembles into one partition, of about ``BUCKET_BYTES`` of raw CSV.

    Buckets from `choose_buckets` have this size. Smaller ones, from a configured number or an earlier dataset, are
    grouped, as every task opens the spills of all files.

    Parameters
    ----------
    total_bytes
        Size of the sources as plain CSV: see `estimate_csv_bytes`.
    n_buckets
        Number of buckets.

    Returns
    -------
    Range of buckets of each group, in order; sizes differ by at most one.
    """
    n_needed = max(LEAST_GROUPS, -(-total_bytes // BUCKET_BYTES))
    n_groups = min(n_buckets, n_needed)
    edges = [n_buckets * group // n_groups for group in range(n_groups + 1)]
    return list(pairwise(edges))


def estimate_csv_bytes(sources: Sequence[Source]) -> int:
    """Estimate the size of sources as plain CSV: compressed bytes count five times, Parquet three times."""
    total = 0
    for source in sources:
        name = source.name.lower()
        packed = name.endswith((".gz", ".bz2", ".xz", ".zst"))
        factor = 5 if packed else 3 if name.endswith((".parquet", ".pq")) else 1
        total += factor * source.size
    return total


def make_keys(hashes: HashArray, n_buckets: int) -> HashArray:
    """Make keys of samples: the bucket, followed by the upper bits of the hash.

    Parameters
    ----------
    hashes
        Hashes of identifiers, uint64 of shape (n_rows,).
    n_buckets
        Number of buckets, at most ``MAX_BUCKETS``.

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
    """First and last possible key of the samples of a bucket."""
    return bucket << HASH_BITS, ((bucket + 1) << HASH_BITS) - 1
