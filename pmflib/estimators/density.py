"""A density estimator, and a transformer: log-probabilities, new rows, posteriors of states or traits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin

from pmflib.core.arrays import FloatArray
from pmflib.core.errors import PmfError
from pmflib.estimators.joint_estimator import TableEstimator
from pmflib.estimators.user_tables import make_user_table
from pmflib.schema import MISSING, Schema


class PMFDensity(DensityMixin, TableEstimator):  # type: ignore[misc]
    """Probability of rows: how usual each is, and new rows like them.

    Parameters
    ----------
    rank, method, schema, bins, members, dependence, dimensions, random_state
        As in `TableEstimator`; more members estimate better.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `TableEstimator`.

    Examples
    --------
    >>> import numpy as np, pmflib as pmf
    >>> side = np.random.default_rng(0).integers(2, size=(500, 1))
    >>> density = pmf.PMFDensity(rank=2).fit(np.repeat(side, 5, axis=1))
    >>> usual, odd = density.score_samples([[0, 0, 0, 0, 0], [0, 0, 1, 0, 0]])
    >>> bool(usual > odd)
    True
    """

    def __init__(
        self,
        rank: int | Literal["auto"] = "auto",
        *,
        method: Literal["classes", "traits"] = "classes",
        schema: Schema | None = None,
        bins: int = 8,
        members: int = 8,
        dependence: Literal["auto", "none", "tree"] = "none",
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
        """Log-probability of what is observed in each row: of numbers that were cut into bins, of their bins.

        Returns
        -------
        float64 of shape (n_rows,), nats; 0 for a row with nothing observed. The least are the most unusual.
        """
        codes = self._read_codes(X)[1]
        return self._model.log_prob(np.maximum(codes, MISSING))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`, nats: what cross-validation compares."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Draw rows.

        Parameters
        ----------
        n_samples
            How many, at least 1.
        random_state
            Seed.

        Returns
        -------
        A table such as was fitted, without the columns that were left out; numbers of bins are drawn from those that
        were seen there.

        Raises
        ------
        PmfError
            If n_samples is below 1.
        """
        model = self._model
        if n_samples < 1:
            raise PmfError(f"n_samples is {n_samples}; give at least 1")
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
