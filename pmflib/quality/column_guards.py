"""Guard of columns: those that files begin to have, and nothing reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pmflib.config import QualityConfig
from pmflib.quality.findings import Finding, judge
from pmflib.quality.row_guards import Changes, FileAccount

NAMES_SHOWN = 5
"""New columns of a file that a finding names."""


def check_columns(
    files: Sequence[FileAccount],
    changes: Changes,
    known: Collection[str] | None,
    config: QualityConfig,
) -> list[Finding]:
    """Judge the columns of new files that are not in the schema, and were not there before.

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
            findings.append(judge("new_columns", change.file.name, len(new), limits, sentence))
    if not findings:
        sentence = "no file has a column that is new and not in the schema"
        findings.append(judge("new_columns", "all files", 0, config.new_columns, sentence))
    return findings
