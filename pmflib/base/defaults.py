"""Defaults: candidate pseudo-counts, and limits and tolerances of passes.

A larger pseudo-count shrinks the PMFs of all states toward the variables' own. The best value depends mainly on the
number of samples per parameter and is therefore chosen on held-out data. The grids differ because the fits and their
costs differ:

=====================  =============  =================================================================================
grid                   values         reason
=====================  =============  =================================================================================
`FIT_PAIRS`            0, 1, 2        `fit`: a fit to pairs takes few iterations, which leave no exact zeros, so
                                      maximum likelihood (0) is a candidate; it is best with many samples.
`FIT_SAMPLES`          0.1, 0.3,      `fit_em`: converged EM gives probability 0 to unseen combinations, so 0 is not a
                       1, 2           candidate; the grid is finer below 1, where EM may stop early instead. It is
                                      searched from the default to neighbours while the score improves.
`FIT_TARGET`           0.02, 0.1, 1,  `fit_em` with a target: small values if the other variables almost determine the
                       5, 20, 80      target, large values if many variables are weakly related to it. Searched from
                                      neighbour to neighbour.
`RANKS_BY_PAIRS`       1, 0.1, 10     `select_rank`: ranks are compared under the first; other values matter only if
                                      they change the order of ranks, so steps of ten are sufficient.
`RANKS_BY_SAMPLES`     1, 0.1         `select_rank_by_rows`: every rank is fitted by EM with each value, and larger
                                      ranks have fewer samples per state. The chosen rank is refitted with
                                      `FIT_SAMPLES`.
=====================  =============  =================================================================================
"""

from __future__ import annotations

from typing import NamedTuple

from pmflib.base.constraints import at_least, check

DEFAULT_PSEUDO_COUNT = 1.0
"""Used if no data can be held out, and the first candidate otherwise: one extra sample per level, as in the rule of
succession (Laplace 1814), distributed like the levels' frequencies.
"""

FIT_PAIRS = (0.0, DEFAULT_PSEUDO_COUNT, 2.0)
"""Grid for `pmflib.fit` with method "auto"."""

FIT_SAMPLES = (0.1, 0.3, DEFAULT_PSEUDO_COUNT, 2.0)
"""Grid for `pmflib.fit_em`; increasing."""

FIT_TARGET = (0.02, 0.1, DEFAULT_PSEUDO_COUNT, 5.0, 20.0, 80.0)
"""Grid for `pmflib.fit_em` with a target; increasing."""

RANKS_BY_PAIRS = (DEFAULT_PSEUDO_COUNT, 0.1, 10.0)
"""Grid for `pmflib.fits.select_rank`; ranks are compared under the first."""

RANKS_BY_SAMPLES = (DEFAULT_PSEUDO_COUNT, 0.1)
"""Grid for `select_rank_by_rows`."""


class Limits(NamedTuple):
    """Stopping criteria of a run.

    Parameters
    ----------
    max_passes
        Maximum number of passes, at least 0.
    tol
        Relative change of the objective, or of the held-out log-likelihood, that counts as an improvement, at least 0,
        or what else a family of models compares.
    patience
        Number of passes without an improvement of the held-out log-likelihood before stopping, at least 1.
    """

    max_passes: int = 200
    tol: float = 1e-6
    patience: int = 10

    def check(self) -> None:
        """Check that the limits are in range.

        Raises
        ------
        PmfError
            If one of them is below its minimum.
        """
        check(at_least(0), max_passes=self.max_passes, tol=self.tol)
        check(at_least(1), patience=self.patience)


LIMITS = Limits()
"""Limits for passes over samples."""
