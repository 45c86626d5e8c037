"""What known margins add to the core: raked weights of stored samples."""

HOOKS = {"stored_weights": {"raking": "pmflib.surveys.margins.stored_weights:open_raking"}}
