"""Samples supporting an answer, conditions without support, and contradictions between counts and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from pmflib.answering.conditional_tables import TableRequest
from pmflib.answering.evidence import Evidence
from pmflib.answering.question import BoundQuestion
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.display.summary import decimal
from pmflib.model.conditions import Conditions, describe_conditions, list_few
from pmflib.schema import Schema

LEAST_EXPECTED = 5.0
"""Minimum expected count in a cell for the chi-squared approximation: Cochran's rule, for four cells in five."""
FEW = 10
"""Number of samples below which an answer contains a warning."""


@dataclass(frozen=True)
class ConditionSupport:
    """Numbers of samples that meet a set of conditions.

    Parameters
    ----------
    conditions
        The conditions as text; empty if there are none.
    samples
        Number of samples that meet them.
    is_exact
        Whether the numbers are exact; otherwise they are upper bounds from counts of pairs.
    with_targets
        Number of these samples in which the target variables are observed; an upper bound unless exact.
    expected
        Upper bound on the number of samples that meet the conditions according to the model, if the actual number is
        unknown; else None.
    """

    conditions: str
    samples: int
    is_exact: bool
    with_targets: int
    expected: float | None = None


@dataclass(frozen=True)
class Support:
    """Samples supporting an answer.

    Parameters
    ----------
    n_rows
        Number of samples of the data.
    variables
        Number of samples in which each variable of the question is observed, by name.
    pairs
        Pairs of these variables, and the number of samples in which both are observed, in ascending order. Empty for a
        single variable, or without counts of pairs.
    given
        Support of each set of conditions.
    n_counted
        Number of samples in which three or more variables were counted, if not all; None if all.
    are_effective
        Whether all these numbers are effective sample sizes, because of weights or a sampling design.
    """

    n_rows: int
    variables: Mapping[str, int]
    pairs: Sequence[tuple[str, str, int]]
    given: Sequence[ConditionSupport]
    n_counted: int | None = None
    are_effective: bool = False

    @property
    def least_pair(self) -> tuple[str, str, int] | None:
        """Pair of variables with the fewest samples."""
        return self.pairs[0] if self.pairs else None

    def __str__(self) -> str:
        """Return a one-line description."""
        what = "effective samples" if self.are_effective else "samples"
        said = [f"{self.n_rows:,} {what}"]
        if self.n_counted is not None:
            said = [f"{self.n_counted:,} of {self.n_rows:,} {what} were counted"]
        if (least := self.least_pair) is not None:
            first, second, n = least
            if len(self.pairs) == 1:
                said.append(f"{n:,} hold {first} and {second}")
            else:
                said.append(
                    f"at least {n:,} hold any two of these variables (fewest: {first} and {second})"
                )
        else:
            said += [f"{n:,} hold {name}" for name, n in self.variables.items()]
        for each in self.given:
            if each.conditions:
                most = "" if each.is_exact else "at most "
                said.append(f"{most}{each.samples:,} have {each.conditions}")
        return "; ".join(said)

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types."""
        return {
            "samples": self.n_rows,
            "effective": self.are_effective,
            "counted_samples": self.n_rows if self.n_counted is None else self.n_counted,
            "variables": dict(self.variables),
            "pairs": [{"variables": [a, b], "samples": n} for a, b, n in self.pairs],
            "given": [asdict(each) for each in self.given],
        }


def find_support(
    bound: BoundQuestion,
    evidence: Evidence,
    counted: Sequence[IntArray | None],
    chances: Sequence[float],
) -> tuple[Support, list[str]]:
    """Find the samples supporting an answer.

    Parameters
    ----------
    bound
        The question.
    evidence
        The data.
    counted
        Number of samples that meet each set of conditions, by combination of levels of the target variables; None if
        unknown.
    chances
        Probability of each set of conditions under the model.

    Returns
    -------
    The support, and a warning for each set of conditions with few or no samples.
    """
    schema = bound.schema
    evidence.count(list_support_requests(bound))
    singles = {
        schema[position].name: _count(evidence, _request_all(bound, [position]))
        for position in bound.involved
    }
    doubts = [
        f"{name!r} was never observed: what is said of it is no knowledge"
        for name, n in singles.items()
        if n == 0
    ]
    pairs = []
    for first, second in combinations(bound.involved, 2):
        n = _count(evidence, _request_all(bound, [first, second]))
        names = schema[first].name, schema[second].name
        if n is not None:
            pairs.append((*names, n))
        if n == 0 and singles[names[0]] and singles[names[1]]:
            doubts.append(
                f"{names[0]!r} and {names[1]!r} were never observed together: what is said of both comes through other "
                "variables"
            )
    given = []
    for conditions, counts, chance in zip(bound.given, counted, chances, strict=False):
        given.append(_describe(bound, evidence, conditions, counts, chance))
        doubts += _doubt(bound, evidence, conditions, given[-1])
    pairs.sort(key=lambda pair: pair[2])
    known = {name: n for name, n in singles.items() if n is not None}
    found = evidence.n_rows, known, tuple(pairs), tuple(given), evidence.n_counted
    return Support(*found, evidence.are_effective), doubts


def list_support_requests(bound: BoundQuestion) -> list[TableRequest]:
    """List the counts that `find_support` needs: one, two and all of the conditions, and observed variables."""
    involved = [*bound.involved]
    sets = [*((each,) for each in involved), *combinations(involved, 2)]
    found = [_request_all(bound, positions) for positions in sets]
    for given in bound.given:
        found.append(_request(given))
        found += [_request({each: given[each] for each in few}) for few in list_few(given)]
    return found


def _request_all(bound: BoundQuestion, positions: Sequence[int]) -> TableRequest:
    """Request the number of samples in which some variables are observed."""
    sizes = bound.schema.cardinalities
    return _request({each: tuple(range(int(sizes[each]))) for each in positions})


def _count(evidence: Evidence, request: TableRequest) -> int | None:
    counts = evidence.find(request)
    return None if counts is None else int(counts.sum())


def _describe(
    bound: BoundQuestion,
    evidence: Evidence,
    conditions: Conditions,
    counts: IntArray | None,
    chance: float,
) -> ConditionSupport:
    """Find the number of samples that meet some conditions."""
    words = describe_conditions(bound.schema, conditions)
    if not conditions:
        n_with = evidence.n_rows if counts is None else int(counts.sum())
        return ConditionSupport("", evidence.n_rows, True, n_with)
    n = _count(evidence, _request(conditions))
    if n is not None:
        return ConditionSupport(words, n, True, n if counts is None else int(counts.sum()))
    # counts of pairs give an upper bound: samples that meet two conditions, or meet one and have a target observed
    some = [_request({p: conditions[p] for p in few}) for few in list_few(conditions)]
    most = min(_count(evidence, each) or 0 for each in some)
    others = [position for position in bound.targets if position not in conditions]
    with_targets = [
        _count(evidence, TableRequest((target,), _request({p: codes}).given)) or 0
        for p, codes in conditions.items()
        for target in others
    ]
    fewest = min(
        _count(evidence, _request_all(bound, pair)) or 0 for pair in combinations(conditions, 2)
    )
    return ConditionSupport(words, most, False, min([most, *with_targets]), chance * fewest)


def _request(conditions: Conditions) -> TableRequest:
    return TableRequest((), tuple(conditions.items()))


def _doubt(
    bound: BoundQuestion, evidence: Evidence, conditions: Conditions, found: ConditionSupport
) -> list[str]:
    """Return warnings on conditions that few or no samples meet."""
    if not conditions:
        return []
    for few in [*list_few(conditions), tuple(conditions)]:
        if _count(evidence, _request({p: conditions[p] for p in few})) == 0:
            words = describe_conditions(bound.schema, conditions, few)
            return [
                f"no row of the data has {words}: this answer is what the model makes of rows like it"
            ]
    names = ", ".join(bound.schema[position].name for position in bound.targets)
    if not found.with_targets:
        return [f"no row of the data that has {found.conditions} holds {names}"]
    most = "only" if found.is_exact else "at most"
    if found.samples < FEW:
        rows = "effective samples" if evidence.are_effective else "rows of the data"
        return [f"{most} {found.samples} {rows} have {found.conditions}"]
    if found.with_targets < FEW:
        return [
            f"of the rows of the data that have {found.conditions} only {found.with_targets} hold {names}"
        ]
    if found.expected is not None and found.expected < 1:
        return [
            f"counts of pairs do not say whether a row of the data has {found.conditions}, and the model expects "
            f"{found.expected:.2g}: this answer may be of nobody"
        ]
    return []


CLEARLY = 4.0
"""Minimum deviation, in standard errors of a share, at which the counts contradict the model."""
NOTICED = 0.02
"""Minimum difference of probabilities that is reported."""


def doubt_model(
    schema: Schema,
    targets: Sequence[int],
    conditions: Conditions,
    counts: IntArray,
    chances: FloatArray,
) -> list[str]:
    """Compare a model with the counts for a question, under all conditions jointly.

    Parameters
    ----------
    schema
        Variables.
    targets
        Index of the variable of each axis.
    conditions
        Conditions that the samples meet.
    counts
        int64: number of samples that meet the conditions, by combination of levels of the targets.
    chances
        float64 of the same shape: the PMF of the model given the conditions.

    Returns
    -------
    A warning on the share with the largest deviation from its probability in standard errors, if the deviation exceeds
    ``CLEARLY`` and the difference exceeds ``NOTICED``; empty otherwise.
    """
    n_rows = max(int(counts.sum()), 1)
    shares = counts / n_rows
    # the larger of the two variances: under the model, and under the counts
    varied = np.maximum(shares * (1 - shares), chances * (1 - chances))
    spread = np.sqrt(np.maximum(varied, FLOOR) / n_rows)
    apart = np.abs(shares - chances)
    scores = np.where((apart > NOTICED) & (counts.sum() > 0), apart / np.maximum(spread, 1e-9), 0.0)
    cell = np.unravel_index(int(scores.argmax()), scores.shape)
    score = float(scores[cell])
    if score <= CLEARLY:
        return []
    levels = {position: (int(code),) for position, code in zip(targets, cell, strict=True)}
    words = describe_conditions(schema, levels)
    among = f" given {describe_conditions(schema, conditions)}" if conditions else ""
    return [
        f"the counts alone give {shares[cell]:.3g} for {words}{among}, and the model {chances[cell]:.3g}: {score:.0f} "
        "standard errors apart; the rank may be too small, or values are missing for a reason"
    ]


@dataclass(frozen=True)
class Homogeneity:
    """Pearson's test of equal shares in all groups.

    Parameters
    ----------
    statistic, degrees, p_value
        Pearson's chi-squared statistic, its degrees of freedom, and the p-value.
    is_rough
        Whether more than a fifth of the cells have fewer than ``LEAST_EXPECTED`` expected samples.
    """

    statistic: float
    degrees: int
    p_value: float
    is_rough: bool

    def __str__(self) -> str:
        """Return a one-line description of the test."""
        said = f"chi-squared {decimal(self.statistic)} ({self.degrees}), p = {decimal(self.p_value, 2)}"
        return f"{said}; roughly, for many cells are nearly empty" if self.is_rough else said


def find_homogeneity(counts: IntArray | FloatArray) -> Homogeneity | None:
    """Test whether the rows of a table have equal shares; return None if there is nothing to compare.

    Parameters
    ----------
    counts
        Shape (n_groups, n_cells): numbers of samples, assumed independent.

    References
    ----------
    Pearson (1900); Cochran (1954), "Some methods for strengthening the common chi-squared tests", Biometrics 10(4).
    """
    from scipy.special import chdtrc

    table = np.asarray(counts, np.float64)
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    if min(table.shape) < 2:
        return None
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    is_rough = bool((expected < LEAST_EXPECTED).mean() > 0.2)
    return Homogeneity(statistic, degrees, float(chdtrc(degrees, statistic)), is_rough)
