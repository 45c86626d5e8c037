"""How far a model agrees with the counts of its pairs: the dependence that it explains, and the pairs against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pmflib.core.arrays import FloatArray, IntArray, sum_blocks, sum_pairs
from pmflib.counting.pair_counts import PairCounts
from pmflib.em.forests.structure import find_residuals
from pmflib.model import JointPMF
from pmflib.model.associations import measure_in_counts

MAX_COMPARED_LEVELS = 2000
"""Levels up to which pairs are compared: there, in up to four seconds and 0.3 GB for tables of all pairs of levels."""
LISTED = 5
"""Pairs that contradict a model most and are described, at most."""
LEAST_GIVEN, MOST_GIVEN, SHARE_GIVEN = 30, 500, 0.01
"""Samples from which the shares of other levels among those with a level are compared: one in a hundred of those that
hold the pair, but 30 at least, for shares among fewer are chance, and 500 at most, which are enough of any number."""
CLEAR = 3.0
"""Standard errors from which a share is said to be off: a pair has hundreds of them."""
SHARE_BELIEVED, SHARE_POOR = 0.9, 0.8
"""Shares of the dependence explained from which probabilities can be believed, and below which a run warns."""
APART = 0.1
"""How far a share may be off, at most, for probabilities to be believed."""
LEAST_SUPPORT = 500
"""Samples that hold a pair, from which a run warns of a share of it that is further off."""


@dataclass(frozen=True)
class PairDeparture:
    """Two levels of a pair of variables, where a model is furthest off the counts.

    Parameters
    ----------
    given, level
        Variable and level each: of those that have the first, the share that has the second is compared.
    counted, modelled
        That share in the counts and by the model, in [0, 1].
    n_given
        Samples that hold both variables and have the first level.
    support
        Samples that hold both variables.
    """

    given: tuple[str, str]
    level: tuple[str, str]
    counted: float
    modelled: float
    n_given: int
    support: int

    @property
    def apart(self) -> float:
        """How far the shares are apart, in [0, 1]."""
        return abs(self.counted - self.modelled)

    @property
    def matters(self) -> bool:
        """Whether they are so far apart, in a pair of so many samples, that a run warns of it."""
        return self.apart > APART and self.support >= LEAST_SUPPORT

    def describe(self) -> str:
        """In words, without a full stop."""
        (condition, value), (name, level) = self.given, self.level
        counted, modelled = (f"{100 * each:.1f} %" for each in (self.counted, self.modelled))
        shares = f"{counted} have {name} = {level} in the counts, and {modelled} by the model"
        return f"of those with {condition} = {value}, {shares}"


@dataclass(frozen=True)
class PairAgreement:
    """How far a model agrees with the counts of its pairs.

    Parameters
    ----------
    n_pairs, n_contradicting
        Pairs that some sample holds, and those whose bivariate residual is large.
    information, missed
        Mutual information of the counts beyond chance, and divergence of the counts from the model beyond chance, nats:
        sums over the pairs.
    most
        The two variables whose residual is the largest; None where none is large.
    worst
        The pairs with the largest residuals among those with shares to compare, at most so many as `LISTED`.
    furthest
        The shares that are furthest apart among all pairs with large residuals; None where none are off beyond chance.
    """

    n_pairs: int
    n_contradicting: int
    information: float
    missed: float
    most: tuple[str, str] | None
    worst: tuple[PairDeparture, ...]
    furthest: PairDeparture | None

    @property
    def share_explained(self) -> float | None:
        """Share of the dependence between pairs that the model explains, in [0, 1]; None where counts have none."""
        if not self.information:
            return None
        return float(np.clip(1 - self.missed / self.information, 0.0, 1.0))

    @property
    def is_close(self) -> bool:
        """Whether it explains at least `SHARE_BELIEVED`, and no share departs by more than `APART`."""
        share = self.share_explained
        explained = share is None or share >= SHARE_BELIEVED
        return explained and (self.furthest is None or self.furthest.apart <= APART)

    @property
    def sentence(self) -> str:
        """What share of the dependence is explained, and how many pairs are against the model."""
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
        """What a careful user should know, and do: one sentence at most."""
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

    def to_json(self) -> dict[str, object]:
        """Plain JSON types, with the share explained."""
        return {**asdict(self), "share_explained": self.share_explained}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PairAgreement:
        """Read what `to_json` wrote."""
        most, furthest = content["most"], content["furthest"]
        return cls(
            content["n_pairs"],
            content["n_contradicting"],
            content["information"],
            content["missed"],
            None if most is None else (most[0], most[1]),
            tuple(_read_departure(each) for each in content["worst"]),
            None if furthest is None else _read_departure(furthest),
        )

    @classmethod
    def find(cls, facts: Mapping[str, Any]) -> PairAgreement | None:
        """Agreement of the model that a run made; None if none was measured: see `MAX_COMPARED_LEVELS`."""
        content = (facts.get("scores") or {}).get("pairs")
        return None if content is None else cls.from_json(content)


def _read_departure(content: Mapping[str, Any]) -> PairDeparture:
    return PairDeparture(
        **{**content, "given": tuple(content["given"]), "level": tuple(content["level"])}
    )


def compare_pairs(model: JointPMF, counts: PairCounts) -> PairAgreement:
    """Compare a model with the counts of all pairs of its variables.

    Parameters
    ----------
    model
        Latent classes, with or without forests or traits.
    counts
        Co-occurrence counts of samples of its schema; their folds are taken together.

    Returns
    -------
    The share of the dependence that the model explains, and the pairs that contradict it.

    Notes
    -----
    Of a pair that n samples hold, the mutual information of the counts and their Kullback-Leibler divergence from the
    model are both less (K - 1) (L - 1) / 2n nats, which chance alone gives, and at least 0; the share is 1 less the sum
    of the one over the sum of the other. Divergences are bivariate residuals: the model's table has the margins of the
    counted one, so that what is measured is dependence, and not PMFs of single variables. The shares of levels that are
    compared are the model's own.

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
    """Free levels of the one variable times those of the other, among the levels that samples of the pair have."""
    margins = sum_blocks(table, offsets, axis=1) > 0
    free = np.maximum(sum_blocks(margins.astype(np.int64), offsets) - 1, 0)
    return np.asarray(free * free.T)


def _find_furthest(
    model: JointPMF, table: IntArray, pairs: FloatArray, one: int, other: int
) -> PairDeparture | None:
    """The share of a level given one of the other variable that is furthest off, either way round; None if none is."""
    found = []
    for given, asked in ((one, other), (other, one)):
        rows, columns = model.schema.rows_of(given), model.schema.rows_of(asked)
        counted, modelled = table[rows, columns].astype(np.float64), pairs[rows, columns]
        n_given, support = counted.sum(axis=1, keepdims=True), counted.sum()
        counted = counted / np.maximum(n_given, 1.0)
        totals = modelled.sum(axis=1, keepdims=True)
        modelled = modelled / np.where(totals > 0, totals, 1.0)
        # of two levels the one is off as far as the other, whatever the last bits say: the first is taken
        apart = np.round(np.abs(counted - modelled), 12)
        # the mean of both shares has an error also where one of them is 0 or 1
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
