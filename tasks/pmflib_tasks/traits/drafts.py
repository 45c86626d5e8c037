"""What a draft says of traits."""

from pmflib.families.traits.level_scores import are_ratings
from pmflib.schema import Schema


def draft_method(schema: Schema) -> str:
    """Return the method by which a log of ratings is drafted to be fitted; "" for that of other logs."""
    return "compare" if are_ratings(schema) else ""
