"""Models with continuous traits: what the feature adds to the pipeline."""

from pmflib.base.methods import Method
from pmflib_tasks.feature import Feature, Place

FEATURE = Feature(
    "traits",
    methods=(
        Method(
            "traits",
            "samples",
            "pmflib.families.traits.traits:fit_traits",
            "continuous traits of people, discretised to latent states",
            "the training samples in memory, 4 bytes per observed cell",
            "pmflib.families.traits.em:TraitOptions",
        ),
        Method(
            "compare",
            "choice",
            "pmflib_tasks.gate.comparison:choose_model",
            "traits or latent classes (auto), whichever predicts hidden answers in the validation folds better",
            "the memory of traits; latent classes are used if it is not available",
        ),
    ),
    draft_model=Place("pmflib_tasks.traits.drafts:draft_model"),
    plan=Place("pmflib_tasks.traits.fit_traits:plan_stages"),
    steps=Place("pmflib_tasks.traits.choose:STEPS"),
)
