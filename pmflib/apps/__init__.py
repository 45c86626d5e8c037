"""Products on top of the library: estimators, scoring of files, recommendations, label logs, demonstrations.

Public names are those that the features offer under the hook ``"face"``; the imports below are for type checkers.
"""

from typing import TYPE_CHECKING

from pmflib.base.faces import list_homes, make_face

if TYPE_CHECKING:
    from pmflib.apps.estimators import PMFClassifier as PMFClassifier
    from pmflib.apps.estimators import PMFDensity as PMFDensity
    from pmflib.apps.estimators import PMFImputer as PMFImputer
    from pmflib.apps.estimators import PMFTransformer as PMFTransformer
    from pmflib.apps.recommending.measures import measure_recommendations as measure_recommendations
    from pmflib.apps.recommending.recommending import recommend as recommend
    from pmflib.apps.scoring.file_scoring import score_file as score_file

__all__ = list(_HOMES := list_homes(__name__))

__getattr__, __dir__ = make_face(__name__, _HOMES)
