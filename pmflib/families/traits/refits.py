"""Refits of models of traits to other samples."""

from __future__ import annotations

from pmflib.base.blocks import DenseBlock
from pmflib.em.stored_samples import StoredSamples
from pmflib.families.traits.em import TraitSettings
from pmflib.families.traits.item_responses import fit_item_responses
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.families.traits.traits import fit_traits
from pmflib.inference.imputation.resampled_fits import Refits
from pmflib.model import JointPMF


class TraitRefits(Refits):
    """Refits with the settings of a model: see `Refits`."""

    model: TraitPMF

    def fit(self, draw: int, samples: DenseBlock | StoredSamples, seed: int) -> JointPMF:
        """Refit the model to some samples, from new starts."""
        model, origin = self.model, self.model.origin
        if model.is_mixture:
            again = fit_item_responses(
                samples,
                model.trait_model.n_traits,
                schema=model.schema,
                pseudo_count=origin.pseudo_count or 0.0,
                seed=seed,
            )
            return again.model
        settings = origin.select(TraitSettings).to_json()
        given: object = samples
        if isinstance(samples, DenseBlock):
            given = samples.to_sparse(model.schema.offsets)
        return fit_traits(given, model.schema, n_states=model.rank, rng=seed, **settings).model
