"""Questions to a model: what the feature adds to the pipeline."""

from pmflib_tasks.feature import Command, Feature, Place

FEATURE = Feature(
    "questions",
    commands=(Command("query", Place("pmflib_flows.questions.query:query"), "Ask", 110),),
    erase=Place("pmflib_tasks.questions.answer:HOLDER"),
)
