"""Where work on a label log stands, in a file: a run that was killed goes on from the last pass over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pmflib.crowd.co_occurrence import Judge
from pmflib.crowd.passes import CrowdFit
from pmflib.solvers.crowd.annotator_model import Annotators, Rule
from pmflib.store.checkpoints import load_arrays, save_arrays


def save_fit(path: Path, fit: CrowdFit) -> None:
    """Save where the passes stand; the rule is the caller's."""
    found = fit.annotators
    arrays = {
        "states": found.states,
        "mass": found.mass,
        "strength": np.array(found.strength),
        "votes": np.array(found.votes),
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
    scalars = float(arrays["strength"]), rule, float(arrays["votes"])
    found = Annotators(arrays["states"], arrays["mass"], *scalars)
    log_likelihoods, moved = (tuple(arrays[name].tolist()) for name in ("log_likelihoods", "moved"))
    return CrowdFit(found, arrays["answers"], log_likelihoods, moved, bool(arrays["converged"]))


def remember_heights(judge: Judge, path: Path, on_height: Callable[[int], None]) -> Judge:
    """Make a judge keep what it finds in a file, and give back what is there, in the order in which it is asked.

    Parameters
    ----------
    judge
        Passes over all answers each time. Whoever asks must ask the same again, to the same bits.
    path
        The file.
    on_height
        Called with how often it was asked, each time: progress.
    """
    arrays = load_arrays(path) or {"heights": np.zeros(0)}
    known: list[float] = arrays["heights"].tolist()
    asked = 0

    def give(annotators: Annotators) -> float:
        nonlocal asked
        asked += 1
        if asked > len(known):
            known.append(judge(annotators))
            save_arrays(path, {"heights": np.array(known)})
        on_height(asked)
        return known[asked - 1]

    return give
