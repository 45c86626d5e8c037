"""What is compared and how long passes go on unless somebody says otherwise: pseudo-counts, passes, tolerances.

A larger pseudo-count draws the PMFs of all states toward the variables' own. The best one depends on how many samples
there are per parameter, and hardly on anything else that is known beforehand, so that it is compared on held-out data.
The grids differ because what is fitted differs, and what a candidate costs:

=====================  =============  =================================================================================
grid                   values         reason
=====================  =============  =================================================================================
`FIT_PAIRS`            0, 1, 2        `fit`: a fit of pairs takes few iterations, which leave no exact zeros, so that
                                      maximum likelihood (0) is a candidate; it wins where samples are many.
`FIT_SAMPLES`          0.1, 0.3,      `fit_em`: EM that has converged rules out with certainty what it has not seen, so
                       1, 2           0 is none; below 1 the grid is finer, as EM may stop early instead. Neighbours
                                      are tried in turn, from the default on, as long as the score rises.
`FIT_TARGET`           0.02, 0.1, 1,  `fit_em` with a target: weak ones where the target is all but determined, strong
                       5, 20, 80      ones where many variables say little of it each. Tried from neighbour to
                                      neighbour.
`RANKS_BY_PAIRS`       1, 0.1, 10     `select_rank`: ranks are compared under the first; another matters only where it
                                      changes their order, so that steps of ten are fine enough.
`RANKS_BY_SAMPLES`     1, 0.1         `select_rank_by_rows`: every rank is fitted by EM with each of them, and larger
                                      ranks have fewer samples per state to outweigh it. The chosen rank is fitted
                                      anew with `FIT_SAMPLES`.
=====================  =============  =================================================================================
"""

from __future__ import annotations

from typing import NamedTuple

from pmflib.core.errors import PmfError

DEFAULT_PSEUDO_COUNT = 1.0
"""Taken where nothing can be held out, and the first to be compared: one sample more of every level, as in the rule of
succession (Laplace 1814), in proportion to the levels' frequencies."""

FIT_PAIRS = (0.0, DEFAULT_PSEUDO_COUNT, 2.0)
"""For `pmflib.fit` with method "auto"."""

FIT_SAMPLES = (0.1, 0.3, DEFAULT_PSEUDO_COUNT, 2.0)
"""For `pmflib.fit_em`; rising."""

FIT_TARGET = (0.02, 0.1, DEFAULT_PSEUDO_COUNT, 5.0, 20.0, 80.0)
"""For `pmflib.fit_em` with a target; rising."""

RANKS_BY_PAIRS = (DEFAULT_PSEUDO_COUNT, 0.1, 10.0)
"""For `pmflib.select_rank`; the first is what ranks are compared under."""

RANKS_BY_SAMPLES = (DEFAULT_PSEUDO_COUNT, 0.1)
"""For `select_rank_by_rows`."""


class Limits(NamedTuple):
    """When the passes of a run end.

    Parameters
    ----------
    max_passes
        Limit of the passes, at least 0.
    tol
        Share of the objective, or of the held-out log-likelihood, that counts as a gain, at least 0; of label logs the
        share of the labels that a pass may still move between classes.
    patience
        Passes without a rise of the held-out log-likelihood before stopping, at least 1.
    """

    max_passes: int = 200
    tol: float = 1e-6
    patience: int = 10

    def check(self) -> None:
        """Refuse limits that are out of range.

        Raises
        ------
        PmfError
            If one of them is below its least value.
        """
        for name, least in (("max_passes", 0), ("tol", 0), ("patience", 1)):
            if not (value := getattr(self, name)) >= least:
                raise PmfError(f"{name} is {value}; give at least {least}")


LIMITS = Limits()
"""Limits of passes over samples."""
LABEL_LIMITS = Limits(tol=1e-4)
"""Limits of passes over label logs: on drawn logs labels are no better for making more passes."""
MOST_CLASSES = 1000
"""Most distinct labels of a log: with more it is not the label column."""
MANY_CLASSES = 100
"""Distinct labels of a log above which somebody should look: confusion matrices are of their number squared."""
