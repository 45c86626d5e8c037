"""Accounts: no row may vanish between a file and the samples made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pmflib.errors import StoreError
from pmflib.ingest.quarantine import REASONS


@dataclass
class Account:
    """Numbers of rows that one stage took in, encoded, passed over and rejected.

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

    def summarise(self, **more: Any) -> dict[str, Any]:
        """Totals as plain JSON types.

        Raises
        ------
        StoreError
            If rows in are not rows encoded, left out, erased and quarantined.
        """
        summary: dict[str, Any] = {
            "rows_in": self.rows_in,
            "rows_encoded": self.rows_encoded,
            "rows_left_out": self.rows_left_out,
            "rows_erased": self.rows_erased,
            "rows_quarantined": self.reasons.total(),
            "reasons": {reason: self.reasons[reason] for reason in REASONS if self.reasons[reason]},
            "cells_made_missing": dict(sorted(self.cells_made_missing.items())),
        }
        _check(summary, "a stage of the ingest")
        return summary | more


def combine_accounts(
    spill_summaries: Sequence[Mapping[str, Any]],
    assembly_summaries: Sequence[Mapping[str, Any]],
    rows_outside: int = 0,
) -> dict[str, Any]:
    """Add up the accounts of a dataset that was spilled file by file and assembled bucket by bucket.

    Rows of files enter when they are spilled. Rows that the spills encoded enter the assemblies: over all files and all
    buckets, the two numbers are equal. Both passes put rows in quarantine; the dataset holds the rows that the
    assemblies encoded.

    Parameters
    ----------
    spill_summaries
        Summaries of all files; none where files were encoded without being spilled.
    assembly_summaries
        Summaries of all buckets, or of all files encoded without being spilled; what an earlier dataset assembled and
        this one still holds counts as one of them: see `carry_account`.
    rows_outside
        Rows that the files encoded and no assembly took in, for they are older than the window.

    Returns
    -------
    rows_in, rows_encoded, rows_left_out, rows_outside, rows_erased, rows_quarantined, reasons, cells_made_missing,
    samples, observed
    and blocks of the dataset.

    Raises
    ------
    StoreError
        If the equation does not hold: a bucket is missing, or counted twice.
    """
    spilled = sum(summary["rows_encoded"] for summary in spill_summaries)
    assembled = sum(summary["rows_in"] for summary in assembly_summaries)
    if spill_summaries and spilled != assembled + rows_outside:
        raise StoreError(
            f"{spilled} rows were spilled, but {assembled} were assembled; "
            "assemble every bucket exactly once, from the spills of all files"
        )
    both = [*spill_summaries, *assembly_summaries]
    reasons: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    for summary in both:
        reasons.update(summary["reasons"])
        cells.update(summary["cells_made_missing"])
    total: dict[str, Any] = {
        "rows_in": sum(s["rows_in"] for s in spill_summaries or assembly_summaries),
        "rows_encoded": sum(summary["rows_encoded"] for summary in assembly_summaries),
        "rows_left_out": sum(summary["rows_left_out"] for summary in both),
        "rows_outside": rows_outside,
        "rows_erased": sum(summary["rows_erased"] for summary in both),
        "rows_quarantined": sum(summary["rows_quarantined"] for summary in both),
        "reasons": {reason: reasons[reason] for reason in REASONS if reasons[reason]},
        "cells_made_missing": dict(sorted(cells.items())),
    }
    for key in ("samples", "observed", "blocks"):
        total[key] = sum(summary[key] for summary in assembly_summaries)
    _check(total, "the dataset")
    return total


def carry_account(base: Mapping[str, Any], lost: Mapping[str, int]) -> dict[str, Any]:
    """Account of what is left of an earlier dataset's samples.

    Parameters
    ----------
    base
        Account of the earlier dataset, from `combine_accounts`.
    lost
        rows, duplicates, observed and samples: what its superseded samples were made of.

    Returns
    -------
    A summary like those of assemblies, with 0 blocks.
    """
    account = Account(rows_encoded=base["rows_encoded"] - lost["rows"] + lost["duplicates"])
    account.reasons["duplicate"] = base["reasons"].get("duplicate", 0) - lost["duplicates"]
    account.rows_in = account.rows_encoded + account.reasons["duplicate"]
    left = {key: base[key] - lost[key] for key in ("samples", "observed")}
    return account.summarise(**left, blocks=0)


def _check(summary: Mapping[str, Any], where: str) -> None:
    parts = ("rows_encoded", "rows_left_out", "rows_erased", "rows_quarantined")
    out = sum(summary[part] for part in parts) + summary.get("rows_outside", 0)
    if summary["rows_in"] != out or sum(summary["reasons"].values()) != summary["rows_quarantined"]:
        raise StoreError(
            f"rows of {where} do not add up: {summary['rows_in']} entered, {summary['rows_encoded']} were encoded, "
            f"{summary['rows_left_out']} left out, {summary['rows_erased']} erased, "
            f"{summary['rows_quarantined']} put in quarantine; "
            "do not use the result, and report this as a defect"
        )
