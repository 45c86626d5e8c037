"""Imputation of missing answers: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "imputation",
    commands=(Command("impute", Place("pmflib_flows.imputation.impute:impute"), "Ask", 130),),
)
