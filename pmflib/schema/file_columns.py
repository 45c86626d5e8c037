"""What files say of their columns, such as those of SPSS, Stata and SAS: labels of codes, and codes for missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pmflib.base.texts import natural_key
from pmflib.schema.value_counts import ValueCounts
from pmflib.schema.variable import as_text, read_number

Code = float | str
"""Code of a value: a number, a text, or, of a missing number, its letter with a point: ".a"."""


@dataclass(frozen=True)
class FileColumn:
    """What a file says of a column.

    Parameters
    ----------
    label
        Description of the variable; may be empty.
    measure
        "nominal", "ordinal" or "scale"; empty if unknown.
    texts
        Text of each labelled code, all distinct: its label, followed by the code if another code has the same label.
    missing
        Codes that are declared missing one by one.
    ranges
        Ranges of numbers that are declared missing, with their ends.
    is_number
        Whether the codes are numbers, but for the letters of missing ones.
    is_weight
        Whether the file weights its cases by the column.
    notes
        Multiple-response sets of the file that begin with the column, described.
    """

    label: str = ""
    measure: str = ""
    texts: Mapping[Code, str] = field(default_factory=dict)
    missing: tuple[Code, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    is_number: bool = True
    is_weight: bool = False
    notes: tuple[str, ...] = ()

    def is_missing(self, code: Code) -> bool:
        """Whether a code is declared missing; letters of missing numbers are listed as such by their files."""
        return code in self.missing or (
            not isinstance(code, str) and any(low <= code <= high for low, high in self.ranges)
        )

    @property
    def labelled(self) -> tuple[Code, ...]:
        """Labelled codes that are not missing: letters last, numbers and texts in order."""
        return tuple(code for code in self.texts if not self.is_missing(code))

    def name_code(self, code: Code, by_label: bool) -> str | None:
        """Text of a code; None for one without a label in a range that is declared missing."""
        if code not in self.texts and code not in self.missing and self.is_missing(code):
            return None
        return self.texts.get(code, as_text(code)) if by_label else as_text(code)

    @cached_property
    def _codes(self) -> Mapping[str, Code]:
        return {text: code for code, text in self.texts.items()}

    def find_code(self, text: str) -> Code | None:
        """Code of a text, which is a label or a code without one; None if it is neither."""
        if text in self._codes or not self.is_number:
            return self._codes.get(text, text)
        return text if text in self.missing else read_number(text)


def declare_levels(counted: ValueCounts, column: FileColumn) -> None:
    """Declare the levels of a column whose labels were counted: in the order of their codes, which scales mean."""
    codes: dict[str, str] = {text: as_text(code) for code, text in column.texts.items()}
    apart = {as_text(code) for code in column.texts if column.is_missing(code)}
    apart |= {"", *map(as_text, column.missing)}
    texts = dict.fromkeys([*codes, *counted.counts])
    levels = [text for text in texts if codes.get(text, text) not in apart]
    if column.labelled:
        levels.sort(key=lambda text: _order_code(codes.get(text) or text))
        counted.declare(levels, is_ordered=column.measure in ("ordinal", "scale"))


def _order_code(code: str) -> tuple[bool, float, Any]:
    number = read_number(code)
    return number is None, number or 0.0, natural_key(code)
