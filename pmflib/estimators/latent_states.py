"""A transformer: the posterior of the latent state of each row."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from pmflib.arrays import FloatArray
from pmflib.estimators.joint_estimator import JointEstimator
from pmflib.schema import MISSING


class PMFTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, JointEstimator):  # type: ignore[misc]
    """Posterior probabilities of the latent states: some numbers in place of many categorical columns.

    Parameters and attributes are those of `JointEstimator`. Columns that come out are named pmftransformer0,
    pmftransformer1, ... in the order of the states of ``model_``.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a joint PMF of the columns: as `PMFDensity.fit`."""
        self._fit_table(X)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Posterior of the latent state of each row.

        Returns
        -------
        float64 of shape (n_rows, rank_), rows sum to 1; the prior for a row with nothing observed.
        """
        codes = self._read_codes(X)[1]
        return self._model.posterior(np.maximum(codes, MISSING))

    @property
    def _n_features_out(self) -> int:
        return self.rank_

    def __sklearn_tags__(self) -> Any:
        """What comes out is float64, whatever goes in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
