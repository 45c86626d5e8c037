"""Screening of rows that do not fit the schema: quarantine, or an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.errors import SchemaError, SourceError
from pmflib.ingest.chunks import RawRows
from pmflib.ingest.dataset.accounts import Account
from pmflib.ingest.dataset.quarantine import RejectedRow, field_text, raw_text
from pmflib.ingest.options import REASONS, SchemaOptions, SourceOptions
from pmflib.ingest.sources import Source
from pmflib.schema import Variable

FINE = len(REASONS)
"""Decision for valid rows; other decisions are indices of ``REASONS``, of which the smallest prevails."""

PROBLEMS = {
    "ragged": "has too few or too many fields, or text after a closing quotation mark",
    "undecodable": "is not UTF-8",
    "no_sample": "is no sample identifier: it is empty",
    "unknown_variable": "is no variable of the schema",
    "bad_time": "is no time in the format of this column: a number, or ISO 8601",
    "no_unit": "names no stratum or sampling unit: it is empty",
    "bad_weight": "is no weight: a number above 0, of which at least half a unit and less than 2**53 units are kept; a "
    "replicate weight may be 0",
}
"""Text of an error, by reason; errors about unknown levels are made from the variable."""


class RowDecisions:
    """Decisions about the rows of one batch.

    Parameters
    ----------
    n_rows
        Number of rows, all valid at first.
    """

    def __init__(self, n_rows: int) -> None:
        self.reasons: npt.NDArray[np.uint8] = np.full(n_rows, FINE, np.uint8)
        self._columns: npt.NDArray[np.int32] = np.zeros(n_rows, np.int32)

    def mark(self, where: BoolArray, reason: str, column: int) -> None:
        """Mark rows as invalid, unless an earlier decision prevails.

        Parameters
        ----------
        where
            Mask of the rows, bool of shape (n_rows,).
        reason
            One of ``REASONS``.
        column
            Index of the column at fault in the batch.
        """
        code = REASONS.index(reason)
        worse = where & (self.reasons > code)
        self.reasons[worse] = code
        self._columns[worse] = column

    @property
    def fits(self) -> BoolArray:
        """Mask of valid rows, bool of shape (n_rows,)."""
        fits: BoolArray = self.reasons == FINE
        return fits

    def get(self, row: int) -> tuple[str, int]:
        """Reason and column of an invalid row."""
        return REASONS[self.reasons[row]], int(self._columns[row])


class Screen:
    """Quarantines the invalid rows of a file, or raises an error, and keeps the account.

    Parameters
    ----------
    source
        The file.
    config, policy
        Layout of the file, and policy for rows that do not fit.
    reject
        Called with each quarantined row, such as `QuarantineWriter.add`; by default they are discarded.
    """

    def __init__(
        self,
        source: Source,
        config: SourceOptions,
        policy: SchemaOptions,
        reject: Callable[[RejectedRow], None] = lambda row: None,
    ) -> None:
        self.account = Account()
        self._source = source
        self._delimiter = config.separator
        self._sample = config.sample
        self._policy = policy
        self._reject = reject

    def leave_out(self, n_rows: int) -> None:
        """Count rows of variables that the schema leaves out."""
        self.account += Account(n_rows, rows_left_out=n_rows)

    def count_erased(self, n_rows: int) -> None:
        """Count rows of erased samples."""
        self.account += Account(n_rows, rows_erased=n_rows)

    def count_cells(self, cells: Mapping[str, int]) -> None:
        """Count unknown levels made missing, by variable."""
        self.account += Account(cells_made_missing=Counter(cells))

    def sift(
        self, raw: RawRows, decisions: RowDecisions, variable_of: Callable[[int, int], Variable]
    ) -> IntArray:
        """Reject invalid rows in the order of the file.

        Parameters
        ----------
        raw
            The batch.
        decisions
            Decisions about its rows.
        variable_of
            Returns the variable of an unknown level, given the indices of row and column in the batch.

        Returns
        -------
        Indices of the valid rows in the batch, int64.

        Raises
        ------
        SourceError, SchemaError
            If a row is invalid and the policy is to stop.
        """
        reasons: Counter[str] = Counter()
        for broken in self._list_broken(raw, decisions, variable_of):
            self._refuse(broken)
            self._reject(
                (self._source.name, broken.number, broken.reason, broken.column, broken.raw)
            )
            reasons[broken.reason] += 1
        kept = np.flatnonzero(decisions.fits)
        n_rows = raw.batch.num_rows + len(raw.ragged)
        self.account += Account(n_rows, kept.size, reasons=reasons)
        return kept

    def _list_broken(
        self, raw: RawRows, decisions: RowDecisions, variable_of: Callable[[int, int], Variable]
    ) -> list[_Broken]:
        """List invalid rows in the order of the file."""
        out = [_Broken(number, "ragged", None, text, text) for number, text in raw.ragged]
        bad = np.flatnonzero(~decisions.fits)
        if bad.size:
            names = raw.batch.schema.names
            fields = zip(*raw.batch.take(pa.array(bad)).to_pydict().values(), strict=True)
            for row, values in zip(bad.tolist(), fields, strict=True):
                reason, column = decisions.get(row)
                text = raw_text(values, self._delimiter)
                broken = _Broken(
                    int(raw.rows[row]), reason, names[column], field_text(values[column]), text
                )
                if reason == "unknown_level":
                    broken = replace(broken, variable=variable_of(row, column))
                out.append(broken)
        return sorted(out, key=lambda broken: broken.number)

    def _refuse(self, broken: _Broken) -> None:
        """Raise an error about an invalid row if the policy is to stop."""
        where = f"{self._source.name}, row {broken.number}"
        if broken.column is not None:
            where += f", column {broken.column!r}"
        # errors are recorded in the history, which must not contain identifiers
        names = broken.column in (None, self._sample) and broken.reason != "no_sample"
        shown = "it" if names else repr(broken.value[:200])
        if broken.variable is not None:
            if self._policy.on_unknown_level == "error":
                known = broken.variable.list_known()
                raise SchemaError(
                    f"{where}: {shown} is no level of {broken.variable.name!r}; {known}. Correct the file, add the "
                    "level to the schema, or set schema.on_unknown_level to 'quarantine' or 'missing'"
                )
        elif self._policy.on_malformed == "error":
            error = SchemaError if broken.reason == "unknown_variable" else SourceError
            raise error(
                f"{where}: {shown} {PROBLEMS[broken.reason]}. "
                "Correct the file, or set schema.on_malformed to 'quarantine'"
            )


@dataclass(frozen=True)
class _Broken:
    """An invalid row; ``variable`` is that of an unknown level."""

    number: int
    reason: str
    column: str | None
    value: str
    raw: str
    variable: Variable | None = None
