"""Accounts of parts of predictions: each holds its own, so that what was finished is known without reading it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.errors import StoreError
from pmflib.ingest.accounts import Account
from pmflib.model.target_measures import TargetSums
from pmflib.table_files import ACCOUNT


@dataclass
class PartAccount:
    """Rows of one part.

    Parameters
    ----------
    account
        Rows read, scored ("encoded"), and rejected by reason.
    sums
        How good the predictions of each target are.
    is_last
        Whether the piece ends with it.
    """

    account: Account = field(default_factory=Account)
    sums: list[TargetSums] = field(default_factory=list)
    is_last: bool = False

    def add(self, account: Account, sums: Sequence[TargetSums]) -> None:
        """Add a batch."""
        self.account.rows_in += account.rows_in
        self.account.rows_encoded += account.rows_encoded
        self.account.reasons += account.reasons
        self.account.cells_made_missing += account.cells_made_missing
        self.sums = [TargetSums.merge(pair) for pair in zip(self.sums, sums, strict=True)]

    def to_bytes(self) -> bytes:
        """JSON text, for the metadata of the part."""
        summary = self.account.summarise(
            sums=[asdict(each) for each in self.sums], is_last=self.is_last
        )
        return json.dumps(summary, sort_keys=True).encode()

    @classmethod
    def read(cls, path: Path) -> PartAccount:
        """Account of a part that was written.

        Raises
        ------
        StoreError
            If the file is no part.
        """
        try:
            known = json.loads((pq.read_metadata(path).metadata or {})[ACCOUNT])
            account = Account(
                known["rows_in"],
                known["rows_encoded"],
                reasons=Counter(known["reasons"]),
                cells_made_missing=Counter(known["cells_made_missing"]),
            )
            return cls(account, [TargetSums(**each) for each in known["sums"]], known["is_last"])
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise StoreError(
                f"{path.name} is no finished part of predictions ({error}); delete it, and run again"
            ) from error


def combine_parts(parts: Sequence[PartAccount], targets: Sequence[str]) -> dict[str, Any]:
    """Account of all parts.

    Parameters
    ----------
    parts
        In order.
    targets
        Names of the targets.

    Returns
    -------
    rows_in, samples (rows scored), rows_quarantined, reasons, cells_made_missing, and measures: for each target those
    of `TargetSums.measure`. Rows in are rows scored and rows in quarantine.

    Raises
    ------
    StoreError
        If rows in are not rows scored and quarantined.
    """
    whole = PartAccount(sums=[TargetSums()] * len(targets))
    for part in parts:
        whole.add(part.account, part.sums)
    summary = whole.account.summarise()
    return {
        "samples": summary["rows_encoded"],
        **{
            key: summary[key]
            for key in ("rows_in", "rows_quarantined", "reasons", "cells_made_missing")
        },
        "targets": list(targets),
        "measures": {t: sums.measure() for t, sums in zip(targets, whole.sums, strict=True)},
    }
