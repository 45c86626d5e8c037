"""Columns of raw files that are no variables, as texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pmflib.ingest.identifiers import as_binary


def read_texts(column: pa.Array) -> pa.StringArray:
    """Texts of a column of a raw file.

    Parameters
    ----------
    column
        Arrow values of any type that is read from files.

    Returns
    -------
    Texts of the same length; null where there is none, or it does not decode.
    """
    texts = as_binary(column)
    texts = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decode(text) for text in texts.to_pylist()], pa.string())


def _decode(text: bytes | None) -> str | None:
    try:
        return None if text is None else text.decode("utf-8")
    except UnicodeDecodeError:
        return None
