"""Guards of rows, files and columns: the accounts of the ingest, and how they changed since the last run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from pmflib.base.display.summary import percent
from pmflib.base.texts import abridge_names, list_some
from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.counts import QUANTILE
from pmflib_tasks.guards.findings import Measurement

LEAST_SIBLINGS = 5
"""Minimum number of earlier files or nights to compare with: the spread of fewer is hardly known."""
SPREAD_FACTOR = 3.0
"""Robust standard deviations by which a value may differ from the median of earlier ones: a normal deviate exceeds 3 in
3 of 1,000 cases."""
MAD_TO_DEVIATION = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""
LEAST_ROWS_OF_TWINS = 20
"""Minimum number of rows of two equal files: shorter files may be equal by chance."""
NAMES_SHOWN = 5
"""Maximum number of names that a finding lists."""


@dataclass(frozen=True, eq=False)
class FileChange:
    """A file whose bytes no file of the last run had.

    Parameters
    ----------
    file
        Its account; for a file that has only grown, the account of the added rows.
    former
        Account of the file of the same name in the last run; None if there was none.
    grown
        Whether the file has everything that the former file had, and more.
    """

    file: FileAccount
    former: FileAccount | None = None
    grown: bool = False

    @property
    def subject(self) -> str:
        """Name of the file, or of the rows added to it, for people."""
        return f"rows added to {self.file.name}" if self.grown else self.file.name


@dataclass(frozen=True, eq=False)
class Changes:
    """Differences between the files of a run and those of the last run.

    Parameters
    ----------
    new
        Files that are new, or have other bytes.
    missing
        Files of the last run of which neither the name nor the bytes are left.
    """

    new: list[FileChange] = field(default_factory=list)
    missing: list[FileAccount] = field(default_factory=list)


def find_file_changes(files: Sequence[FileAccount], last: Sequence[FileAccount]) -> Changes:
    """Compare the files of a run with those of the last run, by bytes and then by name.

    Parameters
    ----------
    files, last
        Files of this run and of the last run; a renamed file is no change.
    """
    bytes_before, names_before = {file.digest for file in last}, {file.name: file for file in last}
    bytes_now, names_now = {file.digest for file in files}, {file.name for file in files}
    new = []
    for file in files:
        if file.digest in bytes_before:
            continue
        former = names_before.get(file.name)
        added = None if former is None else _subtract(file, former)
        new.append(FileChange(file if added is None else added, former, added is not None))
    missing = [each for each in last if each.digest not in bytes_now and each.name not in names_now]
    return Changes(new, missing)


def _subtract(file: FileAccount, former: FileAccount) -> FileAccount | None:
    """Compute the account of the rows added to a file; None if it has lost anything."""
    if file.level_counts.shape != former.level_counts.shape:
        return None
    rows, counts = file.rows - former.rows, file.level_counts - former.level_counts
    if min(rows.rows_in, rows.rows_encoded, *rows.reasons.values(), counts.min(initial=0)) < 0:
        return None
    return replace(
        file,
        rows=replace(rows, reasons=+rows.reasons),
        level_counts=counts,
        duplicates=max(file.duplicates - former.duplicates, 0),
        forms=Counter(file.forms) - Counter(former.forms),
    )


def measure_rows(
    account: Account,
    files: Sequence[FileAccount],
    last_account: Account | None,
    changes: Changes,
    config: QualityConfig,
) -> Iterator[Measurement]:
    """Measure the accounts of a dataset and of its files.

    Parameters
    ----------
    account, last_account
        Rows of the dataset, and of the dataset of the last run; None without a last run.
    files
        All files.
    changes
        Files that are new since the last run; without a last run, all files.
    config
        Section with limits by reason, and whether removals are expected.
    """
    rows, encoded, unfit = account.rows_in, account.rows_encoded, account.rows_unfit
    said = f"{encoded:,} of {rows:,} rows were encoded"
    yield Measurement("least_rows", "all rows", encoded, said)
    share = unfit / max(rows, 1)
    said = f"{unfit:,} of {rows:,} rows do not fit: {percent(share)}"
    yield Measurement("quarantine", "all rows", share, said)
    for reason, number in account.reasons.items():
        if reason == "duplicate" and reason not in config.reasons:
            continue
        share = number / max(rows, 1)
        said = f"{number:,} of {rows:,} rows are in quarantine for {reason}: {percent(share)}"
        if reason == "undecodable" and number:
            said += "; is source.encoding right (`pmf check` finds it out)?"
        yield Measurement("reason", reason, share, said, config.reasons.get(reason))
    for change in changes.new:
        unfit, rows = change.file.rows.rows_unfit, change.file.rows.rows_in
        least = bound_share(unfit, rows)
        said = f"{change.subject}: {unfit:,} of {rows:,} rows do not fit"
        if unfit:
            reasons = {k: n for k, n in change.file.rows.reasons.items() if k != "duplicate"}
            said += f" ({_list_counts(reasons)}): at least {percent(least)} beyond chance"
        yield Measurement("file_quarantine", change.subject, least, said)
    yield from _find_equal_bytes(files)
    for change in changes.new:
        file, encoded = change.file, change.file.rows.rows_encoded
        if not encoded:
            continue
        share = file.duplicates / encoded
        said = (
            f"{change.subject}: {file.duplicates:,} of {encoded:,} rows are superseded by others: "
            f"{percent(share)}"
        )
        if file.superseded_by:
            said += f" (by those of {_list_counts(file.superseded_by)})"
        yield Measurement("duplicates", change.subject, share, said)
    if last_account is not None:
        yield from _measure_losses(account, last_account, changes, config)


def _list_counts(counts: Mapping[str, int]) -> str:
    """List names with their counts, by falling count."""
    listed = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return list_some([f"{name} {n:,}" for name, n in listed], NAMES_SHOWN)


def _find_equal_bytes(files: Sequence[FileAccount]) -> list[Measurement]:
    first: dict[str, str] = {}
    found = []
    for file in files:
        if file.rows.rows_in < LEAST_ROWS_OF_TWINS:
            continue
        if (name := first.setdefault(file.digest, file.name)) != file.name:
            said = f"{file.name}: the same bytes as {name}, {file.rows.rows_in:,} rows"
            found.append(Measurement("same_bytes", file.name, 1, said))
    said = f"no two of {len(files)} files have the same bytes"
    return found or [Measurement("same_bytes", "all files", 0, said)]


def _measure_losses(
    account: Account, last_account: Account, changes: Changes, config: QualityConfig
) -> Iterator[Measurement]:
    """Measure what was removed since the last run, and whether anything is new."""
    new = sum(change.file.rows.rows_encoded for change in changes.new)
    said = f"{new:,} rows encoded from {len(changes.new)} new or changed files"
    said += "" if new else ": nothing new since the last run"
    yield Measurement("new_rows", "all files", new, said)
    if config.removals_expected:
        return
    missing = [file.name for file in changes.missing]
    said = f"{len(missing)} files of the last run are gone"
    said += f": {list_some(missing, NAMES_SHOWN)}" if missing else ""
    yield Measurement("missing_files", "all files", len(missing), said)
    before, now = last_account.rows_encoded, account.rows_encoded
    lost = max(before - now, 0) / max(before, 1)
    said = f"{now:,} rows encoded after {before:,} in the last run"
    said += f": {percent(lost)} fewer" if lost else ""
    yield Measurement("rows_lost", "all rows", lost, said)


def measure_sizes(changes: Changes, last: Sequence[FileAccount]) -> Iterator[Measurement]:
    """Compare the size of each new file with the median of the earlier files, or with its own former size.

    A size is unusual if it differs by more than the factor of the limit, and by more than `SPREAD_FACTOR` robust
    standard deviations of the logarithms of the earlier sizes. Files that have only grown are skipped.
    """
    sizes = [file.rows.rows_in for file in last if file.rows.rows_in]
    for change in changes.new:
        rows = change.file.rows.rows_in
        if change.grown:
            continue
        if change.former is not None and change.former.rows.rows_in:
            usual, spread, what = float(change.former.rows.rows_in), 0.0, "in the last run"
            rows = min(rows, change.former.rows.rows_in)
        elif len(sizes) >= LEAST_SIBLINGS:
            usual, what = median(sizes), f"in the median of {len(sizes)} earlier files"
            logs = np.log(sizes)
            spread = MAD_TO_DEVIATION * float(np.median(np.abs(logs - np.median(logs))))
        else:
            continue
        factor = max(rows, 0.5) / usual
        factor = max(factor, 1 / factor)
        beyond = np.log(factor) > SPREAD_FACTOR * spread
        more = "" if beyond else ", within the usual variation"
        sentence = f"{change.subject}: {change.file.rows.rows_in:,} rows, against {usual:,.0f} {what}{more}"
        measured = factor if beyond else 1.0
        yield Measurement("file_size", change.subject, measured, sentence)


def measure_superseded(rows: int, superseded: Mapping[bool, int]) -> Measurement:
    """Measure the share of new rows that change nothing because earlier rows supersede them.

    Parameters
    ----------
    rows
        Encoded rows of new files.
    superseded
        Number of them that earlier rows supersede, by whether they agree with these. Rows that agree count only if all
        rows are superseded.
    """
    n_differ, n_all = superseded.get(False, 0), sum(superseded.values())
    share = bound_share(n_differ, rows)
    if n_all == rows >= LEAST_ROWS_OF_TWINS:
        share = 1.0
    said = f"{n_all:,} of {rows:,} rows of new files are superseded by earlier rows, {n_differ:,} with other answers"
    return Measurement("superseded_rows", "all new files", share, said)


def find_new_columns(
    files: Sequence[FileAccount], changes: Changes, known: Collection[str] | None
) -> list[Measurement]:
    """Find columns of new files that are neither in the schema nor in earlier files.

    Parameters
    ----------
    files
        All files.
    changes
        Files that are new since the last run; without a last run, all files.
    known
        Columns of the files of the last run; None without a last run, for those of the first file.

    Returns
    -------
    A measurement for each new file with a new column, or one for all files if there is none.
    """
    before = set(files[0].ignored_columns if known is None and files else known or ())
    where = "the first file" if known is None else "the files of the last run"
    found = []
    for change in changes.new:
        new = [name for name in change.file.ignored_columns if name not in before]
        if new:
            name, shown = change.file.name, abridge_names(new, NAMES_SHOWN)
            said = f"{name}: {len(new)} columns neither in the schema nor in {where}: {shown}"
            found.append(Measurement("new_columns", name, len(new), said))
    said = "no file has a new column outside the schema"
    return found or [Measurement("new_columns", "all files", 0, said)]


def bound_share(part: int, total: int) -> float:
    """Compute the lower confidence bound of a share at 95 %; 0 if the total is 0.

    References
    ----------
    Wilson (1927), "Probable inference, the law of succession, and statistical inference", Journal of the American
    Statistical Association 22: the lower end of the score interval.
    """
    if not total:
        return 0.0
    share, square = part / total, QUANTILE**2
    middle = share + square / (2 * total)
    width = QUANTILE * np.sqrt(share * (1 - share) / total + square / (4 * total**2))
    return float(max(middle - width, 0.0) / (1 + square / total))
