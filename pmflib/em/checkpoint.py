"""Checkpoints: a state of arrays in a file, which is gone on from only by the fit that it is of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from pmflib.core.arrays import Arrays
from pmflib.core.errors import PmfError
from pmflib.store.checkpoints import load_arrays, save_arrays

S = TypeVar("S")

OF_FIT = "of_fit"
"""Name of the array that says which fit a state is of."""


@dataclass(frozen=True)
class Checkpoint(Generic[S]):
    """A state of a fit in a file; one that is interrupted continues from it, to the same bits.

    Parameters
    ----------
    path
        The file.
    fit
        Digest of all that the state depends on, as from `digest_fit`: samples, options, and the model it starts from.
    pack, unpack
        Arrays of a state, and the state from them.
    """

    path: Path
    fit: str
    pack: Callable[[S], Arrays]
    unpack: Callable[[Arrays], S]

    def load(self) -> S | None:
        """Read the state that was saved last; None if there is none that can be used, or nobody answers for it.

        Raises
        ------
        PmfError
            If it is one of another fit: to go on from there would mix the two.
        """
        arrays = load_arrays(self.path)
        if arrays is None or OF_FIT not in arrays:
            return None
        if str(arrays.pop(OF_FIT)) != self.fit:
            raise PmfError(
                f"checkpoint {str(self.path.parent)!r} holds states of another fit, of other samples or options, or of "
                "an earlier version; give each fit a folder of its own, or delete that one"
            )
        try:
            return self.unpack(arrays)
        except KeyError as error:
            raise PmfError(
                f"checkpoint {str(self.path.parent)!r} is of an earlier version, without {error}; delete that folder"
            ) from error

    def save(self, state: S) -> None:
        """Write a state in place of the one before."""
        save_arrays(self.path, {**self.pack(state), OF_FIT: np.array(self.fit)})


def digest_fit(*inputs: object) -> str:
    """SHA-256 of what the states of a fit depend on, in hexadecimal.

    Parameters
    ----------
    inputs
        Arrays, by their bits, and whatever has a text that says all of it: digests, numbers, names, options.
    """
    total = hashlib.sha256()
    for each in inputs:
        if isinstance(each, np.ndarray):
            total.update(f"{each.dtype} {each.shape}\n".encode())
            total.update(np.ascontiguousarray(each).tobytes())
        else:
            total.update(f"{each}\n".encode())
    return total.hexdigest()
