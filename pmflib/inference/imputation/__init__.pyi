"""Missing answers drawn several times, and estimates pooled over the draws."""

from pmflib.inference.imputation.imputing import draw_gaps as draw_gaps
from pmflib.inference.imputation.imputing import draw_uniforms as draw_uniforms
from pmflib.inference.imputation.imputing import seed_rows as seed_rows
from pmflib.inference.imputation.resampled_fits import Refits as Refits
from pmflib.inference.imputation.resampled_fits import fit_resampled as fit_resampled
