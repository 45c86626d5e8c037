"""Refits of latent classes with forests to other samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pmflib.families.forests.dependence import refine_forests
from pmflib.families.forests.forest import Forest
from pmflib.families.forests.statistics import TreeParameters
from pmflib.families.forests.tree_pmf import TreePMF
from pmflib.fits.em_fit import EMFit
from pmflib.inference.imputation.resampled_fits import Refits
from pmflib.model import JointPMF


class ForestRefits(Refits):
    """Refits with the forests, pseudo-counts and number of states of a model: see `Refits`."""

    model: TreePMF

    def split_average(self, n_members: int) -> Sequence[JointPMF]:
        """Split an average into its models."""
        model, first = self.model, 0
        found: list[JointPMF] = []
        forests = np.split(model.forest.parents, n_members)
        for part, parents in zip(super().split_average(n_members), forests, strict=True):
            forest = Forest(parents, model.schema.offsets)
            tables = model.tables[first : first + forest.n_entries]
            first += forest.n_entries
            parameters = TreeParameters(part.prior, forest, tables)
            found.append(TreePMF.make(parameters, model.schema, self.origin))
        return found

    def refine(self, fit: EMFit, start: Any, *samples: Any) -> JointPMF:
        """Run a prepared fit that starts from a model, with its forests."""
        return refine_forests(fit, start, *samples).model
