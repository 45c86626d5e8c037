"""Accounts of rows, which guarantee that no row is lost between files and samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pmflib.base.errors import StoreError
from pmflib.base.json_records import Form, JsonRecord
from pmflib.base.weights import WeightSums
from pmflib.ingest.options import REASONS
from pmflib.store.sample_writer import WrittenSamples

TimeFormat: TypeAlias = Literal["number", "instant"]
"""Format of the times of a log: numbers, or instants in ISO 8601."""


@dataclass(frozen=True)
class Account:
    """Numbers of rows read, encoded, skipped and quarantined by one stage; ``Account()`` is the zero of sums.

    Parameters
    ----------
    rows_in
        Rows that the stage has read.
    rows_encoded
        Rows that it has encoded.
    rows_left_out
        Rows of variables that the schema leaves out, which are only counted.
    rows_erased
        Rows of erased samples still in the raw files, which are only counted.
    reasons
        Rows in quarantine by reason.
    cells_made_missing
        Unknown levels that count as missing, by variable.
    """

    rows_in: int = 0
    rows_encoded: int = 0
    rows_left_out: int = 0
    rows_erased: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    cells_made_missing: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_json(cls, summary: Mapping[str, Any]) -> Account:
        """Read the account of a summary."""
        return cls(
            **{key: summary[key] for key in _ROWS},
            reasons=Counter(summary["reasons"]),
            cells_made_missing=Counter(summary["cells_made_missing"]),
        )

    def __add__(self, other: Account) -> Account:
        """Add two accounts; variables with zero cells are kept."""
        return self._join(other, Counter.update, 1)

    def __sub__(self, other: Account) -> Account:
        """Subtract an account; numbers may become negative."""
        return self._join(other, Counter.subtract, -1)

    def _join(self, other: Account, join: Callable[..., None], sign: int) -> Account:
        reasons, cells = self.reasons.copy(), self.cells_made_missing.copy()
        join(reasons, other.reasons)
        join(cells, other.cells_made_missing)
        rows = {key: getattr(self, key) + sign * getattr(other, key) for key in _ROWS}
        return Account(**rows, reasons=reasons, cells_made_missing=cells)

    @property
    def rows_quarantined(self) -> int:
        """Number of rows in quarantine."""
        return self.reasons.total()

    @property
    def rows_unfit(self) -> int:
        """Number of invalid rows: those in quarantine except duplicates."""
        return sum(n for reason, n in self.reasons.items() if reason != "duplicate")

    def list_reasons(self) -> dict[str, int]:
        """Rows in quarantine by reason, in the order of `REASONS`, without zeros."""
        return {reason: self.reasons[reason] for reason in REASONS if self.reasons[reason]}

    def to_json(self) -> dict[str, object]:
        """Totals as plain JSON types.

        Raises
        ------
        StoreError
            If the numbers of rows do not add up.
        """
        return self._balance("a stage of the ingest")

    def _balance(self, where: str, **outside: int) -> dict[str, object]:
        """Check that the rows add up, including those outside the window, and return the totals."""
        quarantined = self.rows_quarantined
        reasons = self.list_reasons()
        out = self.rows_encoded + self.rows_left_out + self.rows_erased + quarantined
        if self.rows_in != out + sum(outside.values()) or sum(reasons.values()) != quarantined:
            raise StoreError(
                f"rows of {where} do not add up: {self.rows_in} entered, {self.rows_encoded} were encoded, "
                f"{self.rows_left_out} left out, {self.rows_erased} erased, "
                f"{quarantined} put in quarantine; "
                "do not use the result, and report this as a defect"
            )
        return {
            "rows_in": self.rows_in,
            "rows_encoded": self.rows_encoded,
            "rows_left_out": self.rows_left_out,
            **outside,
            "rows_erased": self.rows_erased,
            "rows_quarantined": quarantined,
            "reasons": reasons,
            "cells_made_missing": dict(sorted(self.cells_made_missing.items())),
        }


_ROWS = ("rows_in", "rows_encoded", "rows_left_out", "rows_erased")


@dataclass(frozen=True)
class TimeSpan:
    """Time span of the rows of a file.

    Parameters
    ----------
    oldest, newest
        Times in the unit of the log; None if no row has one.
    format
        Format of times; None if no row has one.
    """

    oldest: float | None
    newest: float | None
    format: Annotated[TimeFormat | None, "time"]

    def join(self, other: TimeSpan | None) -> TimeSpan:
        """Join the time span of another file or part."""
        if other is None or other.oldest is None or other.newest is None:
            return self
        if self.oldest is None or self.newest is None:
            return other
        oldest, newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        return TimeSpan(oldest, newest, self.format)


@dataclass(frozen=True)
class StepSummary(JsonRecord):
    """Summary of one step of dataset building in the manifest: an encoded file, or assembled samples.

    Parameters
    ----------
    account
        Account of its rows.
    file
        Name of the file; None for assembled samples.
    ignored_columns
        Unused columns of the file; None for assembled samples.
    times
        Time span of a long file; None for other steps.
    forms
        Rows of a file by form of the identifier: see `pmflib.ingest.dataset.identifiers.count_forms`; None for other
        steps.
    written
        Numbers of samples written; None for spills.
    """

    account: Annotated[Account, Form.FLAT]
    file: Annotated[str | None, Form.GIVEN, "name"] = None
    ignored_columns: Annotated[Sequence[str] | None, Form.GIVEN] = None
    times: Annotated[TimeSpan | None, Form.FLAT] = None
    forms: Annotated[Mapping[str, int] | None, Form.GIVEN] = None
    written: Annotated[WrittenSamples | None, Form.FLAT] = None


@dataclass(frozen=True)
class DatasetAccount(Account):
    """Account of a dataset, in its manifest entry and in section "rows" of the record of a run.

    Parameters
    ----------
    rows_in, rows_encoded, rows_left_out, rows_erased, reasons, cells_made_missing
        As in `Account`; encoded rows are those in the dataset.
    rows_outside
        Encoded rows that are older than the window.
    samples, observed, blocks
        Numbers of samples, observed cells and blocks.
    files_skipped
        Reason for each file that could not be read and was skipped, by name.
    weights
        Sums of the sample weights; None without weights.
    """

    rows_outside: int = 0
    samples: int = 0
    observed: int = 0
    blocks: int = 0
    files_skipped: Mapping[str, str] = field(default_factory=dict)
    weights: WeightSums | None = None

    @classmethod
    def from_json(cls, summary: Mapping[str, Any]) -> DatasetAccount:
        """Read an account; numbers that an earlier version did not write are 0."""
        numbers = (*_ROWS, "rows_outside", *_WRITTEN)
        return cls(
            **{key: int(summary.get(key, 0)) for key in numbers},
            reasons=Counter(summary.get("reasons", {})),
            cells_made_missing=Counter(summary.get("cells_made_missing", {})),
            files_skipped=summary.get("files_skipped", {}),
            weights=WeightSums.from_json(summary["weights"]) if "weights" in summary else None,
        )

    def to_json(self) -> dict[str, object]:
        """Plain JSON types.

        Raises
        ------
        StoreError
            If the numbers of rows do not add up.
        """
        content = self._balance("the dataset", rows_outside=self.rows_outside)
        content |= {key: getattr(self, key) for key in _WRITTEN}
        return content | {"files_skipped": dict(sorted(self.files_skipped.items()))}


_WRITTEN = ("samples", "observed", "blocks")


def add_weights(content: Mapping[str, Any], weights: WeightSums | None) -> dict[str, Any]:
    """Add the sums of weights, if there are any, to an account in plain JSON types."""
    return {**content, **({} if weights is None else {"weights": weights.to_json()})}


def combine_accounts(
    spilled: Sequence[StepSummary],
    assembled: Sequence[StepSummary],
    rows_outside: int = 0,
    *,
    files_skipped: Mapping[str, str] | None = None,
) -> DatasetAccount:
    """Add up the accounts of a dataset that was spilled file by file and assembled bucket by bucket.

    The rows encoded by all spills must equal the rows read by all assemblies. Both passes quarantine rows; the dataset
    consists of the rows encoded by the assemblies.

    Parameters
    ----------
    spilled
        Summaries of all spills; empty if files were encoded directly.
    assembled
        Summaries of all assemblies, including that of samples kept from an earlier dataset (see `carry_account`); or of
        all files, if they were encoded directly.
    rows_outside
        Spilled rows that are older than the window.
    files_skipped
        Reason for each skipped file, by name.

    Raises
    ------
    StoreError
        If the numbers differ: a bucket is missing, or was counted twice.
    """
    first, second = (
        sum((each.account for each in summaries), Account()) for summaries in (spilled, assembled)
    )
    if spilled and first.rows_encoded != second.rows_in + rows_outside:
        raise StoreError(
            f"{first.rows_encoded} rows were spilled, but {second.rows_in} were assembled; "
            "assemble every bucket exactly once, from the spills of all files"
        )
    both, nothing = first + second, WrittenSamples(0, 0, 0)
    written = [each.written or nothing for each in assembled]
    total = DatasetAccount(
        rows_in=(first if spilled else second).rows_in,
        rows_encoded=second.rows_encoded,
        rows_left_out=both.rows_left_out,
        rows_erased=both.rows_erased,
        reasons=both.reasons,
        cells_made_missing=both.cells_made_missing,
        rows_outside=rows_outside,
        samples=sum(each.samples for each in written),
        observed=sum(each.observed for each in written),
        blocks=sum(each.blocks for each in written),
        files_skipped=files_skipped or {},
    )
    # checks that the rows add up
    total.to_json()
    return total


def carry_account(base: DatasetAccount, lost: Mapping[str, int]) -> StepSummary:
    """Summary of the samples kept from an earlier dataset, as if they were assembled, with no blocks.

    Parameters
    ----------
    base
        Account of the earlier dataset.
    lost
        Sums over its superseded samples: rows, duplicates, conflicts, observed and samples.
    """
    left_rows = {
        reason: base.reasons[reason] - lost[f"{reason}s"] for reason in ("duplicate", "conflict")
    }
    encoded = base.rows_encoded - lost["rows"] + lost["duplicates"] + lost["conflicts"]
    account = Account(encoded + sum(left_rows.values()), encoded, reasons=Counter(left_rows))
    left = WrittenSamples(base.samples - lost["samples"], base.observed - lost["observed"], 0)
    return StepSummary(account, written=left)
