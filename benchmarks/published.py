"""The papers' tables, as the reference file has them."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.data import DATA

REFERENCE = DATA.parent / "reference" / "joint-pmf.csv"


def read_published(path: Path, table: int, metric: str, column: str = "") -> dict[str, float]:
    """Published values by the name of the method; none where the file is not there.

    Parameters
    ----------
    path
        The reference file.
    table
        Number of the table.
    metric
        MSE, MRE, seconds, accuracy %, rmse or mae.
    column
        A word of the setting that a table of several columns names it by.
    """
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            row["algorithm"]: float(row["value"])
            for row in csv.DictReader(file)
            if row["table"] == f"jp-{table}"
            and row["metric"] == metric
            and row["value"]
            and column in ["", *row["setting"].split()]
        }
