"""The type of arrays of codes, by which they differ from arrays of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np


class Codes(np.ndarray[Any, Any]):
    """Codes of answers: the position of each answer among the levels of its variable, -1 where it is missing.

    `pmflib.Schema.encode` returns them. In an array of any other type numbers are answers: 3 is the level "3", not the
    fourth level. Slices, selected rows, and what `numpy.concatenate`, `numpy.vstack` and `numpy.where` make of codes
    alone are codes; what is computed from them is a plain array.

    Parameters
    ----------
    codes
        Integers of any shape, which are neither copied nor checked: a schema does so when it reads them.

    Examples
    --------
    >>> codes = Codes([[0, 2], [-1, 0]])
    >>> type(codes[1:]).__name__, type(codes >= 0).__name__
    ('Codes', 'ndarray')
    """

    def __new__(cls, codes: object) -> Codes:
        """View an array, or what becomes one, as codes."""
        return np.asarray(codes).view(cls)

    def __array_wrap__(
        self, array: Any, context: object = None, return_scalar: bool = False
    ) -> Any:
        """Return what a ufunc computed from codes, which are no codes."""
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __array_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[Any],
        args: Iterable[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Apply a function of NumPy; codes that it joins stay codes."""
        found = super().__array_function__(func, types, args, kwargs)
        if func not in (np.concatenate, np.vstack, np.where) or not isinstance(found, np.ndarray):
            return found
        first, *choices = args
        parts = choices if func is np.where else first
        are_codes = all(isinstance(each, Codes | int | np.integer) for each in parts)
        return found.view(Codes if are_codes else np.ndarray)
