"""What a draft says of traits."""

from collections.abc import Mapping
from typing import Any

from pmflib.families.traits.level_scores import are_ratings
from pmflib.schema import Schema

RATINGS = {
    "rank": 100,
    "method": "traits",
    "method_options": {"dimensions": 4, "shrinkage": 0.8, "passes": 16},
}
"""How a log of ratings is fitted. A choice of all this by held-out answers takes twenty times as long as the fit, and
predicts hidden ratings of MovieLens 100K no better (`benchmarks.models.trait_settings`). States serve questions, and
predictions of a person's answers use the traits themselves: more than 100 states cost memory.
"""


def draft_model(schema: Schema) -> Mapping[str, Any]:
    """Return how a log of ratings is drafted to be fitted; empty for other logs."""
    return RATINGS if are_ratings(schema) else {}
