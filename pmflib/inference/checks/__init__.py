"""Tests of fit: bivariate residuals, likelihood-ratio tests of the rank, diagnostics."""
