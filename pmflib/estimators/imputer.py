"""An imputer: missing cells from the others of their row."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal, Self

import numpy as np
import sklearn
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from pmflib.core.arrays import BoolArray, FloatArray, IntArray
from pmflib.core.errors import PmfError
from pmflib.estimators.joint_estimator import TableEstimator
from pmflib.estimators.user_tables import convert_frame
from pmflib.schema import MISSING, Schema

STRATEGIES = ("mode", "mean", "draw")


class PMFImputer(OneToOneFeatureMixin, TransformerMixin, TableEstimator):  # type: ignore[misc]
    """Fill missing cells from what else their row holds, with the values that the table itself has.

    Parameters
    ----------
    rank
        Number of latent states; "auto" chooses it on held-out rows, see `pmflib.fit_em`.
    strategy
        "mode": the most probable level; of numbers that were cut into bins, the middle number of the bin. "mean": the
        expected value of columns of numbers, and the mode of the others. "draw": a random one, by its probability; all
        of a row's together, so that what is drawn depends on each other as the data do.
    method, schema, bins, members, dependence, dimensions, random_state
        As in `TableEstimator`; ``random_state`` is the seed of draws as well, and more members guess better.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `TableEstimator`.

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
        self.strategy = strategy

    def __sklearn_tags__(self) -> Any:
        """Numbers keep their dtype."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a joint PMF of the columns: as `TableEstimator.fit`."""
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
        is_missing = codes == MISSING
        # of rows without a gap nothing is asked
        rows = np.flatnonzero(is_missing.any(axis=1))
        gaps, known = is_missing[rows], np.maximum(codes[rows], MISSING)
        chosen = self._draw(known, gaps) if self.strategy == "draw" else self._guess(known, gaps)
        filled = {}
        for position, values in chosen.items():
            cells = np.zeros(table.n_rows, bool)
            cells[rows[gaps[:, position]]] = True
            filled[self._column_names.index(self._model.schema[position].name)] = cells, values
        own = getattr(self, "_sklearn_output_config", {})
        container = own.get("transform", sklearn.get_config()["transform_output"])
        return convert_frame(table.fill(filled), container)

    def _check_strategy(self) -> None:
        if self.strategy not in STRATEGIES:
            raise PmfError(f"strategy is {self.strategy!r}; give one of {STRATEGIES}")

    def _guess(self, known: IntArray, gaps: BoolArray) -> dict[int, list[Any]]:
        """Values for the gaps of each variable that has some: modes, or means."""
        chosen: dict[int, list[Any]] = defaultdict(list)
        for position, rows, probabilities in self._model.predict_gaps(known):
            chances, values = probabilities[gaps[rows, position]], self._values[position]
            if self.strategy == "mean" and values.means is not None:
                chosen[position] += (chances @ np.asarray(values.means)).tolist()
            else:
                typical = values.typical
                chosen[position] += [typical[code] for code in chances.argmax(axis=1).tolist()]
        return {position: values for position, values in chosen.items() if values}

    def _draw(self, known: IntArray, gaps: BoolArray) -> dict[int, list[Any]]:
        """Values for the gaps of each variable that has some: drawn, a row's state first, then cell after cell."""
        model, chosen = self._model, {}
        rng = np.random.default_rng(self._draw_seed(self.random_state))
        states = _draw_codes(model.posterior(known), rng)
        for position, values in enumerate(self._values):
            rows = np.flatnonzero(gaps[:, position])
            if rows.size:
                chances = model.predict_in_states(known[rows], states[rows], position)
                # later cells of a row may depend on what is drawn here
                known[rows, position] = _draw_codes(chances, rng)
                chosen[position] = values.draw(known[rows, position], rng)
        return chosen


def _draw_codes(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a code of each row of probabilities, int64 of shape (n_rows,)."""
    ends = np.cumsum(probabilities, axis=1)
    uniforms = rng.random(len(ends)) * ends[:, -1]
    codes: IntArray = (ends[:, :-1] <= uniforms[:, None]).sum(axis=1)
    return codes
