"""What known margins add to the core: raked weights of stored samples."""

HOOKS = {
    "face": {
        "RakedDesign": "pmflib.surveys.margins.samples:RakedDesign",
        "rake": "pmflib.surveys.margins.samples:rake",
    },
    "stored_weights": {
        "raking": "pmflib.surveys.margins.stored_weights:open_raking",
    },
    "stored_designs": {
        "raking": "pmflib.surveys.margins.stored:open_raked",
    },
    "model_methods": {"rake": "pmflib.surveys.margins.model:rake_model"},
}
