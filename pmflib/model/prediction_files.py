"""Predictions in one file, CSV or Parquet by its suffix."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pmflib.errors import ConfigError

SUFFIXES = (".csv", ".parquet")
"""Suffixes of files that can be written."""


def check_suffix(path: Path) -> None:
    """Refuse a file that can not be written, by its suffix.

    Raises
    ------
    ConfigError
        If the suffix is none of ``SUFFIXES``.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"output is {str(path)!r}; its suffix says what is written: name a file .csv or .parquet"
        )


def write_predictions(folder: Path, path: Path) -> int:
    """Write the predictions of all partitions to one file, each partition in the order of its rows.

    Parameters
    ----------
    folder
        Folder of Parquet files, one per partition.
    path
        File to write, replaced if it is there; its folder is made.

    Returns
    -------
    Number of rows.

    Raises
    ------
    ConfigError
        If the suffix is neither .csv nor .parquet.
    """
    check_suffix(path)
    parts = sorted(folder.glob("part-*.parquet"))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, n_rows = path.with_name(f".{path.name}.draft"), 0
    schema = pq.read_schema(parts[0])
    is_csv = path.suffix.lower() == ".csv"
    try:
        with (
            pa.csv.CSVWriter(draft, schema) if is_csv else pq.ParquetWriter(draft, schema)
        ) as writer:
            for part in parts:
                table = pq.read_table(part).sort_by("row")
                writer.write_table(table)
                n_rows += table.num_rows
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return n_rows
