"""Checkpoints of work on a stored label log: a run that was killed continues from the last pass over all tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.crowd.passes import CrowdFit
from pmflib.em.samples import Judge
from pmflib.solvers.crowd.annotator_model import AnnotatorModel, CrowdModel
from pmflib.store.checkpoints import load_arrays, save_arrays


def save_fit(path: Path, fit: CrowdFit) -> None:
    """Save the state of passes; the annotator model is the caller's."""
    model = fit.model
    arrays = {
        "states": model.states,
        "mass": model.mass,
        "pseudo_count": np.array(model.pseudo_count),
        "vote_weight": np.array(model.vote_weight),
        "label_mass": fit.label_mass,
        "log_likelihoods": np.array(fit.log_likelihoods),
        "moved": np.array(fit.moved),
        "converged": np.array(fit.converged),
    }
    save_arrays(path, arrays)


def load_fit(path: Path, annotator_model: AnnotatorModel) -> CrowdFit | None:
    """Read what `save_fit` wrote, to the same bits; None if there is none that can be used."""
    if (arrays := load_arrays(path)) is None:
        return None
    model = CrowdModel(
        arrays["states"],
        arrays["mass"],
        float(arrays["pseudo_count"]),
        annotator_model,
        float(arrays["vote_weight"]),
    )
    log_likelihoods, moved = (tuple(arrays[name].tolist()) for name in ("log_likelihoods", "moved"))
    return CrowdFit(model, arrays["label_mass"], log_likelihoods, moved, bool(arrays["converged"]))


@dataclass(frozen=True)
class RunFiles:
    """Files of the short runs that are made before the likeliest start is known.

    Parameters
    ----------
    folder
        Where they are.
    annotator_model
        The one of all runs.
    on_pass
        Called after each pass: progress.
    """

    folder: Path
    annotator_model: AnnotatorModel
    on_pass: Callable[[CrowdFit], None]

    def load(self, run: int) -> CrowdFit | None:
        """Read the state of a run; None if there is none that can be used."""
        return load_fit(self._locate(run), self.annotator_model)

    def save(self, run: int, fit: CrowdFit) -> None:
        """Save the state of a run."""
        save_fit(self._locate(run), fit)
        self.on_pass(fit)

    def _locate(self, run: int) -> Path:
        return self.folder / f"start-{run}.npz"


def remember_log_likelihoods(
    judge: Judge[CrowdModel], path: Path, on_judged: Callable[[int], None]
) -> Judge[CrowdModel]:
    """Make a judge keep what it finds in a file, and give back what is there, in the order of the calls.

    Parameters
    ----------
    judge
        A pass over all tasks each time. Its caller must call it with the same models again, to the same bits.
    path
        The file.
    on_judged
        Called with the number of calls so far, after each: progress.
    """
    arrays = load_arrays(path) or {"log_likelihoods": np.zeros(0)}
    known: list[float] = arrays["log_likelihoods"].tolist()
    n_calls = 0

    def judge_once(model: CrowdModel) -> float:
        nonlocal n_calls
        n_calls += 1
        if n_calls > len(known):
            known.append(judge(model))
            save_arrays(path, {"log_likelihoods": np.array(known)})
        on_judged(n_calls)
        return known[n_calls - 1]

    return judge_once
