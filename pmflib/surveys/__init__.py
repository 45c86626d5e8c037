"""What is about survey data: drafts, files of statistics programs, designs, known margins, sites.

Public names are those that the features offer under the hook ``"face"``; the imports below are for type checkers.
"""

from typing import TYPE_CHECKING

from pmflib.base.faces import list_homes, make_face

if TYPE_CHECKING:
    from pmflib.surveys.design.replicates import fit_replicates as fit_replicates
    from pmflib.surveys.design.survey_design import SurveyDesign as SurveyDesign
    from pmflib.surveys.margins.samples import RakedDesign as RakedDesign
    from pmflib.surveys.margins.samples import rake as rake
    from pmflib.surveys.sites.site_counts import read_counts as read_counts

__all__ = list(_HOMES := list_homes(__name__))

__getattr__, __dir__ = make_face(__name__, _HOMES)
