"""scikit-learn estimators for tables with missing cells: classifier, imputer, density estimator and transformer."""

from typing import TYPE_CHECKING

from pmflib.base.faces import make_face

if TYPE_CHECKING:
    from pmflib.apps.estimators.classifier import PMFClassifier
    from pmflib.apps.estimators.density import PMFDensity, PMFTransformer
    from pmflib.apps.estimators.imputer import PMFImputer

__all__ = ["PMFClassifier", "PMFDensity", "PMFImputer", "PMFTransformer"]

_HOMES = {
    "PMFClassifier": "pmflib.apps.estimators.classifier",
    "PMFDensity": "pmflib.apps.estimators.density",
    "PMFImputer": "pmflib.apps.estimators.imputer",
    "PMFTransformer": "pmflib.apps.estimators.density",
}

__getattr__, __dir__ = make_face(__name__, _HOMES)
