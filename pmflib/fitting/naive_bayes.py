"""Naive Bayes: one latent state per level of the target, read off the pair counts."""

from __future__ import annotations

import numpy as np

from pmflib.counting.marginals import normalise_singles
from pmflib.counting.pair_counts import PairCounts
from pmflib.level_blocks import normalise_blocks
from pmflib.model import JointPMF

PSEUDO_COUNT = 1.0
"""Pseudo-counts of a variable per level of the target, shared out by the variable's own PMF."""


def read_naive_bayes(counts: PairCounts, target: int) -> JointPMF:
    """Fit naive Bayes to all pairs of the target with another variable: no pass over the samples.

    Parameters
    ----------
    counts
        Co-occurrence counts of the training samples, of any number of folds.
    target
        Place of the target.

    Returns
    -------
    A joint PMF with a latent state for each level of the target, which the state determines. Its conditional PMFs are
    the shares among the samples where both variables are observed, with `PSEUDO_COUNT`; missing cells say nothing.

    References
    ----------
    Hand, Yu (2001), "Idiot's Bayes: not so stupid after all?".
    """
    schema = counts.schema
    own, offsets = schema.rows_of(target), schema.offsets
    upper = counts.tables.sum(axis=0)
    # pairs are counted once, above the diagonal
    pairs = (upper[own] + upper[:, own].T).T.astype(np.float64)
    singles = normalise_singles(np.diagonal(upper), offsets)
    # by level: within a variable the PMF sums to 1, so that each state gets so many in all
    mass = pairs + PSEUDO_COUNT * singles[:, None]
    factors = normalise_blocks(mass, offsets, singles[:, None])
    factors[own] = np.eye(own.stop - own.start)
    return JointPMF(singles[own], factors, schema, {"method": "naive Bayes"})
