"""Values of CSV files once rows are cut: delimiters within quotation marks, decimal commas."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pmflib.config import SourceConfig
from pmflib.ingest.utf8_stream import CUT

DECIMAL_COMMA = r"^(\s*[+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?\s*)$"
"""A text that is wholly a number with a decimal comma."""


def restore_values(
    columns: Sequence[pa.BinaryArray], names: Sequence[str], config: SourceConfig
) -> list[pa.BinaryArray]:
    """Give values the delimiters back that they hold, and numbers a decimal point.

    Parameters
    ----------
    columns, names
        Binary, of length n_rows each, and their names.
    config
        Delimiter, sign before the decimals, and the columns of names, whose values are no numbers.
    """
    out = list(columns)
    if len(config.delimiter) > 1:
        out = [pc.replace_substring(each, CUT.encode(), config.separator.encode()) for each in out]
    if config.decimal == ",":
        identifiers = {config.sample, config.variable}
        out = [
            each
            if name in identifiers
            else pc.replace_substring_regex(each, DECIMAL_COMMA.encode(), rb"\1.\2")
            for name, each in zip(names, out, strict=True)
        ]
    return out
