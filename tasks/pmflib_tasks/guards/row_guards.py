"""Guards of rows, files and columns: accounts of the ingest against limits and against the last run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.file_accounts import FileAccount
from pmflib_tasks.config import QualityConfig
from pmflib_tasks.guards.findings import Finding, assess, write_share
from pmflib_tasks.guards.homogeneity import QUANTILE

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
"""New columns of a file that a finding names."""


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
        Rows of the dataset and of that of the last run. None without a last run.
    files
        All files.
    changes
        What the last run did not have; without a last run, all files are new.
    config
        Limits.

    Returns
    -------
    Findings, also those that passed.
    """
    findings = _check_quarantine(account, config)
    findings += [_check_file_quarantine(change, config) for change in changes.new]
    findings += [
        *_check_twins(files, config),
        *(
            _check_duplicates(change, config)
            for change in changes.new
            if change.file.rows.rows_encoded
        ),
    ]
    if last_account is not None:
        findings += _check_losses(account, last_account, changes, config)
    return findings


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
        findings.append(assess("file_size", change.subject, measured, config.file_size, sentence))
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
    findings = []
    for change in changes.new:
        new = [name for name in change.file.ignored_columns if name not in before]
        if new:
            shown = ", ".join(map(repr, new[:NAMES_SHOWN])) + (", ..." if new[NAMES_SHOWN:] else "")
            where = "the first file" if known is None else "the files of the last run"
            what = f"{len(new)} columns that {where} had not, and that are not in the schema"
            sentence = f"{change.file.name}: {what}: {shown}"
            limits = config.new_columns
            findings.append(assess("new_columns", change.file.name, len(new), limits, sentence))
    if not findings:
        sentence = "no file has a column that is new and not in the schema"
        findings.append(assess("new_columns", "all files", 0, config.new_columns, sentence))
    return findings


def check_reason(reason: str, account: Account, config: QualityConfig) -> Finding:
    """Assess the rows that are in quarantine for one reason.

    Parameters
    ----------
    reason
        One of ``REASONS``.
    account
        Rows of the dataset.
    config
        Limits.
    """
    rows, number = account.rows_in, account.reasons[reason]
    share = number / max(rows, 1)
    sentence = f"{number:,} of {rows:,} rows are in quarantine for {reason}: {write_share(share)}"
    if reason == "undecodable" and number:
        sentence += "; is source.encoding right (`pmf check` finds it out)?"
    return assess("reason", reason, share, config.reasons.get(reason, config.reason), sentence)


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


def _check_quarantine(account: Account, config: QualityConfig) -> list[Finding]:
    rows, encoded, unfit = account.rows_in, account.rows_encoded, account.rows_unfit
    share = unfit / max(rows, 1)
    findings = [
        assess(
            "least_rows",
            "all rows",
            encoded,
            config.least_rows,
            f"{encoded:,} of {rows:,} rows were encoded",
            least=True,
        ),
        assess(
            "quarantine",
            "all rows",
            share,
            config.quarantine,
            f"{unfit:,} of {rows:,} rows do not fit: {write_share(share)}",
        ),
    ]
    for reason in account.reasons:
        if reason == "duplicate" and reason not in config.reasons:
            continue
        findings.append(check_reason(reason, account, config))
    return findings


def _check_file_quarantine(change: FileChange, config: QualityConfig) -> Finding:
    file = change.file
    unfit = file.rows.rows_unfit
    least = bound_share(unfit, file.rows.rows_in)
    named = [(n, reason) for reason, n in file.rows.reasons.items() if reason != "duplicate"]
    why = ", ".join(f"{reason} {n:,}" for n, reason in sorted(named, reverse=True))
    sentence = f"{change.subject}: {unfit:,} of {file.rows.rows_in:,} rows do not fit" + (
        f" ({why}): at least {write_share(least)} beyond chance" if unfit else ""
    )
    return assess("file_quarantine", change.subject, least, config.file_quarantine, sentence)


def _check_duplicates(change: FileChange, config: QualityConfig) -> Finding:
    file = change.file
    share = file.duplicates / file.rows.rows_encoded
    by = sorted(file.superseded_by.items(), key=lambda each: (-each[1], each[0]))
    shown = ", ".join(f"{name} {n:,}" for name, n in by[:NAMES_SHOWN]) + (
        ", ..." if by[NAMES_SHOWN:] else ""
    )
    sentence = (
        f"{change.subject}: {file.duplicates:,} of {file.rows.rows_encoded:,} rows are superseded by others: "
        f"{write_share(share)}" + (f" (by those of {shown})" if shown else "")
    )
    return assess("duplicates", change.subject, share, config.duplicates, sentence)


def _check_twins(files: Sequence[FileAccount], config: QualityConfig) -> list[Finding]:
    first: dict[str, str] = {}
    findings = []
    for file in files:
        if file.rows.rows_in < LEAST_ROWS_OF_TWINS:
            continue
        if (name := first.setdefault(file.digest, file.name)) != file.name:
            sentence = f"{file.name}: the same bytes as {name}, {file.rows.rows_in:,} rows"
            findings.append(assess("same_bytes", file.name, 1, config.same_bytes, sentence))
    if not findings:
        sentence = f"the bytes of {len(files)} files differ"
        findings.append(assess("same_bytes", "all files", 0, config.same_bytes, sentence))
    return findings


def _check_losses(
    account: Account,
    last_account: Account,
    changes: Changes,
    config: QualityConfig,
) -> list[Finding]:
    """Assess what is gone since the last run, and whether anything is new."""
    new = sum(change.file.rows.rows_encoded for change in changes.new)
    sentence = f"{new:,} rows encoded of {len(changes.new)} new or changed files" + (
        "" if new else ": nothing new since the last run"
    )
    findings = [assess("new_rows", "all files", new, config.new_rows, sentence, least=True)]
    if config.removals_expected:
        return findings
    missing = [file.name for file in changes.missing]
    shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    sentence = f"{len(missing)} files of the last run are gone" + (f": {shown}" if shown else "")
    findings.append(
        assess("missing_files", "all files", len(missing), config.missing_files, sentence)
    )
    before, now = last_account.rows_encoded, account.rows_encoded
    lost = max(before - now, 0) / max(before, 1)
    sentence = f"{now:,} rows encoded after {before:,} in the last run" + (
        f": {write_share(lost)} fewer" if lost else ""
    )
    findings.append(assess("rows_lost", "all rows", lost, config.rows_lost, sentence))
    return findings
