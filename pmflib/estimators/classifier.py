"""A classifier: one variable predicted from the others."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from pmflib.core.arrays import FloatArray, IntArray
from pmflib.estimators.joint_estimator import JointEstimator
from pmflib.estimators.user_tables import UserTable
from pmflib.schema import MISSING, Schema, Variable
from pmflib.schema.variable import as_text, is_absent

NAME = "target"
"""Name of the classes' variable in the model's schema."""
LEAST_ROWS = 20
"""Rows from which a class for every two rows is a mistake: a class of a single row is never predicted."""


class PMFClassifier(ClassifierMixin, JointEstimator):  # type: ignore[misc]
    """Classes of rows, by a joint PMF of the columns and the classes that is fitted to predict the classes.

    Parameters and attributes are those of `JointEstimator`, and

    Attributes
    ----------
    classes_
        The classes, sorted, (n_classes,).

    Notes
    -----
    The variable of the classes is the last of ``model_``; it is named "target", or ``target_`` where there is a column
    of that name. See `docs/targets.md` for the fit.

    Examples
    --------
    >>> import pmflib as pmf
    >>> X = [["red", "round"], ["red", "long"], ["green", "long"], ["green", "round"]] * 20
    >>> pmf.PMFClassifier().fit(X, ["apple", "chili", "bean", "apple"] * 20).predict([["green", "long"]]).tolist()
    ['bean']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a joint PMF of the columns and the classes.

        Parameters
        ----------
        X
            Frame, Arrow table, or array of shape (n_rows, n_columns); cells may be missing.
        y
            Class of each row, (n_rows,); none missing.
        sample_weight
            Weights of the rows, numbers above 0 of shape (n_rows,); None is 1 each. See `pmflib.fit_em`.

        Returns
        -------
        The estimator.

        Raises
        ------
        ValueError
            If X has no row or column, or an infinite number, or y is no vector of as many classes, or has a class for
            every two rows or more.
        SchemaError
            If the schema that was given does not fit.
        """
        table = UserTable.read(self, X, reset=True)
        codes_of_y = self._read_classes(y)
        check_consistent_length(table.given, codes_of_y)
        features = self._draft(table, needs_any=False)
        name = NAME
        while name in self._column_names:
            name += "_"
        schema = Schema((*features, Variable(name, _name_classes(self.classes_))))
        self._empty = table.given[:0]
        codes = np.maximum(self._encode(table, features), MISSING)
        target = schema.n_variables - 1
        both = np.column_stack([codes, codes_of_y])
        self._keep(self._fit_classes(both, schema, target, sample_weight))
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, float64 of shape (n_rows, n_classes), in the order of ``classes_``."""
        model = self._model
        table = UserTable.read(self, X, reset=False)
        target = model.schema.n_variables - 1
        codes = np.maximum(self._encode(table, model.schema.variables[:target]), MISSING)
        hidden = np.full((len(codes), 1), MISSING, codes.dtype)
        return model.predict_proba(np.column_stack([codes, hidden]), target)

    def predict(self, X: Any) -> Any:
        """Most probable class of each row, (n_rows,), of the dtype of ``classes_``; the first of equals."""
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    def _read_classes(self, y: Any) -> IntArray:
        """Codes of the classes, which are noted."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        given = column_or_1d(np.asarray(y), warn=True)
        if any(map(is_absent, given.tolist())):
            raise ValueError("Input y contains NaN: leave out the rows whose class is not given")
        if given.dtype.kind == "f" and np.isinf(given).any():
            raise ValueError(
                "Input y contains infinity: leave out the rows whose class is not given"
            )
        check_classification_targets(given)
        self.classes_, codes = np.unique(given, return_inverse=True)
        if len(given) >= LEAST_ROWS and 2 * len(self.classes_) >= len(given):
            raise ValueError(
                f"y has {len(self.classes_):,} classes in {len(given):,} rows, one in two or more; leave out the rows "
                "of rare classes, merge these, or cut a number into bins"
            )
        return np.asarray(codes, np.int16)


def _name_classes(classes: Any) -> tuple[str, ...]:
    """Levels of the classes: their texts, or their numbers where texts are not distinct."""
    names = tuple(as_text(each) for each in classes.tolist())
    distinct = {name.strip() for name in names}
    return names if len(distinct) == len(names) else tuple(map(str, range(len(names))))
