"""True labels in one file: Parquet or CSV, by suffix."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIXES = (".csv", ".parquet")


def write_one_file(labels: Path, file: Path) -> None:
    """Join the label tables of all partitions, in the order of the tasks, and put the file in place whole.

    Parameters
    ----------
    labels
        Folder with a Parquet file per partition.
    file
        A name with one of ``SUFFIXES``; a file of that name is replaced.
    """
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pq.read_table(labels).sort_by("task")
    fresh = file.with_name(f".{file.name}.part")
    try:
        if file.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, fresh)
        else:
            pq.write_table(table, fresh, compression="zstd")
        os.replace(fresh, file)
    finally:
        fresh.unlink(missing_ok=True)
