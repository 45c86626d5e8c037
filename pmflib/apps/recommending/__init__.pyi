"""Items ranked for each person, by a model or by counts of pairs."""

from pmflib.apps.recommending.options import Recommendations as Recommendations
from pmflib.apps.recommending.recommending import Recommender as Recommender
