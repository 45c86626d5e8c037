"""What this feature adds to the core."""

HOOKS = {
    "face": {
        "PMFClassifier": "pmflib.apps.estimators:PMFClassifier",
        "PMFDensity": "pmflib.apps.estimators:PMFDensity",
        "PMFImputer": "pmflib.apps.estimators:PMFImputer",
        "PMFTransformer": "pmflib.apps.estimators:PMFTransformer",
    },
    "model_attributes": {"estimator": "pmflib.apps.estimators.joint_estimator:JointEstimator"},
}
