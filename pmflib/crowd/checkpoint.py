"""Where the passes over a label log stand, in a file: a run that was killed goes on from the last of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pmflib.crowd.passes import CrowdFit
from pmflib.em.checkpoint import load_arrays, save_arrays
from pmflib.solvers.annotators import Annotators, Rule


def save_fit(path: Path, fit: CrowdFit) -> None:
    """Save where the passes stand; the rule is the caller's."""
    found = fit.annotators
    arrays = {
        "states": found.states,
        "mass": found.mass,
        "strength": np.array(found.strength),
        "answers": fit.answers,
        "log_likelihoods": np.array(fit.log_likelihoods),
        "moved": np.array(fit.moved),
        "converged": np.array(fit.converged),
    }
    save_arrays(path, arrays)


def load_fit(path: Path, rule: Rule) -> CrowdFit | None:
    """Read what `save_fit` wrote, to the same bits; None if there is none that can be used."""
    if (arrays := load_arrays(path)) is None:
        return None
    found = Annotators(arrays["states"], arrays["mass"], float(arrays["strength"]), rule)
    log_likelihoods, moved = (tuple(arrays[name].tolist()) for name in ("log_likelihoods", "moved"))
    return CrowdFit(found, arrays["answers"], log_likelihoods, moved, bool(arrays["converged"]))
