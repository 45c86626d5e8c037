"""Tests of fit: bivariate residuals, likelihood-ratio tests of the rank, diagnostics."""

from pmflib.inference.checks.bivariate_residuals import count_work as count_work
from pmflib.inference.checks.bivariate_residuals import measure_residuals as measure_residuals
from pmflib.inference.checks.diagnostics import count_moments as count_moments
