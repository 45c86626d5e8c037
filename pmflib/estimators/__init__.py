"""scikit-learn estimators for tables with missing cells: classifier, imputer, density estimator and transformer."""

from pmflib.estimators.classifier import PMFClassifier
from pmflib.estimators.density import PMFDensity, PMFTransformer
from pmflib.estimators.imputer import PMFImputer

__all__ = ["PMFClassifier", "PMFDensity", "PMFImputer", "PMFTransformer"]
