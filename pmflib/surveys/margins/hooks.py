"""What known margins add to the core."""

HOOKS = {"stored_designs": {"raking": "pmflib.surveys.margins.stored:open_raked"}}
