"""Accounts: no row may vanish between a file and the samples made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from pmflib.core.errors import StoreError
from pmflib.core.weights import WeightSums
from pmflib.ingest.options import REASONS
from pmflib.store.sample_writer import WrittenSamples

TimeFormat: TypeAlias = Literal["number", "instant"]
"""How times of a log are written: as numbers, or as ISO 8601."""


@dataclass(frozen=True)
class Account:
    """Numbers of rows that one stage took in, encoded, skipped and rejected; ``Account()`` is the zero of sums.

    Parameters
    ----------
    rows_in
        Rows that entered the stage.
    rows_encoded
        Rows that were encoded.
    rows_left_out
        Rows of variables that the schema leaves out on purpose: they are counted, and not kept.
    rows_erased
        Rows of samples that were erased from the store, and that raw files still hold: they are counted, and not kept.
    reasons
        Number of rows in quarantine, by reason.
    cells_made_missing
        Number of values that are no level and count as missing, by variable.
    """

    rows_in: int = 0
    rows_encoded: int = 0
    rows_left_out: int = 0
    rows_erased: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    cells_made_missing: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_json(cls, summary: Mapping[str, Any]) -> Account:
        """Account that a summary was made of, or that of a whole dataset."""
        return cls(
            **{key: summary[key] for key in _ROWS},
            reasons=Counter(summary["reasons"]),
            cells_made_missing=Counter(summary["cells_made_missing"]),
        )

    def __add__(self, other: Account) -> Account:
        """Account of both stages; a variable keeps its 0 of cells."""
        return self._join(other, Counter.update, 1)

    def __sub__(self, other: Account) -> Account:
        """Account of what this stage has beyond another; numbers may be negative."""
        return self._join(other, Counter.subtract, -1)

    def _join(self, other: Account, join: Callable[..., None], sign: int) -> Account:
        reasons, cells = self.reasons.copy(), self.cells_made_missing.copy()
        join(reasons, other.reasons)
        join(cells, other.cells_made_missing)
        rows = {key: getattr(self, key) + sign * getattr(other, key) for key in _ROWS}
        return Account(**rows, reasons=reasons, cells_made_missing=cells)

    @property
    def rows_quarantined(self) -> int:
        """Rows in quarantine, for any reason."""
        return self.reasons.total()

    @property
    def rows_unfit(self) -> int:
        """Rows that do not fit: in quarantine, those apart that only repeat others."""
        return sum(n for reason, n in self.reasons.items() if reason != "duplicate")

    def list_reasons(self) -> dict[str, int]:
        """Rows in quarantine by reason, in the order of `REASONS`; none of a reason that no row has."""
        return {reason: self.reasons[reason] for reason in REASONS if self.reasons[reason]}

    def to_json(self) -> dict[str, object]:
        """Totals as plain JSON types.

        Raises
        ------
        StoreError
            If rows in are not rows encoded, left out, erased and quarantined.
        """
        return self._balance("a stage of the ingest")

    def _balance(self, where: str, **outside: int) -> dict[str, object]:
        """Totals, once they add up; rows older than the window are outside of what was encoded."""
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
    """Times of the rows of a file.

    Parameters
    ----------
    oldest, newest
        In the unit of the log; None where no row has a time.
    format
        How they are written; None where no row has one.
    """

    oldest: float | None
    newest: float | None
    format: TimeFormat | None

    def join(self, other: TimeSpan | None) -> TimeSpan:
        """Times of this file and of another, or another part of it."""
        if other is None or other.oldest is None or other.newest is None:
            return self
        if self.oldest is None or self.newest is None:
            return other
        oldest, newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        return TimeSpan(oldest, newest, self.format)


@dataclass(frozen=True)
class StepSummary:
    """What the manifest says of one step of the ingest: of a file that was encoded, or of samples that were assembled.

    Parameters
    ----------
    account
        Rows that it took in, and where they went.
    file
        Name of the file; None of samples of several.
    ignored_columns
        Columns of the file that are not read; None of samples of several.
    times
        Times of the rows of a long file; None of other steps.
    written
        Samples that were written; None of a step that writes none.
    forms
        Rows of a file by the form of their identifiers: see `pmflib.ingest.dataset.identifiers.count_forms`; None of
        other steps.
    """

    account: Account
    file: str | None = None
    ignored_columns: Sequence[str] | None = None
    times: TimeSpan | None = None
    written: WrittenSamples | None = None
    forms: Mapping[str, int] | None = None

    @classmethod
    def from_json(cls, summary: Mapping[str, Any]) -> StepSummary:
        """Build a summary from what `to_json` gives.

        Raises
        ------
        KeyError
            If a number of rows is not there.
        """
        times = None
        if "newest" in summary:
            times = TimeSpan(summary["oldest"], summary["newest"], summary["time"])
        return cls(
            Account.from_json(summary),
            summary.get("name"),
            summary.get("ignored_columns"),
            times,
            WrittenSamples(*(summary[key] for key in _WRITTEN)) if "samples" in summary else None,
            summary.get("forms"),
        )

    def to_json(self) -> dict[str, object]:
        """Plain JSON types, for the manifest; what a step does not have has no key.

        Raises
        ------
        StoreError
            If the rows do not add up.
        """
        content = self.account.to_json()
        if self.file is not None:
            content["name"] = self.file
        if self.ignored_columns is not None:
            content["ignored_columns"] = list(self.ignored_columns)
        if self.times is not None:
            content["oldest"], content["newest"] = self.times.oldest, self.times.newest
            content["time"] = self.times.format
        if self.forms is not None:
            content["forms"] = dict(sorted(self.forms.items()))
        return content if self.written is None else content | asdict(self.written)


@dataclass(frozen=True)
class DatasetAccount(Account):
    """Account of a whole dataset: what its manifest entry says, and the record of a run in section "rows".

    Parameters
    ----------
    rows_in, rows_encoded, rows_left_out, rows_erased, reasons, cells_made_missing
        As in `Account`; the rows encoded are those that the dataset holds.
    rows_outside
        Rows that files encoded and the dataset does not hold, for they are older than its window.
    samples, observed, blocks
        Its samples, their observed cells, and their blocks.
    files_skipped
        Files that cannot be read and were passed over, each with the reason.
    weights
        What the weights of its samples add up to; None where they have none.
    """

    rows_outside: int = 0
    samples: int = 0
    observed: int = 0
    blocks: int = 0
    files_skipped: Mapping[str, str] = field(default_factory=dict)
    weights: WeightSums | None = None

    @classmethod
    def from_json(cls, summary: Mapping[str, Any]) -> DatasetAccount:
        """Build an account from what `to_json` gives; a number that an earlier version did not write is 0."""
        numbers = (*_ROWS, "rows_outside", *_WRITTEN)
        return cls(
            **{key: int(summary.get(key, 0)) for key in numbers},
            reasons=Counter(summary.get("reasons", {})),
            cells_made_missing=Counter(summary.get("cells_made_missing", {})),
            files_skipped=summary.get("files_skipped", {}),
            weights=WeightSums.from_json(summary["weights"]) if "weights" in summary else None,
        )

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> DatasetAccount | None:
        """Account among the facts of a run; None where the run ended before it had one."""
        rows = facts.get("rows")
        return cls.from_json(rows) if rows else None

    def to_json(self) -> dict[str, object]:
        """Plain JSON types.

        Raises
        ------
        StoreError
            If rows in are not rows encoded, left out, outside, erased and quarantined.
        """
        content = self._balance("the dataset", rows_outside=self.rows_outside)
        content |= {key: getattr(self, key) for key in _WRITTEN}
        return content | {"files_skipped": dict(sorted(self.files_skipped.items()))}


_WRITTEN = ("samples", "observed", "blocks")


def add_weights(content: Mapping[str, Any], weights: WeightSums | None) -> dict[str, Any]:
    """Account of a dataset in plain JSON types, with what the weights of its samples add up to, if they have any."""
    return {**content, **({} if weights is None else {"weights": weights.to_json()})}


def combine_accounts(
    spilled: Sequence[StepSummary],
    assembled: Sequence[StepSummary],
    rows_outside: int = 0,
    *,
    files_skipped: Mapping[str, str] | None = None,
) -> DatasetAccount:
    """Add up the accounts of a dataset that was spilled file by file and assembled bucket by bucket.

    Rows of files enter when they are spilled. Rows that the spills encoded enter the assemblies: over all files and all
    buckets, the two numbers are equal. Both passes put rows in quarantine; the dataset holds the rows that the
    assemblies encoded.

    Parameters
    ----------
    spilled
        Summaries of all files; none where files were encoded without being spilled.
    assembled
        Summaries of all buckets, or of all files encoded without being spilled; what an earlier dataset assembled and
        this one still holds counts as one of them: see `carry_account`.
    rows_outside
        Rows that the files encoded and no assembly took in, for they are older than the window.
    files_skipped
        Files that were passed over, each with the reason; None is none.

    Raises
    ------
    StoreError
        If the equation does not hold: a bucket is missing, or counted twice.
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
    # refuses rows that do not add up
    total.to_json()
    return total


def carry_account(base: DatasetAccount, lost: Mapping[str, int]) -> StepSummary:
    """Summary of what is left of an earlier dataset's samples, as if they were assembled, in 0 blocks.

    Parameters
    ----------
    base
        Account of the earlier dataset.
    lost
        rows, duplicates, conflicts, observed and samples: what its superseded samples were made of.
    """
    left_rows = {
        reason: base.reasons[reason] - lost[f"{reason}s"] for reason in ("duplicate", "conflict")
    }
    encoded = base.rows_encoded - lost["rows"] + lost["duplicates"] + lost["conflicts"]
    account = Account(encoded + sum(left_rows.values()), encoded, reasons=Counter(left_rows))
    left = WrittenSamples(base.samples - lost["samples"], base.observed - lost["observed"], 0)
    return StepSummary(account, written=left)
