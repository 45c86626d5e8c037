"""Models whose predictions of a target are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmflib.base.arrays import FloatArray
from pmflib.base.codes import Codes
from pmflib.base.errors import PmfError
from pmflib.model import JointPMF
from pmflib.model.rungs import RungFit


@dataclass(frozen=True, eq=False)
class TargetPool:
    """Models whose PMFs of a target given the other variables are averaged.

    A mixture of joint PMFs trusts those that explain the other variables best; this average trusts those that predict
    the target best. It answers no other question.

    Parameters
    ----------
    models
        Models, at least one.
    rungs
        How each was fitted, with its weight; weights sum to 1.
    target
        Position of the target.
    trial
        The same without the first held-out fold; None if there is none.

    References
    ----------
    Stone (1961), "The opinion pool"; Wolpert (1992), "Stacked generalization".
    """

    models: tuple[JointPMF, ...]
    rungs: tuple[RungFit, ...]
    target: int
    trial: TargetPool | None = None

    def predict_proba(self, codes: Codes, target: int) -> FloatArray:
        """Return the PMF of the target given the other variables of each row.

        Parameters
        ----------
        codes
            Shape (n_rows, n_variables), -1 missing; those of the target are not used.
        target
            Position of the target.

        Returns
        -------
        float64 of shape (n_rows, n_classes); rows sum to 1.

        Raises
        ------
        PmfError
            If the target is another one than that of the fit.
        """
        if target != self.target:
            raise PmfError(
                f"target is {target} and the models were chosen for {self.target}; ask the model of the fit"
            )
        parts = [
            each.weight * model.predict_proba(codes, target)
            for model, each in zip(self.models, self.rungs, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0))

    def save(self, folder: Path) -> None:
        """Write each model as a Zarr group into a folder that exists."""
        for number, model in enumerate(self.models):
            model.save(folder / f"pooled-{number:02}")

    @classmethod
    def load(cls, folder: Path, rungs: Sequence[RungFit], target: int) -> TargetPool:
        """Read the models written by `save`.

        Raises
        ------
        StoreError
            If a model is missing or damaged.
        """
        places = [folder / f"pooled-{number:02}" for number in range(len(rungs))]
        return cls(tuple(map(JointPMF.load, places)), tuple(rungs), target)
