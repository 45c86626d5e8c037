"""Estimators of scikit-learn: classifier, imputer, density and transformer, of frames and arrays with missing cells."""

from pmflib.estimators.classifier import PMFClassifier
from pmflib.estimators.density import PMFDensity, PMFTransformer
from pmflib.estimators.imputer import PMFImputer

__all__ = ["PMFClassifier", "PMFDensity", "PMFImputer", "PMFTransformer"]
