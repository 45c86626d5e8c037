"""Classifier: predicts one variable from the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from pmflib.apps.estimators.joint_estimator import JointEstimator
from pmflib.apps.estimators.user_tables import UserTable
from pmflib.base.arrays import FloatArray, IntArray, check_row_order
from pmflib.base.blocks import DenseBlock
from pmflib.base.codes import Codes
from pmflib.base.errors import SchemaError
from pmflib.base.variance import weigh_samples
from pmflib.fits.fit_result import FitResult
from pmflib.inference.target.cuts import choose_cuts
from pmflib.inference.target.rivals import compare_with_rivals, find_trial
from pmflib.schema import MISSING, Schema, Variable
from pmflib.schema.tables import read_numbers
from pmflib.schema.variable import as_text, is_absent

NAME = "target"
"""Name of the class variable in the model's schema."""
LEAST_ROWS = 20
"""Number of rows from which more than one class per two rows is an error, since classes with a single row are never
predicted.
"""


class PMFClassifier(ClassifierMixin, JointEstimator):  # type: ignore[misc]
    """Classifier based on a joint PMF of features and class, fitted to predict the class.

    Parameters and attributes are those of `JointEstimator`, plus

    Attributes
    ----------
    classes_
        Sorted classes, (n_classes,).
    pool_
        Models whose predictions are averaged, a `pmflib.fits.target_pool.TargetPool`, if ``rank`` is None; else None.

    Notes
    -----
    Without a rank, models of several kinds and sizes are fitted, and their predictions are averaged with the weights
    that predict held-out rows best. ``model_`` is a mixture of those that were fitted to all variables, for questions
    about these; its own prediction of the class is another one.
    The class variable is the last one of ``model_``. It is named "target", or ``target_`` if there is a feature of that
    name. See `docs/targets.md` for the fit. Without a schema, numbers are binned at quantiles, or at cuts by the
    class where these predict it better on held-out rows. With 200 rows or more, the notes of ``result_`` say which, and
    whether logistic regression or gradient boosting predicts the class better on held-out rows, and by how much.

    Examples
    --------
    >>> import pmflib as pmf
    >>> X = [["red", "round"], ["red", "long"], ["green", "long"], ["green", "round"]] * 20
    >>> pmf.PMFClassifier().fit(X, ["apple", "chili", "bean", "apple"] * 20).predict([["green", "long"]]).tolist()
    ['bean']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a joint PMF of the features and the class.

        Parameters
        ----------
        X
            DataFrame, Arrow table, or array of shape (n_rows, n_columns); cells may be missing.
        y
            Class of each row, (n_rows,), without missing values.
        sample_weight
            Weights of the rows, numbers above 0 of shape (n_rows,); None for 1 each. See `pmflib.fit_em`.

        Returns
        -------
        The estimator.

        Raises
        ------
        SchemaError
            If X has no rows or columns, or contains infinity; if y is not a vector of matching length, or has more than
            one class per two rows; or if the given schema does not fit.
        """
        check_row_order(X, y=y, sample_weight=sample_weight)
        table = UserTable.read(self, X, reset=True)
        try:
            codes_of_y = self._read_classes(y)
            check_consistent_length(table.given, codes_of_y)
        except ValueError as error:
            raise SchemaError(str(error)) from error
        features = self._draft(table, needs_any=False)
        name = NAME
        while name in self._column_names:
            name += "_"
        schema = Schema((*features, Variable(name, _name_classes(self.classes_))))
        self._empty = table.given[:0]
        codes = np.maximum(self._encode(table, features), MISSING)
        target = schema.n_variables - 1
        both = np.column_stack([codes, codes_of_y])
        result = self._fit_classes(both, schema, target, sample_weight)
        block = weigh_samples(DenseBlock(both), sample_weight, schema.weight_decimals)
        if self.schema is None:
            # an average has the states of all members
            rank = None if self.rank is None else max(1, result.model.rank // self.members)

            def refit(cut: DenseBlock, recut: Schema) -> FitResult:
                return self._fit_classes(cut.codes, recut, target, sample_weight, rank)

            numbers = {
                position: read_numbers(table.columns[variable.column])
                for position, variable in enumerate(features)
                if variable.edges is not None
            }
            chosen = choose_cuts(block, schema, target, numbers, result, refit)
            block, schema, result = chosen.block, chosen.schema, chosen.result
            result = replace(result, notes=(*result.notes, *chosen.notes))
            self._keep_values(table, schema.variables[:target])
        compared = compare_with_rivals(block, schema, target, find_trial(result))
        self._keep(replace(result, notes=(*compared, *result.notes)))
        self.pool_ = result.pool
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities, float64 of shape (n_rows, n_classes), in the order of ``classes_``."""
        model = self._model
        table = UserTable.read(self, X, reset=False)
        target = model.schema.n_variables - 1
        codes = np.maximum(self._encode(table, model.schema.variables[:target]), MISSING)
        hidden = np.full((len(codes), 1), MISSING, codes.dtype)
        rows = Codes(np.column_stack([codes, hidden]))
        if self.pool_ is not None:
            return self.pool_.predict_proba(rows, target)
        return model.predict_proba(rows, target)

    def predict(self, X: Any) -> Any:
        """Predict the most probable class of each row, (n_rows,), with the dtype of ``classes_``."""
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]

    def _read_classes(self, y: Any) -> IntArray:
        """Encode the classes, and store them."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None."
            )
        given = column_or_1d(np.asarray(y), warn=True)
        if any(map(is_absent, given.tolist())):
            raise ValueError("Input y contains NaN: remove the rows without a class")
        if given.dtype.kind == "f" and np.isinf(given).any():
            raise ValueError("Input y contains infinity: remove the rows without a class")
        check_classification_targets(given)
        self.classes_, codes = np.unique(given, return_inverse=True)
        if len(given) >= LEAST_ROWS and 2 * len(self.classes_) >= len(given):
            raise ValueError(
                f"y has {len(self.classes_):,} classes in {len(given):,} rows, one in two or more; leave out the rows "
                "of rare classes, merge these, or cut a number into bins"
            )
        return np.asarray(codes, np.int16)


def _name_classes(classes: Any) -> tuple[str, ...]:
    """Return the levels of the class variable: texts, or numbers if the texts are not distinct."""
    names = tuple(as_text(each) for each in classes.tolist())
    distinct = {name.strip() for name in names}
    return names if len(distinct) == len(names) else tuple(map(str, range(len(names))))
