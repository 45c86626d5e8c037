"""Erasure of samples: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "erasure",
    commands=(Command("erase", Place("pmflib_flows.erasure.erase:erase"), "Operate", 390),),
    status=Place("pmflib_flows.erasure.erase:find_erasure_status"),
)
