"""Density estimator and transformer: log-probabilities, sampling, and posteriors of states or trait scores."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin

from pmflib.apps.estimators.joint_estimator import TableEstimator
from pmflib.apps.estimators.user_tables import make_user_table
from pmflib.base.arrays import FloatArray
from pmflib.base.codes import Codes
from pmflib.base.constraints import at_least, check
from pmflib.families.traits.trait_pmf import TraitPMF
from pmflib.schema import MISSING, Schema


class PMFDensity(DensityMixin, TableEstimator):  # type: ignore[misc]
    """Density estimator: log-probabilities of rows, and sampling of new rows.

    Parameters
    ----------
    rank, method, schema, bins, members, dependence, dimensions, random_state
        As in `TableEstimator`. The default is a stack of models.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `TableEstimator`.

    Examples
    --------
    >>> import numpy as np, pmflib as pmf
    >>> side = np.random.default_rng(0).integers(2, size=(500, 1))
    >>> density = pmf.apps.PMFDensity(rank=2).fit(np.repeat(side, 5, axis=1))
    >>> usual, odd = density.score_samples([[0, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    >>> bool(usual > odd)
    True
    """

    def __init__(
        self,
        rank: int | Literal["auto"] | None = None,
        *,
        method: Literal["classes", "traits"] = "classes",
        schema: Schema | None = None,
        bins: int = 8,
        members: int = 8,
        dependence: Literal["auto", "none", "tree"] | None = None,
        dimensions: int | Literal["auto"] = "auto",
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            rank,
            method=method,
            schema=schema,
            bins=bins,
            members=members,
            dependence=dependence,
            dimensions=dimensions,
            random_state=random_state,
        )

    def score_samples(self, X: Any) -> FloatArray:
        """Compute the log-probability of each row's observed cells; binned numbers are represented by bins.

        Returns
        -------
        float64 of shape (n_rows,), nats; 0 for a row with nothing observed. Small values indicate unusual rows.
        """
        codes = self._read_codes(X)[1]
        return self._model.log_prob(Codes(np.maximum(codes, MISSING)))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of `score_samples`, nats, as used in cross-validation."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Sample rows.

        Parameters
        ----------
        n_samples
            Number of rows, at least 1.
        random_state
            Seed.

        Returns
        -------
        A table of the same type as the fitted one, without the columns that were not used; numbers within bins are
        sampled from the values observed there.

        Raises
        ------
        PmfError
            If n_samples is below 1, or cells hold several answers.
        """
        model = self._model
        self._refuse_parts("sample")
        check(at_least(1), n_samples=n_samples)
        rng = np.random.default_rng(self._draw_seed(random_state))
        codes = model.sample(n_samples, rng)
        columns = {
            variable.name: values.pick(codes[:, position].astype(np.int64), rng.random(n_samples))
            for position, (variable, values) in enumerate(
                zip(model.schema, self._values, strict=True)
            )
        }
        return make_user_table(self._select_empty(tuple(columns)), columns)


class PMFTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TableEstimator):  # type: ignore[misc]
    """Transformer: posterior probabilities of latent states, or trait scores, as a low-dimensional representation.

    Parameters and attributes are those of `TableEstimator`. Output columns are named pmftransformer0, pmftransformer1,
    ... in the order of the states of ``model_``, or of its traits, which are sorted by the variation they explain.
    """

    def transform(self, X: Any) -> FloatArray:
        """Compute the posterior of the latent state for each row; with method "traits", its trait scores.

        Returns
        -------
        float64 of shape (n_rows, rank_), rows sum to 1; the prior for a row with nothing observed. Trait scores:
        (n_rows, n_traits), in standard deviations of the fitted rows; `pmflib.JointPMF.traits` of ``model_`` also gives
        standard errors.
        """
        codes = np.maximum(self._read_codes(X)[1], MISSING)
        model = self._model
        if isinstance(model, TraitPMF):
            return model.trait_model.score_traits(codes).scores
        return model.posterior(Codes(codes))

    @property
    def _n_features_out(self) -> int:
        model = self._model
        return model.trait_model.n_traits if isinstance(model, TraitPMF) else self.rank_

    def __sklearn_tags__(self) -> Any:
        """Output is always float64."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
