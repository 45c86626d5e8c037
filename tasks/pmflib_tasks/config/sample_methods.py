"""The table of methods that only a pipeline has."""

from pmflib.base.methods import Method, tabulate

SAMPLE_METHODS = tabulate(
    Method(
        "traits",
        "samples",
        "pmflib.families.traits.traits:fit_traits",
        "continuous traits of people, discretised to latent states",
        "the training samples in memory, 4 bytes per observed cell",
    ),
    Method(
        "compare",
        "choice",
        "pmflib_tasks.gate.comparison:choose_model",
        "traits or latent classes (auto), whichever predicts hidden answers in the validation folds better",
        "the memory of traits; latent classes are used if it is not available",
    ),
)
"""Methods available only in the pipeline.

"samples" fits samples directly; the stages `select` and `fit` are skipped. "choice" fits both ways and compares them:
called with a `PairedGain`, it returns a `ModelChoice`.
"""
