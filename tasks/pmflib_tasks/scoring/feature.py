"""Scores and predictions of samples: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "scoring",
    commands=(Command("score", Place("pmflib_flows.scoring.score:score"), "Ask", 120),),
    deployments={"score": Place("pmflib_flows.scoring.score_flow:score_flow")},
)
