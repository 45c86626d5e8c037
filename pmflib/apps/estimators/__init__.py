"""scikit-learn estimators for tables with missing cells: classifier, imputer, density estimator and transformer."""

from pmflib.apps.estimators.classifier import PMFClassifier
from pmflib.apps.estimators.density import PMFDensity, PMFTransformer
from pmflib.apps.estimators.imputer import PMFImputer

__all__ = ["PMFClassifier", "PMFDensity", "PMFImputer", "PMFTransformer"]
