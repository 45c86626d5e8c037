"""Tests of fit: bivariate residuals, likelihood-ratio tests of the rank, diagnostics."""

from pmflib.inference.checks.bivariate_residuals import measure_residuals as measure_residuals
