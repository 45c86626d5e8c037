"""Checkpoints of EM: arrays of a state in a file that only the same fit can resume from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from pmflib.base.arrays import Arrays
from pmflib.base.errors import PmfError
from pmflib.store.checkpoints import load_arrays, save_arrays

S = TypeVar("S")

OF_FIT = "of_fit"
"""Name of the array that identifies the fit."""


@dataclass(frozen=True)
class Checkpoint(Generic[S]):
    """Saved state of a fit; an interrupted fit resumes from it with bit-identical results.

    Parameters
    ----------
    path
        Path of the checkpoint file.
    fit
        Digest of everything the state depends on, from `digest_fit`: samples, options and starting model.
    pack, unpack
        Convert a state to arrays, and arrays to a state.
    """

    path: Path
    fit: str
    pack: Callable[[S], Arrays]
    unpack: Callable[[Arrays], S]

    def load(self) -> S | None:
        """Load the last saved state; None if there is no usable state.

        Raises
        ------
        PmfError
            If the checkpoint belongs to another fit.
        """
        arrays = load_arrays(self.path)
        if arrays is None or OF_FIT not in arrays:
            return None
        if str(arrays.pop(OF_FIT)) != self.fit:
            raise PmfError(
                f"checkpoint {str(self.path.parent)!r} holds states of another fit, with other samples, options or "
                "version; give each fit its own folder, or delete this one"
            )
        try:
            return self.unpack(arrays)
        except KeyError as error:
            raise PmfError(
                f"checkpoint {str(self.path.parent)!r} is of an earlier version (no {error}); delete it"
            ) from error

    def save(self, state: S) -> None:
        """Save a state, replacing the previous one."""
        save_arrays(self.path, {**self.pack(state), OF_FIT: np.array(self.fit)})


def digest_fit(*inputs: object) -> str:
    """Compute the SHA-256 digest, in hexadecimal, of everything the states of a fit depend on.

    Parameters
    ----------
    inputs
        Arrays (digested by their bits) and objects with a complete text representation: digests, numbers, names,
        options.
    """
    total = hashlib.sha256()
    for each in inputs:
        if isinstance(each, np.ndarray):
            total.update(f"{each.dtype} {each.shape}\n".encode())
            total.update(np.ascontiguousarray(each).tobytes())
        else:
            total.update(f"{each}\n".encode())
    return total.hexdigest()
