"""An imputer: missing cells from the others of their row."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import sklearn
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from pmflib.arrays import FloatArray, IntArray
from pmflib.errors import PmfError
from pmflib.estimators.joint_estimator import JointEstimator
from pmflib.estimators.level_values import LevelValues
from pmflib.estimators.user_tables import convert_frame
from pmflib.schema import MISSING, Schema

STRATEGIES = ("mode", "mean", "draw")


class PMFImputer(OneToOneFeatureMixin, TransformerMixin, JointEstimator):  # type: ignore[misc]
    """Fill missing cells from what else their row holds, with the values that the table itself has.

    Parameters
    ----------
    rank
        Number of latent states; "auto" chooses it on held-out rows, see `pmflib.fit_em`.
    strategy
        "mode": the most probable level; of numbers that were cut into bins, the middle number of the bin. "mean": the
        expected value of columns of numbers, and the mode of the others. "draw": a random one, by its probability; all
        of a row's together, so that what is drawn depends on each other as the data do.
    schema, bins, members, random_state
        As in `JointEstimator`; ``random_state`` is the seed of draws as well, and more members guess better.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `JointEstimator`.

    Notes
    -----
    None, NaN, pandas.NA, null and an empty text are missing. Columns that are no variables, such as those without any
    value, pass through as they are, and the warning of fit names them. A frame gives a frame of its kind, with its
    dtypes, unless ``set_output`` asks for another; whole numbers that are filled with means become floats.

    Examples
    --------
    >>> import numpy as np, pmflib as pmf
    >>> table = np.repeat(np.array([[0.0], [1.0]] * 50), 4, axis=1)
    >>> table[0, 0] = np.nan
    >>> float(pmf.PMFImputer(rank=2).fit_transform(table)[0, 0])
    0.0
    """

    def __init__(
        self,
        rank: int | Literal["auto"] = "auto",
        *,
        strategy: Literal["mode", "mean", "draw"] = "mode",
        schema: Schema | None = None,
        bins: int = 8,
        members: int = 8,
        random_state: Any = 0,
    ) -> None:
        super().__init__(rank, schema=schema, bins=bins, members=members, random_state=random_state)
        self.strategy = strategy

    def __sklearn_tags__(self) -> Any:
        """Numbers keep their dtype."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a joint PMF of the columns: as `PMFDensity.fit`."""
        self._check_strategy()
        self._fit_table(X)
        return self

    def transform(self, X: Any) -> Any:
        """Fill the missing cells of a table.

        Parameters
        ----------
        X
            Table with the columns that were fitted.

        Returns
        -------
        A table such as X, whose observed cells are the same.
        """
        self._check_strategy()
        table, codes = self._read_codes(X)
        model = self._model
        is_missing = codes == MISSING
        # of rows without a gap nothing is asked
        rows = np.flatnonzero(is_missing.any(axis=1))
        gaps, known = is_missing[rows], np.maximum(codes[rows], MISSING)
        posteriors = model.posterior(known)
        rng = np.random.default_rng(self._draw_seed(self.random_state))
        if self.strategy == "draw":
            posteriors = _draw_states(posteriors, rng)
        filled = {}
        for place, (variable, values) in enumerate(zip(model.schema, self._values, strict=True)):
            mine = gaps[:, place]
            if not mine.any():
                continue
            probabilities = posteriors[mine] @ model.factor(place).T
            cells = np.zeros(table.n_rows, bool)
            cells[rows[mine]] = True
            column = self._column_names.index(variable.name)
            filled[column] = cells, self._choose(probabilities, values, rng)
        own = getattr(self, "_sklearn_output_config", {})
        wanted = own.get("transform", sklearn.get_config()["transform_output"])
        return convert_frame(table.fill(filled), wanted)

    def _check_strategy(self) -> None:
        if self.strategy not in STRATEGIES:
            raise PmfError(f"strategy is {self.strategy!r}; give one of {STRATEGIES}")

    def _choose(
        self, probabilities: FloatArray, values: LevelValues, rng: np.random.Generator
    ) -> list[Any]:
        """A value for each row of probabilities of levels."""
        if self.strategy == "mean" and values.means is not None:
            expected: list[Any] = (probabilities @ np.asarray(values.means)).tolist()
            return expected
        if self.strategy == "draw":
            return values.draw(_draw_codes(probabilities, rng), rng)
        typical = values.typical
        return [typical[code] for code in probabilities.argmax(axis=1).tolist()]


def _draw_codes(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a code of each row of probabilities, int64 of shape (n_rows,)."""
    ends = np.cumsum(probabilities, axis=1)
    uniforms = rng.random(len(ends)) * ends[:, -1]
    codes: IntArray = (ends[:, :-1] <= uniforms[:, None]).sum(axis=1)
    return codes


def _draw_states(posteriors: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw a latent state of each row: its posterior is certain then."""
    certain = np.zeros_like(posteriors)
    certain[np.arange(len(certain)), _draw_codes(posteriors, rng)] = 1.0
    return certain
