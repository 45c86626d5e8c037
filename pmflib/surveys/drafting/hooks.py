"""What drafting adds to the core: the schema of a table in memory."""

HOOKS = {"drafts": {"tables": "pmflib.surveys.drafting.inferred_schema:infer_schema"}}
