"""A transformer: the posterior of the latent state of each row, or its traits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from pmflib.arrays import FloatArray
from pmflib.estimators.table_estimator import TableEstimator
from pmflib.schema import MISSING


class PMFTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TableEstimator):  # type: ignore[misc]
    """Posterior probabilities of the latent states, or scores on traits: some numbers in place of many columns.

    Parameters and attributes are those of `TableEstimator`. Columns that come out are named pmftransformer0,
    pmftransformer1, ... in the order of the states of ``model_``, or of its traits, the first of which explains most.
    """

    def transform(self, X: Any) -> FloatArray:
        """Posterior of the latent state of each row; of method "traits", its scores on the traits.

        Returns
        -------
        float64 of shape (n_rows, rank_), rows sum to 1; the prior for a row with nothing observed. Scores: (n_rows,
        n_traits), in standard deviations of the rows that were fitted; `pmflib.JointPMF.traits` of ``model_`` gives
        their standard errors, too.
        """
        codes = np.maximum(self._read_codes(X)[1], MISSING)
        traits = self._model.trait_model
        return self._model.posterior(codes) if traits is None else traits.score_traits(codes).scores

    @property
    def _n_features_out(self) -> int:
        traits = self._model.trait_model
        return self.rank_ if traits is None else traits.n_traits

    def __sklearn_tags__(self) -> Any:
        """What comes out is float64, whatever goes in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
