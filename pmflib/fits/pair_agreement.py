"""Agreement of a model with the pair counts: explained dependence, and pairs that contradict the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray, sum_blocks, sum_pairs
from pmflib.base.json_records import JsonRecord
from pmflib.counts.pair_counts import PairCounts
from pmflib.fits.pair_residuals import find_residuals
from pmflib.model import JointPMF
from pmflib.model.associations import measure_in_counts

MAX_COMPARED_LEVELS = 2000
"""Number of levels up to which pairs are compared: up to four seconds, and 0.3 GB for tables of all pairs of levels."""
LISTED = 5
"""Maximum number of contradicting pairs that are described."""
LEAST_GIVEN, MOST_GIVEN, SHARE_GIVEN = 30, 500, 0.01
"""Minimum number of samples with a level for comparing the shares of other levels among them: one percent of the
samples of the pair, but at least 30, because smaller shares are dominated by chance, and at most 500, which are always
enough.
"""
CLEAR = 3.0
"""Number of standard errors from which a share is reported as deviating; a pair has hundreds of shares."""
SHARE_BELIEVED, SHARE_POOR = 0.9, 0.8
"""Share of explained dependence from which probabilities can be trusted, and below which a run warns."""
APART = 0.1
"""Maximum deviation of a share for probabilities to be trusted."""
LEAST_SUPPORT = 500
"""Number of samples of a pair from which a run warns about a larger deviation."""


@dataclass(frozen=True)
class PairDeparture:
    """Two levels of a pair of variables for which model and counts differ most.

    Parameters
    ----------
    given, level
        Variable and level each: the share of ``level`` among samples with ``given`` is compared.
    counted, modelled
        That share in the counts and in the model, in [0, 1].
    n_given
        Number of samples with both variables observed and the given level.
    support
        Number of samples with both variables observed.
    """

    given: tuple[str, str]
    level: tuple[str, str]
    counted: float
    modelled: float
    n_given: int
    support: int

    @property
    def apart(self) -> float:
        """Return the absolute difference of the shares, in [0, 1]."""
        return abs(self.counted - self.modelled)

    @property
    def matters(self) -> bool:
        """Return whether the difference and the number of samples are large enough for a warning."""
        return self.apart > APART and self.support >= LEAST_SUPPORT

    def describe(self) -> str:
        """Describe the difference, without a full stop."""
        (condition, value), (name, level) = self.given, self.level
        counted, modelled = (f"{100 * each:.1f} %" for each in (self.counted, self.modelled))
        shares = f"{counted} have {name} = {level} in the counts, and {modelled} by the model"
        return f"of those with {condition} = {value}, {shares}"


@dataclass(frozen=True)
class PairAgreement(JsonRecord):
    """Agreement of a model with the pair counts.

    Parameters
    ----------
    n_pairs, n_contradicting
        Number of observed pairs, and of pairs with a large bivariate residual.
    information, missed
        Mutual information of the counts and divergence of the counts from the model, both beyond chance, nats: sums
        over pairs.
    most
        The pair with the largest residual; None if no residual is large.
    worst
        Pairs with the largest residuals among those with comparable shares, at most `LISTED`.
    furthest
        The largest difference of shares among all pairs with large residuals; None if no share differs beyond chance.
    """

    computed: ClassVar[tuple[str, ...]] = ("share_explained",)

    n_pairs: int
    n_contradicting: int
    information: float
    missed: float
    most: tuple[str, str] | None
    worst: tuple[PairDeparture, ...]
    furthest: PairDeparture | None

    @property
    def share_explained(self) -> float | None:
        """Return the share of the dependence that the model explains, in [0, 1]; None without dependence."""
        if not self.information:
            return None
        return float(np.clip(1 - self.missed / self.information, 0.0, 1.0))

    @property
    def is_close(self) -> bool:
        """Return whether it explains at least `SHARE_BELIEVED`, and no share deviates by more than `APART`."""
        share = self.share_explained
        explained = share is None or share >= SHARE_BELIEVED
        return explained and (self.furthest is None or self.furthest.apart <= APART)

    @property
    def sentence(self) -> str:
        """Describe the share of explained dependence and the number of contradicting pairs."""
        share = self.share_explained
        if not self.n_pairs:
            return "No sample holds two variables: there is no dependence between pairs to explain."
        if share is None:
            said = "The counts have no dependence between pairs beyond chance"
        else:
            # cut, not rounded: 100 % is all of it
            said = f"The model explains {np.floor(round(1000 * share, 6)) / 10:g} % of the dependence between pairs"
        if self.most is None:
            return f"{said}; counts of none of {self.n_pairs} pairs contradict it."
        which = ":" if self.n_contradicting == 1 else ", most of all"
        against = f"counts of {self.n_contradicting} of {self.n_pairs} pairs contradict it{which}"
        return f"{said}; {against} {self.most[0]} and {self.most[1]}."

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return at most one sentence with a warning and its remedy."""
        share, furthest = self.share_explained, self.furthest
        reasons = []
        if share is not None and share < SHARE_POOR:
            reasons.append(
                f"the model misses {100 * (1 - share):.0f} % of the dependence between pairs"
            )
        if furthest is not None and furthest.matters:
            reasons.append(furthest.describe())
        if not reasons:
            return ()
        remedy = (
            'a larger model.rank, or model.dependence = "auto", follows the counts more closely'
        )
        return (
            f"{'; '.join(reasons)}: {remedy}, and questions about two variables are better asked of the counts",
        )


def compare_pairs(model: JointPMF, counts: PairCounts) -> PairAgreement:
    """Compare a model with the counts of all pairs of its variables.

    Parameters
    ----------
    model
        Latent classes, with or without forests or traits.
    counts
        Co-occurrence counts of samples with its schema; their folds are summed.

    Returns
    -------
    Share of the dependence that the model explains, and the pairs that contradict it.

    Notes
    -----
    For a pair with n samples, the mutual information of the counts and their Kullback-Leibler divergence from the model
    are both reduced by (K - 1) (L - 1) / 2n nats, the value expected by chance, with a minimum of 0; the share
    explained is 1 minus the ratio of their sums. Divergences are bivariate residuals: the model's table is fitted to
    the margins of the counts, so that they measure dependence rather than the PMFs of single variables. The compared
    shares of levels are the model's own.

    References
    ----------
    Miller (1955), "Note on the bias of information estimates"; Vermunt, Magidson (2005), "bivariate residuals".
    """
    offsets = model.schema.offsets
    table = counts.to_dense()
    n_both = sum_pairs(table, offsets)
    residuals = find_residuals(model, counts)
    upper = np.triu(n_both > 0, 1)
    information = measure_in_counts(table, offsets)[upper]
    divergence = residuals.gains - _count_free(table, offsets) / 2
    missed = np.maximum(divergence[upper], 0.0) / n_both[upper]
    pairs, position = model.find_pairs(), model.schema.position
    large = residuals.list_large()
    found = [
        _find_furthest(model, table, pairs, position(one), position(other))
        for one, other, _ in large
    ]
    off = [each for each in found if each is not None]
    return PairAgreement(
        int(upper.sum()),
        len(large),
        float(information.sum()),
        float(missed.sum()),
        large[0][:2] if large else None,
        tuple(off[:LISTED]),
        max(off, key=lambda each: each.apart, default=None),
    )


def _count_free(table: IntArray, offsets: IntArray) -> IntArray:
    """Return the degrees of freedom of each pair, counting levels that were observed in it."""
    margins = sum_blocks(table, offsets, axis=1) > 0
    free = np.maximum(sum_blocks(margins.astype(np.int64), offsets) - 1, 0)
    return np.asarray(free * free.T)


def _find_furthest(
    model: JointPMF, table: IntArray, pairs: FloatArray, one: int, other: int
) -> PairDeparture | None:
    """Find the share of a level given a level of the other variable that differs most; None if none does."""
    found = []
    for given, asked in ((one, other), (other, one)):
        rows, columns = model.schema.rows_of(given), model.schema.rows_of(asked)
        counted, modelled = table[rows, columns].astype(np.float64), pairs[rows, columns]
        n_given, support = counted.sum(axis=1, keepdims=True), counted.sum()
        counted = counted / np.maximum(n_given, 1.0)
        totals = modelled.sum(axis=1, keepdims=True)
        modelled = modelled / np.where(totals > 0, totals, 1.0)
        # with two levels both shares differ equally, whatever the last bits: the first is used
        apart = np.round(np.abs(counted - modelled), 12)
        # the mean of both shares has a positive variance even if one of them is 0 or 1
        mean = (counted + modelled) / 2
        noise = np.sqrt(mean * (1 - mean) / np.maximum(n_given, 1.0))
        least = max(LEAST_GIVEN, min(MOST_GIVEN, SHARE_GIVEN * support))
        apart = np.where((n_given >= least) & (apart > CLEAR * noise), apart, 0.0)
        a, b = np.unravel_index(int(apart.argmax()), apart.shape)
        if apart[a, b] > 0:
            first, second = model.schema[given], model.schema[asked]
            found.append(
                PairDeparture(
                    (first.name, first.levels[a]),
                    (second.name, second.levels[b]),
                    float(counted[a, b]),
                    float(modelled[a, b]),
                    int(n_given[a, 0]),
                    int(support),
                )
            )
    return max(found, key=lambda each: each.apart, default=None)
