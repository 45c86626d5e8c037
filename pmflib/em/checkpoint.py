"""Checkpoints: arrays in one file, replaced atomically; work that was killed goes on from them."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.arrays import IntArray, Parameters
from pmflib.em.loop import EMState
from pmflib.store.artefacts import replace_file


def save_table(path: Path, table: IntArray, n_rows: int) -> None:
    """Save the counts of a fold: the cells that are not zero where these are few, as in wide schemas."""
    arrays = {"shape": np.array(table.shape), "n_rows": np.array(n_rows)}
    places = np.flatnonzero(table)
    if 2 * places.size < table.size:
        arrays |= {"places": places, "counts": table.flat[places]}
    else:
        arrays["table"] = table
    save_arrays(path, arrays)


def load_table(path: Path) -> tuple[IntArray, int] | None:
    """Read what `save_table` wrote; None if there is none that can be used."""
    arrays = load_arrays(path)
    if arrays is None:
        return None
    n_rows = int(arrays["n_rows"])
    if "table" in arrays:
        return arrays["table"], n_rows
    table = np.zeros(arrays["shape"], np.int64)
    table.flat[arrays["places"]] = arrays["counts"]
    return table, n_rows


def save_state(path: Path, state: EMState) -> None:
    """Save where an EM loop stands."""
    arrays = {
        "prior": state.prior,
        "factors": state.factors,
        "loss_history": np.array(state.loss_history),
        "log_likelihoods": np.array(state.log_likelihoods),
        "held_out": np.array(state.held_out),
        "converged": np.array(state.converged),
        "acceleration": np.array([state.stretch, state.reach, state.passes_saved]),
    }
    if state.best_prior is not None and state.best_factors is not None:
        arrays |= {"best_prior": state.best_prior, "best_factors": state.best_factors}
    for name, model in (("origin", state.origin), ("refuge", state.refuge)):
        if model is not None:
            arrays |= {f"{name}_prior": model[0], f"{name}_factors": model[1]}
    save_arrays(path, arrays)


def load_state(path: Path) -> EMState | None:
    """Read what `save_state` wrote, to the same bits; None if there is none that can be used."""
    if (arrays := load_arrays(path)) is None:
        return None
    return EMState(
        arrays["prior"],
        arrays["factors"],
        tuple(arrays["loss_history"].tolist()),
        tuple(arrays["log_likelihoods"].tolist()),
        tuple(arrays["held_out"].tolist()),
        arrays.get("best_prior"),
        arrays.get("best_factors"),
        bool(arrays["converged"]),
        _find_model(arrays, "origin"),
        _find_model(arrays, "refuge"),
        *arrays["acceleration"].tolist(),
    )


def _find_model(arrays: dict[str, npt.NDArray[Any]], name: str) -> Parameters | None:
    if f"{name}_prior" not in arrays:
        return None
    return arrays[f"{name}_prior"], arrays[f"{name}_factors"]


def save_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write arrays into one file, in place of the one before."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    while True:
        # another run of the same work removes the folder when it is done first, be it between these two lines
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            replace_file(path, buffer.getvalue())
        except FileNotFoundError:
            continue
        return


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """Read all arrays of a checkpoint; None if there is none, or none that can be used."""
    try:
        # opened here: np.load leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        # a checkpoint only saves time: without it, or with a damaged one, the work is done again
        return None
