"""Fits that predict one variable: cuts, held-out scores, rivals."""

from pmflib.inference.target.cuts import choose_cuts as choose_cuts
from pmflib.inference.target.cuts import fit_trial as fit_trial
from pmflib.inference.target.rivals import compare_with_rivals as compare_with_rivals
from pmflib.inference.target.rivals import find_trial as find_trial
from pmflib.inference.target.rivals import fit_boosting as fit_boosting
from pmflib.inference.target.rivals import fit_logistic_regression as fit_logistic_regression
from pmflib.inference.target.rivals import score_rows as score_rows
