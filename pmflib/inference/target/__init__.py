"""Fits that predict one variable: cuts, held-out scores, rivals."""
