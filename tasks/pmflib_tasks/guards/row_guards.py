"""Guards of rows, files and columns: accounts of the ingest against limits and against the last run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.counts import QUANTILE
from pmflib_tasks.guards.findings import Finding, assess, write_share

LEAST_SIBLINGS = 5
"""Files that the last run must have for their sizes to say what is usual: the spread of fewer is hardly known."""
SPREAD_FACTOR = 3.0
"""Robust standard deviations of the logarithms of the siblings' sizes that a new file may be away from their median:
a normal deviate is beyond 3 in 3 of 1,000."""
MAD_TO_DEVIATION = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""
LEAST_ROWS_OF_TWINS = 20
"""Rows that two files must have for equal bytes to mean anything: two files of one row may well be equal."""
NAMES_SHOWN = 5
"""Names that a finding lists at most."""


@dataclass(frozen=True, eq=False)
class FileChange:
    """A file that the last run did not have with these bytes.

    Parameters
    ----------
    file
        Its account; of a file that has only grown, the account of what was added.
    former
        Account of the file of the same name in the last run; None if there was none.
    grown
        Whether all that the former file had is there, and more was added.
    """

    file: FileAccount
    former: FileAccount | None = None
    grown: bool = False

    @property
    def subject(self) -> str:
        """Name for a person."""
        return f"rows added to {self.file.name}" if self.grown else self.file.name


@dataclass(frozen=True, eq=False)
class Changes:
    """How the files of a run differ from those of the last one.

    Parameters
    ----------
    new
        Files that are new, or have other bytes.
    missing
        Files of the last run whose name and bytes are both gone.
    """

    new: list[FileChange] = field(default_factory=list)
    missing: list[FileAccount] = field(default_factory=list)


def find_file_changes(files: Sequence[FileAccount], last: Sequence[FileAccount]) -> Changes:
    """Compare the files of a run with those of the last one: by bytes, then by name.

    Parameters
    ----------
    files, last
        Files of this run and of the last one; a file that was renamed is no change.
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
    """Account of what was added to a file; None if it has lost something."""
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


def assess_rows(
    account: Account,
    files: Sequence[FileAccount],
    last_account: Account | None,
    changes: Changes,
    config: QualityConfig,
) -> list[Finding]:
    """Assess the accounts of a dataset and of its files.

    Parameters
    ----------
    account, last_account
        Rows of the dataset, and of the dataset of the last run; None without a last run.
    files
        All files.
    changes
        Files that are new since the last run; without a last run, all files.
    config
        Limits.

    Returns
    -------
    Findings, also those that passed.
    """
    rows, encoded, unfit = account.rows_in, account.rows_encoded, account.rows_unfit
    share = unfit / max(rows, 1)
    said = f"{encoded:,} of {rows:,} rows were encoded"
    findings = [assess(config, "least_rows", "all rows", encoded, said)]
    said = f"{unfit:,} of {rows:,} rows do not fit: {write_share(share)}"
    findings.append(assess(config, "quarantine", "all rows", share, said))
    for reason, number in account.reasons.items():
        if reason == "duplicate" and reason not in config.reasons:
            continue
        share = number / max(rows, 1)
        said = f"{number:,} of {rows:,} rows are in quarantine for {reason}: {write_share(share)}"
        if reason == "undecodable" and number:
            said += "; is source.encoding right (`pmf check` finds it out)?"
        limits = config.reasons.get(reason)
        findings.append(assess(config, "reason", reason, share, said, limits=limits))
    for change in changes.new:
        unfit, rows = change.file.rows.rows_unfit, change.file.rows.rows_in
        least = bound_share(unfit, rows)
        said = f"{change.subject}: {unfit:,} of {rows:,} rows do not fit"
        if unfit:
            reasons = {k: n for k, n in change.file.rows.reasons.items() if k != "duplicate"}
            said += f" ({_list_counts(reasons)}): at least {write_share(least)} beyond chance"
        findings.append(assess(config, "file_quarantine", change.subject, least, said))
    findings += _check_twins(files, config)
    for change in changes.new:
        file, encoded = change.file, change.file.rows.rows_encoded
        if not encoded:
            continue
        share = file.duplicates / encoded
        said = (
            f"{change.subject}: {file.duplicates:,} of {encoded:,} rows are superseded by others: "
            f"{write_share(share)}"
        )
        if file.superseded_by:
            said += f" (by those of {_list_counts(file.superseded_by)})"
        findings.append(assess(config, "duplicates", change.subject, share, said))
    if last_account is not None:
        findings += _check_losses(account, last_account, changes, config)
    return findings


def _list_counts(counts: Mapping[str, int]) -> str:
    """Names with their counts, by falling count."""
    listed = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown = ", ".join(f"{name} {n:,}" for name, n in listed[:NAMES_SHOWN])
    return shown + (", ..." if listed[NAMES_SHOWN:] else "")


def _check_twins(files: Sequence[FileAccount], config: QualityConfig) -> list[Finding]:
    """Find files with the same bytes."""
    first: dict[str, str] = {}
    findings = []
    for file in files:
        if file.rows.rows_in < LEAST_ROWS_OF_TWINS:
            continue
        if (name := first.setdefault(file.digest, file.name)) != file.name:
            said = f"{file.name}: the same bytes as {name}, {file.rows.rows_in:,} rows"
            findings.append(assess(config, "same_bytes", file.name, 1, said))
    said = f"the bytes of {len(files)} files differ"
    return findings or [assess(config, "same_bytes", "all files", 0, said)]


def _check_losses(
    account: Account, last_account: Account, changes: Changes, config: QualityConfig
) -> list[Finding]:
    """Assess what was removed since the last run, and whether anything is new."""
    new = sum(change.file.rows.rows_encoded for change in changes.new)
    said = f"{new:,} rows encoded of {len(changes.new)} new or changed files"
    said += "" if new else ": nothing new since the last run"
    findings = [assess(config, "new_rows", "all files", new, said)]
    if config.removals_expected:
        return findings
    missing = [file.name for file in changes.missing]
    said = f"{len(missing)} files of the last run are gone"
    if missing:
        said += f": {', '.join(missing[:NAMES_SHOWN])}"
    if missing[NAMES_SHOWN:]:
        said += f" and {len(missing) - NAMES_SHOWN} more"
    findings.append(assess(config, "missing_files", "all files", len(missing), said))
    before, now = last_account.rows_encoded, account.rows_encoded
    lost = max(before - now, 0) / max(before, 1)
    said = f"{now:,} rows encoded after {before:,} in the last run"
    said += f": {write_share(lost)} fewer" if lost else ""
    return [*findings, assess(config, "rows_lost", "all rows", lost, said)]


def check_sizes(
    changes: Changes, last: Sequence[FileAccount], config: QualityConfig
) -> list[Finding]:
    """Assess the sizes of new files: against the median of the files before, or against their former selves.

    A size is unusual if it differs by more than the factor of the limit, and by more than `SPREAD_FACTOR` robust
    standard deviations of the siblings' sizes on the scale of logarithms. Files that have only grown are not assessed.
    """
    sizes = [file.rows.rows_in for file in last if file.rows.rows_in]
    findings = []
    for change in changes.new:
        rows = change.file.rows.rows_in
        if change.grown:
            continue
        if change.former is not None and change.former.rows.rows_in:
            usual, spread, what = float(change.former.rows.rows_in), 0.0, "it had in the last run"
            rows = min(rows, change.former.rows.rows_in)
        elif len(sizes) >= LEAST_SIBLINGS:
            usual, what = median(sizes), f"that {len(sizes)} files before it have in the median"
            logs = np.log(sizes)
            spread = MAD_TO_DEVIATION * float(np.median(np.abs(logs - np.median(logs))))
        else:
            continue
        factor = max(rows, 0.5) / usual
        factor = max(factor, 1 / factor)
        beyond = np.log(factor) > SPREAD_FACTOR * spread
        more = "" if beyond else ", as sizes of files vary here"
        sentence = f"{change.subject}: {change.file.rows.rows_in:,} rows after the {usual:,.0f} {what}{more}"
        measured = factor if beyond else 1.0
        findings.append(assess(config, "file_size", change.subject, measured, sentence))
    return findings


def check_columns(
    files: Sequence[FileAccount],
    changes: Changes,
    known: Collection[str] | None,
    config: QualityConfig,
) -> list[Finding]:
    """Assess the columns of new files that are not in the schema, and were not there before.

    Parameters
    ----------
    files
        All files.
    changes
        What the last run did not have; without a last run, all files are new.
    known
        Columns that files of the last run had; None without a last run: the first file then says.
    config
        Limits.

    Returns
    -------
    A finding for each new file with a new column, or one for all that none has.
    """
    before = set(files[0].ignored_columns if known is None and files else known or ())
    where = "the first file" if known is None else "the files of the last run"
    findings = []
    for change in changes.new:
        new = [name for name in change.file.ignored_columns if name not in before]
        if new:
            shown = ", ".join(map(repr, new[:NAMES_SHOWN])) + (", ..." if new[NAMES_SHOWN:] else "")
            name = change.file.name
            said = f"{name}: {len(new)} columns that {where} had not, and that are not in the schema: {shown}"
            findings.append(assess(config, "new_columns", name, len(new), said))
    said = "no file has a column that is new and not in the schema"
    return findings or [assess(config, "new_columns", "all files", 0, said)]


def bound_share(part: int, total: int) -> float:
    """Least share that is compatible with a count, at 95 % (Wilson 1927); 0 of nothing.

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
