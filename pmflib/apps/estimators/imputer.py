"""Imputer: fills missing cells given the observed cells of their row."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any, Literal, Self

import numpy as np
import sklearn
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from pmflib.apps.estimators.joint_estimator import TableEstimator
from pmflib.apps.estimators.user_tables import UserTable, convert_frame
from pmflib.base.arrays import BoolArray, IntArray
from pmflib.base.blocks import DenseBlock
from pmflib.base.constraints import OneOf, at_least, check
from pmflib.base.errors import PmfError, SchemaWarning
from pmflib.base.texts import list_some
from pmflib.base.variance import weigh_samples
from pmflib.inference.imputation.imputing import draw_gaps, draw_uniforms, seed_rows
from pmflib.inference.imputation.resampled_fits import fit_resampled
from pmflib.model import JointPMF
from pmflib.schema import MISSING, Schema

STRATEGIES = ("draw", "mode", "mean")


class PMFImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):  # type: ignore[misc]
    """Impute missing cells given the observed cells of each row, using values that occur in the table.

    Parameters
    ----------
    rank
        Number of latent states; None fits a stack of models, and "auto" chooses a number on held-out rows, see
        `pmflib.fit_em`.
    strategy
        "draw": sample levels from their joint distribution given the row, which preserves shares, variances and
        correlations of the data. "mode": the most probable level, or the median value of the bin for binned numbers; it
        is most often correct but makes the table more regular than the data. "mean": the expected value for numeric
        columns, and the mode for others.
    draws
        Number of imputed tables, at least 1. Several tables (only with strategy "draw") are each sampled from a fit to
        another bootstrap sample of the rows, so that differences between tables reflect the full uncertainty;
        `pmflib.inference.pool` combines their estimates into one with an interval. Ten to twenty are enough for
        intervals.
    method, schema, bins, members, dependence, dimensions, random_state
        As in `TableEstimator`; ``random_state`` is also the seed of draws, and averaging more members improves
        imputation.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `TableEstimator`.
    draw_models_
        Tuple with the `JointPMF` that each table is sampled from: ``(model_,)`` for one table, otherwise refits.

    Notes
    -----
    None, NaN, pandas.NA, null and empty strings are missing. Columns that cannot be variables, such as columns without
    values, are passed through with a warning in ``fit``; so are variables of a schema without any observed value. A
    DataFrame gives a DataFrame of the same type and dtypes, unless ``set_output`` asks for another; integer columns
    filled with means become floats.

    A draw depends on the seed, the number of the table, the position of the row, and its observed cells. The same table
    is therefore always filled in the same way, unless ``random_state`` is None or a generator.

    References
    ----------
    Rubin (1987), "Multiple imputation for nonresponse in surveys"; Honaker, King (2010), American Journal of Political
    Science 54(2), for EM on bootstrap samples.

    Examples
    --------
    >>> import numpy as np, pmflib as pmf
    >>> table = np.repeat(np.array([[0.0], [1.0]] * 50), 4, axis=1)
    >>> table[0, 0] = np.nan
    >>> float(pmf.PMFImputer(rank=2, strategy="mode").fit_transform(table)[0, 0])
    0.0
    >>> tables = pmf.PMFImputer(rank=2, draws=3).fit_transform(table)
    >>> pooled = pmf.inference.pool([t[:, 0].mean() for t in tables], [t[:, 0].var() / 100 for t in tables])
    >>> float(pooled.estimate.round(2)), float(pooled.error.round(2))
    (0.5, 0.05)
    """

    def __init__(
        self,
        rank: int | Literal["auto"] | None = None,
        *,
        strategy: Literal["draw", "mode", "mean"] = "draw",
        draws: int = 1,
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
        self.strategy = strategy
        self.draws = draws

    def __sklearn_tags__(self) -> Any:
        """Numeric columns keep their dtype."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit a joint PMF of the columns and, for several draws, refits on bootstrap samples.

        Warns
        -----
        SchemaWarning
            If no row has a value for a variable of the schema, whose cells then stay missing.
        """
        self._check_draws()
        codes = self._fit_table(X, sample_weight)
        self._refuse_parts("an imputer")
        names = self.model_.schema.names
        self._empty_names = tuple(
            name for name, column in zip(names, codes.T, strict=True) if (column < 0).all()
        )
        if self._empty_names:
            warnings.warn(
                f"column {list_some([repr(name) for name in self._empty_names], 8, '; column ')} has no value that is "
                "a level of its variable: its cells stay missing",
                SchemaWarning,
                stacklevel=2,
            )
        self.draw_models_: tuple[JointPMF, ...] = (self.model_,)
        if self.draws > 1:
            seed = self._draw_seed(self.random_state)
            block = weigh_samples(
                DenseBlock(codes), sample_weight, self.model_.schema.weight_decimals
            )
            self.draw_models_ = tuple(fit_resampled(self.model_, block, self.draws, seed))
        return self

    def transform(self, X: Any) -> Any:
        """Impute the missing cells of a table.

        Parameters
        ----------
        X
            Table with the fitted columns.

        Returns
        -------
        A table like X with the same observed cells; with several ``draws``, a tuple of tables. For pandas,
        ``pandas.concat(tables, keys=range(len(tables)), names=["draw"])`` makes one long DataFrame.

        Raises
        ------
        PmfError
            If ``draws`` has changed since the fit.
        """
        self._check_draws()
        table, codes = self._read_codes(X)
        if len(self.draw_models_) != self.draws:
            raise PmfError(
                f"draws is {self.draws}, and {len(self.draw_models_)} were fitted; call fit again"
            )
        gaps = codes == MISSING
        gaps[:, [self._model.schema.position(name) for name in self._empty_names]] = False
        known = np.maximum(codes, MISSING)
        if self.strategy != "draw":
            return self._fill(table, gaps, self._guess(known, gaps))
        seed = self._draw_seed(self.random_state)
        filled = tuple(
            self._fill(table, gaps, self._draw(model, known, gaps, seed, draw))
            for draw, model in enumerate(self.draw_models_)
        )
        return filled if self.draws > 1 else filled[0]

    def _check_draws(self) -> None:
        """Check strategy and number of draws."""
        check(OneOf(STRATEGIES), strategy=self.strategy)
        check(at_least(1, whole=True), draws=self.draws)
        if self.draws > 1:
            check(OneOf(("draw",), "or leave draws out"), strategy=self.strategy)

    def _fill(self, table: UserTable, gaps: BoolArray, chosen: dict[int, list[Any]]) -> Any:
        """Fill the gaps of each variable and return a table of the requested type."""
        filled = {
            self._column_names.index(self._model.schema[position].name): (gaps[:, position], values)
            for position, values in chosen.items()
        }
        own = getattr(self, "_sklearn_output_config", {})
        container = own.get("transform", sklearn.get_config()["transform_output"])
        return convert_frame(table.fill(filled), container)

    def _guess(self, known: IntArray, gaps: BoolArray) -> dict[int, list[Any]]:
        """Return modes or means for the gaps of each variable."""
        chosen: dict[int, list[Any]] = defaultdict(list)
        # rows without gaps are skipped
        some = np.flatnonzero(gaps.any(axis=1))
        for position, rows, probabilities in self._model.predict_gaps(known[some]):
            chances, values = probabilities[gaps[some[rows], position]], self._values[position]
            if self.strategy == "mean" and values.means is not None:
                chosen[position] += (chances @ np.asarray(values.means)).tolist()
            else:
                typical = values.typical
                chosen[position] += [typical[code] for code in chances.argmax(axis=1).tolist()]
        return {position: values for position, values in chosen.items() if values}

    def _draw(
        self, model: JointPMF, known: IntArray, gaps: BoolArray, seed: int, draw: int
    ) -> dict[int, list[Any]]:
        """Sample levels for the gaps of each variable, then values of these levels."""
        seeds = seed_rows(np.arange(len(known)), seed, draw)
        filled, chosen = draw_gaps(model, known, gaps, seeds), {}
        for position in np.flatnonzero(gaps.any(axis=0)).tolist():
            rows, stream = gaps[:, position], 1 + gaps.shape[1] + position
            uniforms = draw_uniforms(seeds[rows], stream)
            chosen[position] = self._values[position].pick(filled[rows, position], uniforms)
        return chosen
