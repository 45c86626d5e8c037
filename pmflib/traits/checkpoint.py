"""Checkpoint of a fit of traits: what was chosen, and the state after a pass."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.em.checkpoint import is_of_fit
from pmflib.selection.comparison import Comparison
from pmflib.store.checkpoints import load_arrays, save_arrays
from pmflib.traits.coefficients import Coefficients
from pmflib.traits.trait_fit import TraitSettings, TraitState


@dataclass(frozen=True)
class TraitChoice:
    """What a fit has chosen, or was given.

    Parameters
    ----------
    settings
        How to fit.
    n_states
        Latent states of the joint PMF.
    comparisons
        What was compared.
    """

    settings: TraitSettings
    n_states: int
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class TraitCheckpoint:
    """Files of one fit, which goes on from them after an interruption, to the same bits.

    Parameters
    ----------
    folder
        Where they are.
    fit
        Digest of all that the fit depends on.
    """

    folder: Path
    fit: str

    @classmethod
    def open(cls, folder: Path, *facts: object) -> TraitCheckpoint:
        """Files of a fit that depends on some facts.

        Raises
        ------
        PmfError
            If the folder has files of another fit.
        """
        fit = hashlib.sha256("\n".join(map(str, facts)).encode()).hexdigest()
        # files that nobody answers for are left alone
        if not is_of_fit(fit, folder / "traits.npz"):
            for name in ("choice.npz", "traits.npz"):
                (folder / name).unlink(missing_ok=True)
        return cls(folder, fit)

    def load_choice(self) -> TraitChoice | None:
        """What was chosen; None if that is not known yet."""
        if (arrays := load_arrays(self.folder / "choice.npz")) is None:
            return None
        content = json.loads(str(arrays["json"]))
        comparisons = tuple(Comparison.from_json(each) for each in content["comparisons"])
        return TraitChoice(TraitSettings(**content["settings"]), content["states"], comparisons)

    def save_choice(self, choice: TraitChoice) -> None:
        """Keep what was chosen."""
        content = {
            "settings": choice.settings.to_json(),
            "states": choice.n_states,
            "comparisons": [each.to_json() for each in choice.comparisons],
        }
        save_arrays(self.folder / "choice.npz", {"json": np.array(json.dumps(content))})

    def load_state(self) -> TraitState | None:
        """State after the last pass that was kept; None if there is none."""
        if (arrays := load_arrays(self.folder / "traits.npz")) is None:
            return None
        names = ("values", "centres", "variances")
        history = tuple(arrays["log_likelihoods"].tolist())
        return TraitState(Coefficients(*(arrays[name] for name in names)), history)

    def save_state(self, state: TraitState) -> None:
        """Keep the state after a pass."""
        arrays = {
            "values": state.coefficients.values,
            "centres": state.coefficients.centres,
            "variances": state.coefficients.variances,
            "log_likelihoods": np.array(state.log_likelihoods),
        }
        save_arrays(self.folder / "traits.npz", arrays)
