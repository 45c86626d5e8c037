"""Names for the array types in signatures; docstrings give shapes and ranges."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.signedinteger[Any]]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
StrataArray: TypeAlias = npt.NDArray[np.int32]

Parameters: TypeAlias = tuple[FloatArray, FloatArray]
"""Prior (rank,) and factors (n_levels, rank)."""
