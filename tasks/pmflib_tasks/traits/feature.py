"""Models with continuous traits: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "traits",
    plan=Place("pmflib_tasks.traits.fit_traits:plan_stages"),
    steps=Place("pmflib_tasks.traits.choose:STEPS"),
)
