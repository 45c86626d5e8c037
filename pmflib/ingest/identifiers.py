"""Sample identifiers: their texts, their hashes, and which rows have none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pmflib.arrays import BoolArray
from pmflib.hashing import HashArray, mix_hashes
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
    places = np.frombuffer(ends, np.int32)[first : first + len(texts) + 1]
    content = np.frombuffer(b"" if data is None else data, np.uint8)
    return content, places


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
