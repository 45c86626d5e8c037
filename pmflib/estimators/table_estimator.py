"""What the estimators without a target have in common: the fit of a table, by latent classes or by traits."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np

from pmflib.arrays import IntArray
from pmflib.errors import PmfError
from pmflib.estimators.joint_estimator import JointEstimator
from pmflib.estimators.user_tables import UserTable
from pmflib.schema import MISSING, Schema
from pmflib.traits.compiled_fit import fit_traits

METHODS = ("classes", "traits")


class TableEstimator(JointEstimator):
    """Base of the estimators that have no target: all columns are alike.

    Parameters
    ----------
    rank, schema, bins, members, dependence, random_state
        As in `JointEstimator`.
    method
        "classes": latent classes, for rows that are of kinds. "traits": continuous traits, for rows that differ by
        degree, such as people with their ratings; see `pmflib.fit_traits`. ``rank`` is then the number of states that
        they are compiled into, ``members`` has no part, and ``dependence`` must be "none".
    dimensions
        Traits besides the biases of rows toward high and toward extreme levels, at least 0; "auto" chooses it on cells
        that are held out. Classes have none.

    Attributes
    ----------
    model_, result_, n_features_in_, feature_names_in_
        As in `JointEstimator`.
    """

    def __init__(
        self,
        rank: int | Literal["auto"] = "auto",
        *,
        method: Literal["classes", "traits"] = "classes",
        schema: Schema | None = None,
        bins: int = 8,
        members: int = 1,
        dependence: Literal["auto", "none", "tree"] = "none",
        dimensions: int | Literal["auto"] = "auto",
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            rank,
            schema=schema,
            bins=bins,
            members=members,
            dependence=dependence,
            random_state=random_state,
        )
        self.method = method
        self.dimensions = dimensions

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a joint PMF of the columns.

        Parameters
        ----------
        X
            Frame, Arrow table, or array of shape (n_rows, n_columns); cells may be missing.
        y
            Not used.

        Returns
        -------
        The estimator.

        Raises
        ------
        ValueError
            If X has no row or column, or an infinite number.
        PmfError
            If a parameter is out of range.
        SchemaError
            If no column can be a variable, or the schema that was given does not fit.
        """
        self._fit_table(X)
        return self

    def _fit_table(self, table: Any) -> None:
        """Check the method, draft the variables, and fit them."""
        self._check_method()
        read = UserTable.read(self, table, reset=True)
        schema = Schema(self._draft(read))
        self._empty = read.given[:0]
        codes = np.maximum(self._encode(read, schema.variables), MISSING)
        if self.method == "classes":
            self._keep(self._fit_classes(codes, schema))
        else:
            seed = self._draw_seed(self.random_state)
            dimensions, n_states = self.dimensions, self.rank
            self._keep(
                fit_traits(codes, schema, dimensions=dimensions, n_states=n_states, rng=seed)
            )

    def _check_method(self) -> None:
        if self.method not in METHODS:
            raise PmfError(f"method is {self.method!r}; give one of {METHODS}")
        if self.method == "traits" and self.dependence != "none":
            raise PmfError(
                f"dependence is {self.dependence!r} and method is 'traits', which has no latent classes for variables "
                "to depend on each other in; give method='classes', or leave dependence out"
            )

    def _read_codes(self, table: Any) -> tuple[UserTable, IntArray]:
        """A table, and its codes under the fitted model as from `_encode`."""
        model = self._model
        read = UserTable.read(self, table, reset=False)
        return read, self._encode(read, model.schema.variables)

    def _select_empty(self, names: tuple[str, ...]) -> Any:
        """Table without rows such as was fitted, of some columns."""
        places = [self._column_names.index(name) for name in names]
        if hasattr(self._empty, "iloc"):
            return self._empty.iloc[:, places]
        if hasattr(self._empty, "select"):
            return self._empty.select(list(names))
        return self._empty[:, places]
