"""What a draft says of traits."""

from collections.abc import Mapping
from typing import Any

from pmflib.families.traits.level_scores import are_ratings
from pmflib.schema import Schema

RATINGS = {
    "rank": 100,
    "method": "traits",
    "method_options": {"shrinkage": 0.8, "passes": 16},
}
"""How a log of ratings is fitted. Of MovieLens 100K, a choice by held-out answers takes this shrinkage, and 16 to 32
passes differ by less than their error. Dimensions are chosen: 4 there, none where films have ten ratings each, as in
latest small, and no number suits both. States serve questions: what is predicted of a person uses the traits
themselves, and a choice of more states takes most of the time and memory.
"""


def draft_model(schema: Schema) -> Mapping[str, Any]:
    """Return how a log of ratings is drafted to be fitted; empty for other logs."""
    return RATINGS if are_ratings(schema) else {}
