"""Checkpoint of EM: its state in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pmflib.arrays import Parameters
from pmflib.em.joint_pmf_em import EMState
from pmflib.errors import PmfError
from pmflib.solvers.numeric.squarem import Acceleration
from pmflib.store.checkpoints import load_arrays, save_arrays, save_bytes


def save_state(path: Path, state: EMState) -> None:
    """Save the state of EM after a pass."""
    arrays = {
        "prior": state.prior,
        "factors": state.factors,
        "loss_history": np.array(state.loss_history),
        "log_likelihoods": np.array(state.log_likelihoods),
        "held_out": np.array(state.held_out),
    }
    if state.best_prior is not None and state.best_factors is not None:
        arrays |= _name_model("best", (state.best_prior, state.best_factors))
    if (acceleration := state.acceleration) is not None:
        steps = [acceleration.step_length, acceleration.longest, acceleration.passes_saved]
        arrays["acceleration"] = np.array(steps)
        arrays |= _name_model("origin", acceleration.origin)
        arrays |= _name_model("fallback", acceleration.fallback)
    save_arrays(path, arrays)


def load_state_of(fit: str, path: Path) -> EMState | None:
    """Read a state of a fit, to the same bits; None if there is none that can be used.

    Parameters
    ----------
    fit
        As for `is_of_fit`.
    path
        File of the states.

    Raises
    ------
    PmfError
        If the file is one of another fit.
    """
    return load_state(path) if is_of_fit(fit, path) else None


def is_of_fit(fit: str, path: Path) -> bool:
    """Whether the states in a file are those of a fit.

    Parameters
    ----------
    fit
        Digest of the fit: of all that its states depend on. It is kept beside the states, from this call on.
    path
        File of the states.

    Raises
    ------
    PmfError
        If the file is one of another fit: to go on from there would mix the two.
    """
    mark = path.with_suffix(".fit")
    known = mark.read_text("utf-8", "replace") if mark.exists() else None
    if known is None:
        # a state that nobody answers for is not gone on from
        save_bytes(mark, fit.encode())
        return False
    if known != fit:
        raise PmfError(
            f"checkpoint {str(path.parent)!r} holds states of another fit, of other samples or options; give each fit "
            "a folder of its own, or delete that one"
        )
    return True


def load_state(path: Path) -> EMState | None:
    """Read what `save_state` wrote, to the same bits; None if there is none that can be used."""
    if (arrays := load_arrays(path)) is None:
        return None
    acceleration = None
    if "acceleration" in arrays:
        models = _find_model(arrays, "origin"), _find_model(arrays, "fallback")
        acceleration = Acceleration(*models, *arrays["acceleration"].tolist())
    return EMState(
        arrays["prior"],
        arrays["factors"],
        tuple(arrays["loss_history"].tolist()),
        tuple(arrays["log_likelihoods"].tolist()),
        tuple(arrays["held_out"].tolist()),
        arrays.get("best_prior"),
        arrays.get("best_factors"),
        acceleration,
    )


def _name_model(name: str, model: Parameters | None) -> dict[str, npt.NDArray[Any]]:
    return {} if model is None else {f"{name}_prior": model[0], f"{name}_factors": model[1]}


def _find_model(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Parameters | None:
    if f"{name}_prior" not in arrays:
        return None
    return arrays[f"{name}_prior"], arrays[f"{name}_factors"]
