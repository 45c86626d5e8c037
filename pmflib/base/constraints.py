"""Constraints of arguments, declared where a public function begins; functions that it calls trust what it has checked.

A message names the argument, its value, the limit, and the remedy:

>>> check(Interval(0, 1, "neither", hint="as 0.95"), level=0.9)
>>> check(at_least(1), draws=0)
Traceback (most recent call last):
    ...
pmflib.base.errors.PmfError: draws is 0; pass at least 1
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable
from types import UnionType
from typing import Any, Literal, NamedTuple

import numpy as np

from pmflib.base.arrays import name_type
from pmflib.base.errors import MemoryPlanError, PmfError, SchemaError
from pmflib.base.texts import abridge_names, suggest


class Interval(NamedTuple):
    """Numbers within bounds; NaN is within none.

    Parameters
    ----------
    least, most
        Bounds.
    closed
        Which of them belong to the interval.
    hint
        More for the message: an example, or what a bound means.
    also
        Other values that are accepted, such as None or "auto".
    whole
        Whether the number must be an integer.
    """

    least: float = -math.inf
    most: float = math.inf
    closed: Literal["left", "right", "both", "neither"] = "both"
    hint: str = ""
    also: tuple[Any, ...] = ()
    whole: bool = False

    def find(self, values: Any) -> Any:
        """Return whether each of the values is within the bounds."""
        above = values >= self.least if self.closed in ("left", "both") else values > self.least
        below = values <= self.most if self.closed in ("right", "both") else values < self.most
        return above & below

    def holds(self, value: Any) -> bool:
        """Return whether a value is within the bounds, or one of the others."""
        if value is None or isinstance(value, str):
            return value in self.also
        if self.whole and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
            return False
        try:
            return bool(self.find(value))
        except (TypeError, ValueError):
            # no number, or several
            return False

    def explain(self, value: Any = None) -> str:
        """Return what to pass instead of a value."""
        words = "a whole number" if self.whole else "a number"
        if self.most < math.inf and self.least > -math.inf:
            left = "[" if self.closed in ("left", "both") else "("
            right = "]" if self.closed in ("right", "both") else ")"
            words += f" in {left}{self.least}, {self.most}{right}"
        elif self.most < math.inf:
            words = f"at most {self.most}"
        else:
            words = "a finite number" if self.closed in ("left", "neither") else words
            if self.closed in ("right", "neither") and self.least > -math.inf:
                words += f" above {self.least}"
            elif self.least > -math.inf:
                words = (
                    f"at least {self.least}"
                    if words == "a number"
                    else f"{words} of at least {self.least}"
                )
        return (
            words
            + (self.hint and f", {self.hint}")
            + "".join(f", or {each!r}" for each in self.also)
        )


def at_least(
    least: float, hint: str = "", *, also: tuple[Any, ...] = (), whole: bool = False
) -> Interval:
    """Constrain a number from below; infinity fulfils it."""
    return Interval(least, hint=hint, also=also, whole=whole)


FINITE = Interval(closed="neither")
NONNEGATIVE = Interval(0, closed="left")


class OneOf(NamedTuple):
    """One of some names.

    Parameters
    ----------
    choices
        What is accepted.
    hint
        More for the message.
    """

    choices: Collection[Any]
    hint: str = ""

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of the choices."""
        return value in self.choices

    def explain(self, value: Any) -> str:
        """Return what to pass instead of a value, with a suggestion for a misspelt name."""
        known = [*self.choices]
        near = suggest(value, map(str, known))
        return f"one of {abridge_names(known, 12)}{near}{self.hint and f', {self.hint}'}"


def check(
    constraint: Interval | OneOf, error: type[PmfError] = PmfError, /, **values: object
) -> None:
    """Check arguments against a constraint.

    Parameters
    ----------
    constraint
        What each of the values must be.
    error
        Class of the error.
    **values
        Arguments by name.

    Raises
    ------
    PmfError
        If a value does not fulfil the constraint.
    """
    for name, value in values.items():
        if not constraint.holds(value):
            shown = f"{value!r}" if isinstance(value, str) else f"{value}"
            raise error(f"{name} is {shown}; pass {constraint.explain(value)}")


def check_entries(
    interval: Interval, error: type[PmfError] = PmfError, /, **arrays: np.ndarray[Any, Any]
) -> None:
    """Check the entries of arrays.

    Parameters
    ----------
    interval
        What each of the entries must be in.
    error
        Class of the error.
    **arrays
        Arrays by the name of the argument.

    Raises
    ------
    PmfError
        If an entry is not in the interval; the message names the first.
    """
    for name, array in arrays.items():
        if not (within := interval.find(array)).all():
            place = np.argwhere(~within)[0].tolist()
            raise error(f"{name}{place or ''} is {array[tuple(place)]}; pass {interval.explain()}")


def check_shapes(
    hint: str = "",
    error: type[PmfError] = SchemaError,
    /,
    **arrays: tuple[Any, tuple[int | str, ...]],
) -> None:
    """Check the shapes of arrays, among which sizes of one name are equal.

    Parameters
    ----------
    hint
        What to pass, for the message.
    error
        Class of the error.
    **arrays
        By name of the argument, the array and its sizes: numbers, or names such as "rank".

    Raises
    ------
    PmfError
        If an array has another number of axes, or another size.

    Examples
    --------
    >>> check_shapes(prior=(np.ones(2), ("rank",)), factors=(np.ones((7, 2)), (7, "rank")))
    """
    found: dict[int | str, int] = {}
    for name, (array, sizes) in arrays.items():
        fits = array.ndim == len(sizes) and all(
            found.setdefault(size, each) == each if isinstance(size, str) else size == each
            for size, each in zip(sizes, array.shape, strict=False)
        )
        if not fits:
            others = [
                f"{each} {array.shape}" for each, (array, _) in arrays.items() if each != name
            ]
            shown = ", ".join(map(str, sizes)) + ("," if len(sizes) == 1 else "")
            beside = f" beside {' and '.join(others)}" if others else ""
            raise error(
                f"{name} has shape {array.shape}{beside}, not ({shown}){hint and f'; {hint}'}"
            )


def check_size(number: float, most: float, what: str, hint: str) -> None:
    """Check that something is not too large to be computed.

    Parameters
    ----------
    number, most
        Its size, and the limit.
    what
        What is counted, for the message, as "entries of prior and factors".
    hint
        What to do instead.

    Raises
    ------
    MemoryPlanError
        If the number is above the limit.
    """
    if number > most:
        raise MemoryPlanError(f"there are {number:,} {what}, above {most:,}; {hint}")


def check_rows(n_rows: int, **columns: Any) -> None:
    """Check that columns have as many rows as the samples.

    Raises
    ------
    PmfError
        If a column, by the name of its argument, has another number of rows; None has none.
    """
    for name, column in columns.items():
        own = len(column) if hasattr(column, "__len__") else getattr(column, "n_rows", n_rows)
        if own != n_rows:
            raise PmfError(f"{name} has {own} rows and samples {n_rows}; pass one of each row")


def check_type(
    kind: type | UnionType, hint: str, error: type[PmfError] = PmfError, /, **values: object
) -> None:
    """Check the type of arguments.

    Raises
    ------
    PmfError
        If a value is not an instance of the class.
    """
    for name, value in values.items():
        if not isinstance(value, kind):
            raise error(f"{name} is {name_type(value)}; {hint}")


def check_schemas(**owners: Any) -> None:
    """Check that objects have one schema.

    Parameters
    ----------
    **owners
        Schemas, or objects that have one, by the name of the argument.

    Raises
    ------
    SchemaError
        If two of them have different schemas.
    """
    if len({getattr(owner, "schema", owner).digest for owner in owners.values()}) > 1:
        raise SchemaError(f"{' and '.join(owners)} have different schemas; take all from one run")


def check_distinct(names: Iterable[Any], what: str, error: type[PmfError] = SchemaError) -> None:
    """Check that no name occurs twice.

    Raises
    ------
    PmfError
        If one does; the message begins with ``what``, as "variables".
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise error(f"{what} named more than once: {abridge_names(twice)}; name each once")
