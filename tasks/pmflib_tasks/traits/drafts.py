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
"""How a log of ratings is fitted. A choice of all this by held-out answers fits some twenty times. Of MovieLens 100K it
takes 4 dimensions and shrinkage .8, and 16 to 32 passes differ by less than their error. States serve questions: what
is predicted of a person uses the traits themselves, and more states cost memory.
"""


def draft_model(schema: Schema) -> Mapping[str, Any]:
    """Return how a log of ratings is drafted to be fitted; empty for other logs."""
    return RATINGS if are_ratings(schema) else {}
