"""Sampling weights and survey designs, and variances that follow from them."""

from pmflib.surveys.design.linearised import linearise as linearise
from pmflib.surveys.design.replicate_counts import plan_replicates as plan_replicates
from pmflib.surveys.design.replicates import DrawnRows as DrawnRows
from pmflib.surveys.design.replicates import Method as Method
from pmflib.surveys.design.replicates import Replicates as Replicates
from pmflib.surveys.design.replicates import find_stored_replicates as find_stored_replicates
from pmflib.surveys.design.replicates import fit_replicates as fit_replicates
from pmflib.surveys.design.sample_designs import StoredRows as StoredRows
from pmflib.surveys.design.survey_design import SurveyDesign as SurveyDesign
