"""What is said of any fit: errors, tests of fit, three steps, targets, imputation, planning.

Public names are those that the features offer under the hook ``"face"``; the imports below are for type checkers.
"""

from typing import TYPE_CHECKING

from pmflib.base.faces import list_homes, make_face

if TYPE_CHECKING:
    from pmflib.inference.checks.bivariate_residuals import (
        bivariate_residuals as bivariate_residuals,
    )
    from pmflib.inference.checks.diagnostics import diagnose as diagnose
    from pmflib.inference.checks.rank_tests import likelihood_ratio_test as likelihood_ratio_test
    from pmflib.inference.errors.standard_errors import standard_errors as standard_errors
    from pmflib.inference.imputation.pooling import pool as pool
    from pmflib.inference.planning.sample_sizes import bound_sample_size as bound_sample_size
    from pmflib.inference.planning.sample_sizes import sample_size as sample_size
    from pmflib.inference.three_steps.classification import classify as classify
    from pmflib.inference.three_steps.three_steps import class_regression as class_regression
    from pmflib.inference.three_steps.three_steps import distal_outcome as distal_outcome

__all__ = list(_HOMES := list_homes(__name__))

__getattr__, __dir__ = make_face(__name__, _HOMES)
