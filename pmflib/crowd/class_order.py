"""Whether classes are in an order that somebody has given."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pmflib.errors import SchemaError
from pmflib.schema.variable import as_text, read_number

SHOWN = 6
"""Classes that an error names."""


def check_class_order(classes: Sequence[object], *, given: bool) -> None:
    """Check that classes are in order: as they were given, or as numbers.

    Parameters
    ----------
    classes
        Names of the classes, in their order.
    given
        Whether the order is somebody's choice.

    Raises
    ------
    SchemaError
        If it is not, and the names are no increasing numbers.
    """
    numbers = [read_number(as_text(name)) for name in classes]
    rising = all(a is not None and b is not None and a < b for a, b in pairwise(numbers))
    if given or (rising and None not in numbers):
        return
    raise SchemaError(
        f"ordinal is true, but nothing says how the classes {list(classes)[:SHOWN]} are ordered; give classes from the "
        "lowest to the highest"
    )
