"""What drafting adds to the core: the schema of a table in memory, and changes of it."""

HOOKS = {
    "drafts": {
        "tables": "pmflib.surveys.drafting.inferred_schema:infer_schema",
        "changes": "pmflib.surveys.drafting.changed_schema:change_schema",
    }
}
