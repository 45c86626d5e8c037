"""Items ranked for each person, by a regression on all other items."""

from pmflib.apps.recommending.options import Recommendations as Recommendations
from pmflib.apps.recommending.recommending import Recommender as Recommender
