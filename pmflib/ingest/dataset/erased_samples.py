"""Erased samples and workers, whose rows in raw files are skipped."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pmflib.base.arrays import BoolArray
from pmflib.base.hashing import HashArray
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.csv.byte_stream import choose_separator
from pmflib.ingest.dataset.identifiers import Identifiers, hash_identifiers, read_identifiers
from pmflib.ingest.dataset.spills import is_among
from pmflib.store.artefacts import Store
from pmflib.store.erasures import Erased, ErasureList, read_erasures


@dataclass(frozen=True)
class ErasedSamples:
    """Set of erased identifiers.

    Parameters
    ----------
    salt
        Salt of the digests.
    digests
        Salted SHA-256 of the erased identifiers, hexadecimal.
    hashes
        Sorted hashes of these identifiers, uint64, as from `read_identifiers`: only identifiers with one of them are
        digested.
    """

    salt: bytes
    digests: frozenset[str]
    hashes: HashArray

    @classmethod
    def of_list(
        cls, erasures: ErasureList | None, what: Erased = "samples"
    ) -> ErasedSamples | None:
        """Erased samples or workers of a list; None if there are none."""
        if erasures is None or not erasures.choose(what):
            return None
        hashes = np.unique(np.array(erasures.list_hashes(what), np.uint64))
        return cls(bytes.fromhex(erasures.salt), frozenset(erasures.choose(what)), hashes)

    @classmethod
    def of_store(cls, store: Store, what: Erased = "samples") -> ErasedSamples | None:
        """Erased samples or workers of a store; None if there are none."""
        return cls.of_list(read_erasures(store), what)

    @property
    def digest(self) -> str:
        """SHA-256 of the set, an option of artefacts that depend on it."""
        content = self.salt + b"".join(map(bytes.fromhex, sorted(self.digests)))
        return hashlib.sha256(content).hexdigest()

    def find(self, texts: pa.BinaryArray, hashes: HashArray) -> BoolArray:
        """Whether each identifier is erased.

        Parameters
        ----------
        texts, hashes
            As in `Identifiers`.

        Returns
        -------
        bool of shape (n_rows,).
        """
        found = is_among(hashes, self.hashes)
        rows = np.flatnonzero(found)
        if rows.size:
            coded = texts.take(pa.array(rows)).dictionary_encode()
            known = [self.holds(text) for text in coded.dictionary.to_pylist()]
            found[rows] = np.array(known, np.bool_)[coded.indices.to_numpy()]
        return found

    def digest_identifier(self, identifier: bytes) -> str:
        """Salted SHA-256 of an identifier."""
        return hashlib.sha256(self.salt + identifier).hexdigest()

    def holds(self, identifier: bytes) -> bool:
        """Whether one identifier is erased."""
        return self.digest_identifier(identifier) in self.digests

    def find_texts(self, texts: Sequence[str]) -> BoolArray:
        """Whether each text, stripped, is an erased identifier: bool of shape (n_texts,)."""
        column = pa.array([text.encode("utf-8", "replace").strip() for text in texts], pa.binary())
        return self.find(column, hash_identifiers(column))

    def find_in_rows(
        self, rows: Sequence[str], ragged: Sequence[bool], index: int, delimiter: str
    ) -> BoolArray:
        """Whether quarantined rows belong to erased samples.

        Parameters
        ----------
        rows
            Texts of the rows.
        ragged
            Whether the columns of each row are unknown. Such a row counts as erased if any of its fields, or any part
            between delimiters, quotation marks and line ends, is an erased identifier.
        index
            Index of the identifier in other rows, from the end if negative.
        delimiter
            Field delimiter.

        Returns
        -------
        bool of shape (n_rows,).
        """
        texts: list[str] = []
        owners: list[int] = []
        for row, (text, is_ragged) in enumerate(zip(rows, ragged, strict=True)):
            fields = _split(text, delimiter)
            if is_ragged:
                fields += re.split(f'[{re.escape(delimiter)}"\r\n]+', text)
            else:
                fields = fields[index:][:1]
            texts += fields
            owners += [row] * len(fields)
        found = np.zeros(len(rows), np.bool_)
        found[np.array(owners, np.int64)[self.find_texts(texts)]] = True
        return found


def _split(text: str, delimiter: str) -> list[str]:
    """Split a row into fields as far as possible."""
    separator = choose_separator(delimiter)
    try:
        lines = csv.reader(
            io.StringIO(text.replace(delimiter, separator), newline=""), delimiter=separator
        )
        return [field.replace(separator, delimiter) for line in lines for field in line]
    except csv.Error:
        return text.split(delimiter)


def remove_erased(
    raw: RawRows, index: int, erased: ErasedSamples | None, delimiter: str
) -> tuple[RawRows, Identifiers, int]:
    """Remove the rows of erased samples from a batch.

    Parameters
    ----------
    raw
        The batch.
    index
        Index of the column of identifiers.
    erased
        Erased samples; None if there are none.
    delimiter
        Field delimiter of ragged rows.

    Returns
    -------
    Remaining rows, their identifiers, and the number of removed rows.
    """
    identifiers = read_identifiers(raw.batch.column(index))
    if erased is None:
        return raw, identifiers, 0
    gone = erased.find(identifiers.texts, identifiers.hashes)
    texts = [text for _, text in raw.ragged]
    torn = erased.find_in_rows(texts, [True] * len(texts), index, delimiter)
    n_gone = int(np.count_nonzero(gone)) + int(np.count_nonzero(torn))
    if n_gone:
        others = pa.array(~gone)
        ragged = tuple(row for row, mine in zip(raw.ragged, torn, strict=True) if not mine)
        batch, rows = raw.batch.filter(others), raw.rows[~gone]
        raw = replace(raw, batch=batch, rows=rows, ragged=ragged)
        identifiers = identifiers.take(np.flatnonzero(~gone))
    return raw, identifiers, n_gone
