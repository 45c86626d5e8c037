"""Predictions of single codes and values, of every model that predicts PMFs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.codes import Codes
from pmflib.schema import Schema


class Predictor(ABC):
    """A model that predicts the PMF of a variable in each row, given the others."""

    schema: Schema

    @abstractmethod
    def predict_proba(self, table: object, variable: str | int) -> FloatArray:
        """Return the PMF of a variable in each row: see `pmflib.model.mixture.Mixture.predict_proba`."""

    @abstractmethod
    def predict_gaps(self, codes: IntArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Yield the PMFs of all missing cells: see `pmflib.model.mixture.Mixture.predict_gaps`."""

    def predict(self, table: object, variable: str | int) -> Codes:
        """Return the most probable code of a variable in each row (MAP) given the others; the first one if tied.

        Returns
        -------
        `Codes`, int64 of shape (n_rows,), in [0, cardinality); `Schema` holds the labels.
        """
        return Codes(self.predict_proba(table, variable).argmax(axis=1))

    def expected_value(self, table: object, variable: str | int) -> FloatArray:
        """Return the expected value of an ordinal variable in each row given the others (MMSE).

        Returns
        -------
        float64 of shape (n_rows,), in the units of the variable's values.

        Raises
        ------
        SchemaError
            If the variable has no values.
        """
        values = self.schema[variable].numeric_values()
        expected: FloatArray = self.predict_proba(table, variable) @ values
        return expected

    def complete(self, table: object) -> Codes:
        """Fill every missing cell with its most probable code given the observed cells of the row, each separately.

        Returns
        -------
        `Codes` of shape (n_rows, n_variables), no -1 left; observed cells keep their code.
        """
        filled = self.schema.encode(table).copy()
        # a copy, because filled cells must not count as observed
        for position, rows, chances in self.predict_gaps(filled.copy()):
            filled[rows, position] = chances.argmax(axis=1)
        return filled
