"""What files of SPSS, Stata and SAS say of their columns, and the codes of levels in such files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from pmflib.schema.variable import Variable, as_text, read_number

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


def describe_variable(variable: Variable, declared: FileColumn = FileColumn()) -> FileColumn:
    """Give every level of a variable a code.

    Levels keep the codes that their file declares, numbers are their own codes, and levels of other variables have
    their values as codes. Whatever has none of these, such as bins, is numbered by the smallest free integers.

    Parameters
    ----------
    variable
        The variable.
    declared
        What the file of its column says.
    """
    levels = variable.levels
    if variable.edges is not None or variable.part is not None:
        declared = FileColumn(declared.label)
    values = None if declared.texts else variable.values
    found: list[Code | None] = [*(values or map(declared.find_code, levels))]
    if len({*found} - {None}) < sum(code is not None for code in found):
        declared, found = FileColumn(declared.label), [None] * len(levels)
    used = {*declared.texts, *declared.missing, *found}
    free = (number for number in count(1) if number not in used)
    codes = [next(free) if code is None else code for code in found]
    own = {code: level for code, level in zip(codes, levels, strict=True) if as_text(code) != level}
    return replace(
        declared,
        measure=declared.measure or ("scale" if variable.edges else variable.role),
        texts={**declared.texts, **own},
        # new codes may be in a range that is declared missing
        ranges=() if None in found else declared.ranges,
    )
