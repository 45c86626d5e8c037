"""Accounts of scores: what became of every row, of one part of the predictions, of a file, and of all files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pmflib.core.errors import StoreError
from pmflib.ingest.dataset.accounts import Account, DatasetAccount
from pmflib.model.measures import TargetSums
from pmflib.scoring.unknown_levels import Counts, UnknownLevels, add_counts
from pmflib.store.table_files import ACCOUNT


@dataclass(frozen=True)
class PartAccount:
    """Rows of one part of predictions, or of several; a part holds its own, so that it is known without its rows.

    Parameters
    ----------
    account
        Rows read, scored ("encoded"), and rejected by reason.
    sums
        How good the predictions of each target are.
    is_last
        Whether the chunk ends with it.
    observed
        Cells of rows scored that hold a level, by variable.
    unknown
        Cells of rows scored that hold none, by variable and value: see `pmflib.scoring.unknown_levels`.
    """

    account: Account
    sums: tuple[TargetSums, ...]
    is_last: bool = False
    observed: Counter[str] = field(default_factory=Counter)
    unknown: Counts = field(default_factory=dict)

    @classmethod
    def zero(cls, n_targets: int) -> PartAccount:
        """Account of no rows."""
        return cls(Account(), (TargetSums(),) * n_targets)

    def __add__(self, other: PartAccount) -> PartAccount:
        """Account of both, of which the other comes later."""
        sums = map(TargetSums.merge, zip(self.sums, other.sums, strict=True))
        return PartAccount(
            self.account + other.account,
            tuple(sums),
            other.is_last,
            self.observed + other.observed,
            add_counts(self.unknown, other.unknown),
        )

    def to_bytes(self) -> bytes:
        """JSON text, for the metadata of the part."""
        sums = [asdict(each) for each in self.sums]
        # values as pairs, in the order in which they were met
        unknown = {column: list(counts.items()) for column, counts in self.unknown.items()}
        content = self.account.to_json() | {
            "sums": sums,
            "is_last": self.is_last,
            "observed": dict(self.observed),
            "unknown": unknown,
        }
        return json.dumps(content, sort_keys=True).encode()

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
            sums = tuple(TargetSums(**each) for each in known["sums"])
            unknown = {column: dict(pairs) for column, pairs in known["unknown"].items()}
            observed = Counter(known["observed"])
            return cls(Account.from_json(known), sums, known["is_last"], observed, unknown)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise StoreError(
                f"{path.name} is no finished part of predictions ({error}); delete it, and run again"
            ) from error


@dataclass(frozen=True)
class ScoreAccount:
    """What became of the rows of files that were scored.

    Parameters
    ----------
    samples
        Samples that were scored.
    rows
        Rows by what became of them, with the keys of `pmflib.ingest.dataset.accounts.DatasetAccount`: "rows_in" and
        "rows_quarantined"; of rows that were sorted into samples, all of them.
    reasons, cells_made_missing
        Rows in quarantine by reason, and values by variable that are no level and count as missing.
    unknown
        The values that count as missing, by variable and value.
    targets, measures
        Variables that were predicted, and `pmflib.model.measures.TargetSums.measure` of each.
    parts
        Number of files of scores.
    targets_absent
        Files without a column of a target, by target.
    files_skipped
        Files that cannot be read and were passed over, each with the reason; None where none may be.
    """

    samples: int
    rows: Mapping[str, int]
    reasons: Mapping[str, int]
    cells_made_missing: Mapping[str, int]
    unknown: Counts
    targets: Sequence[str]
    measures: Mapping[str, Mapping[str, float]]
    parts: int
    targets_absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files_skipped: Mapping[str, str] | None = None

    @classmethod
    def of_dataset(
        cls,
        dataset: DatasetAccount,
        n_samples: int,
        unknown: Counts,
        measures: Mapping[str, Mapping[str, float]],
        parts: int,
    ) -> ScoreAccount:
        """Account of rows that were sorted into samples.

        Parameters
        ----------
        dataset
            What became of the rows.
        n_samples, unknown, measures, parts
            As above; the targets are those of the measures.
        """
        # all of them, so that a reader sees that they add up
        content: Any = dataset.to_json()
        rows = {name: n for name, n in content.items() if name.startswith("rows_")}
        cells = {name: n for name, n in sorted(dataset.cells_made_missing.items()) if n}
        return cls(
            *(n_samples, rows, dataset.list_reasons(), cells, unknown, list(measures), measures),
            parts,
            files_skipped=dataset.files_skipped,
        )

    def to_json(self) -> dict[str, object]:
        """Plain JSON types."""
        skipped = self.files_skipped
        return {
            "samples": self.samples,
            **self.rows,
            "reasons": dict(self.reasons),
            "cells_made_missing": dict(self.cells_made_missing),
            "unknown_levels": {
                name: UnknownLevels(n_cells, self.unknown.get(name, {})).to_json()
                for name, n_cells in self.cells_made_missing.items()
            },
            "targets": list(self.targets),
            "targets_absent": {name: list(files) for name, files in self.targets_absent.items()},
            "measures": dict(self.measures),
            "parts": self.parts,
            **({} if skipped is None else {"files_skipped": dict(sorted(skipped.items()))}),
        }


def combine_parts(
    parts: Sequence[PartAccount],
    targets: Sequence[str],
    files_skipped: Mapping[str, str],
    targets_absent: Mapping[str, Sequence[str]],
) -> ScoreAccount:
    """Account of all parts.

    Parameters
    ----------
    parts
        In order.
    targets
        Names of the targets.
    files_skipped
        Files that have no part, each with the reason.
    targets_absent
        Files without a column of a target, by target.

    Raises
    ------
    StoreError
        If rows in are not rows scored and quarantined, or a target was not predicted in all rows scored.
    """
    whole = sum(parts, PartAccount.zero(len(targets)))
    account = whole.account
    # refuses rows that do not add up
    account.to_json()
    for target, sums in zip(targets, whole.sums, strict=True):
        if sums.judged + sums.missing != account.rows_encoded:
            raise StoreError(
                f"{target!r} was predicted in {sums.judged + sums.missing} of {account.rows_encoded} rows that were "
                "scored; do not use the result, and report this as a defect"
            )
    return ScoreAccount(
        account.rows_encoded,
        {"rows_in": account.rows_in, "rows_quarantined": account.rows_quarantined},
        account.list_reasons(),
        dict(sorted(account.cells_made_missing.items())),
        whole.unknown,
        targets,
        {t: sums.measure() for t, sums in zip(targets, whole.sums, strict=True)},
        len(parts),
        targets_absent,
        files_skipped,
    )
