"""Comparison of candidates on held-out data: scores, standard errors of differences, the choice and its reason.

All candidates are scored on the same held-out data, so that common variation cancels: the standard error of a paired
difference is far below that of a score. Among candidates within one standard error of the best, a rule selects one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from pmflib.base.arrays import FloatArray, IntArray
from pmflib.base.json_records import Form, JsonRecord

Setting: TypeAlias = int | float | str
"""A setting that distinguishes candidates: a rank, a pseudo-count, the name of a start method."""

ChoiceRule: TypeAlias = Literal["best", "first", "least", "largest"]
"""Rule for the choice: the best candidate; or, among those within one standard error of the best, the first in the
given order (the default), or the least or largest if the order is increasing.
"""

MAX_LISTED = 4
"""Number of candidates up to which a sentence lists all scores; otherwise it gives only the best, and the table has the
rest.
"""


class PairedDifference(NamedTuple):
    """Mean difference between two candidates on the same held-out data.

    Parameters
    ----------
    mean
        Mean difference of the log-likelihoods, nats per sample or pair.
    error
        Standard error of the mean; infinite if there is only one sample.
    """

    mean: float
    error: float

    @property
    def is_distinct(self) -> bool:
        """Return whether the first candidate is better by more than one standard error."""
        return self.mean > self.error


def compare_samples(better: FloatArray, worse: FloatArray) -> PairedDifference:
    """Compare two candidates by the log-likelihood of each held-out sample.

    Parameters
    ----------
    better, worse
        float64 of shape (n_samples,), nats.
    """
    gains = better - worse
    return PairedDifference(
        float(gains.mean()), float(gains.std()) / math.sqrt(max(gains.size - 1, 1))
    )


def estimate_gain(sums: FloatArray) -> PairedDifference:
    """Compare two candidates by sums over held-out samples, which can be added over blocks.

    Parameters
    ----------
    sums
        float64 of shape (3,): number of samples, sum of their gains (nats), and sum of the squared gains.
    """
    n_samples, gain, squares = (float(each) for each in sums)
    if n_samples <= 1:
        return PairedDifference(gain, math.inf)
    mean = gain / n_samples
    variance = max(squares / n_samples - mean**2, 0.0)
    return PairedDifference(mean, math.sqrt(variance / (n_samples - 1)))


def compare_folds(better: FloatArray, worse: FloatArray, n_pairs: IntArray) -> PairedDifference:
    """Compare two candidates by the log-likelihood of the pairs in each held-out fold.

    Parameters
    ----------
    better, worse
        float64 of shape (n_folds,): total log-likelihood of the pairs of each fold, nats.
    n_pairs
        int64 of shape (n_folds,), positive: number of pairs per fold; at least two folds.

    Returns
    -------
    Difference of the means over all pairs, and its standard error as a ratio of two sums.

    References
    ----------
    Cochran (1977), Sampling Techniques, section 6.4, for the variance of a ratio.
    """
    total = float(n_pairs.sum())
    mean = float((better - worse).sum()) / total
    spread = (better - worse) - mean * n_pairs
    error = math.sqrt(float(spread @ spread) * n_pairs.size / (n_pairs.size - 1)) / total
    return PairedDifference(mean, error)


N_SUMS = 6
"""Length of the sums for `estimate_gain_per_cell`."""


def estimate_gain_per_cell(sums: FloatArray) -> PairedDifference:
    """Compare two candidates by the cells of held-out samples, from sums that can be added over blocks.

    The cells of a sample are predicted from one another and are not independent, so samples are the sampling units.
    With g_s the gain of sample s and m_s its number of cells, the gain per cell is the ratio R = sum g_s / sum m_s, and
    its standard error is sqrt(n / (n - 1) sum (g_s - R m_s)^2) / sum m_s, over n samples.

    Parameters
    ----------
    sums
        float64 of shape (6,): number of samples with cells; sums over them of m, of g (nats), of m^2, of g m and of
        g^2.

    Returns
    -------
    Mean gain per cell, nats, and its standard error; infinite for fewer than two samples.

    References
    ----------
    Cochran (1977), Sampling Techniques, section 6.4, for the variance of a ratio.
    """
    n_samples, cells, gain, cells_squared, product, gain_squared = (float(each) for each in sums)
    mean = gain / cells if cells else 0.0
    if n_samples < 2:
        return PairedDifference(mean, math.inf)
    spread = max(gain_squared - 2 * mean * product + mean**2 * cells_squared, 0.0)
    return PairedDifference(mean, math.sqrt(spread * n_samples / (n_samples - 1)) / cells)


@dataclass(frozen=True)
class PairedGain(JsonRecord):
    """Gain of one model over another in predicting held-out cells.

    Parameters
    ----------
    gain
        Mean gain, nats per cell.
    standard_error
        Standard error of the mean over samples; infinite for fewer than two.
    cells, samples
        Number of held-out cells, and of samples with any.
    """

    gain: float
    standard_error: Annotated[float, Form.UNKNOWN]
    cells: int
    samples: int

    @property
    def known_error(self) -> float | None:
        """Return the standard error; None if unknown."""
        return self.standard_error if math.isfinite(self.standard_error) else None


def merge_sums(parts: Sequence[FloatArray]) -> FloatArray:
    """Sum over parts of the samples, at least one, in the given order."""
    return np.asarray(np.sum(parts, axis=0))


@dataclass(frozen=True)
class ScoredCandidate:
    """One candidate of a comparison.

    Parameters
    ----------
    settings
        Settings by name, for example ``{"rank": 3, "pseudo_count": 1.0}``.
    score
        Held-out log-likelihood per unit of the comparison, nats.
    below_best
        Score of the best candidate minus this one.
    error
        Standard error of that difference; 0 for the best itself, None if not computed.
    unconverged
        Increase of the score when the candidate was last refitted: smaller differences are not meaningful.
    """

    settings: Mapping[str, Setting]
    score: float
    below_best: float
    error: float | None = None
    unconverged: float = 0.0

    @property
    def is_within_error(self) -> bool:
        """Return whether the candidate is within one standard error of the best."""
        return self.below_best <= (self.error or 0.0) + self.unconverged


@dataclass(frozen=True)
class Comparison:
    """Candidates and the chosen one.

    Parameters
    ----------
    unit
        Unit of the scores: "sample" or "pair".
    points
        All candidates, in increasing order if they have one.
    best
        Candidate with the best score.
    chosen
        Chosen candidate.
    rule
        Rule of the choice.
    reason
        Sentence that explains the choice.
    """

    unit: str
    points: tuple[ScoredCandidate, ...]
    best: ScoredCandidate
    chosen: ScoredCandidate
    rule: ChoiceRule
    reason: str

    @property
    def varied(self) -> tuple[str, ...]:
        """Return the names of settings that vary between candidates; all settings of a single candidate."""
        first = self.points[0].settings
        varied = [
            name for name in first if any(p.settings[name] != first[name] for p in self.points)
        ]
        return tuple(varied or first)

    def to_json(self) -> dict[str, object]:
        """Convert to plain JSON types; the best and the chosen candidate are given as indices."""
        return {
            "unit": self.unit,
            "points": [asdict(point) for point in self.points],
            "best": self.points.index(self.best),
            "chosen": self.points.index(self.chosen),
            "rule": self.rule,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Comparison:
        """Restore a comparison from `to_json`."""
        points = tuple(ScoredCandidate(**point) for point in content["points"])
        best, chosen = points[content["best"]], points[content["chosen"]]
        return cls(content["unit"], points, best, chosen, content["rule"], content["reason"])


def compare_candidates(
    unit: str,
    settings: Sequence[Mapping[str, Setting]],
    scores: Sequence[float],
    *,
    subtract: Callable[[int, int], PairedDifference | tuple[float, float]] | None = None,
    unconverged: Sequence[float] | None = None,
    rule: ChoiceRule = "best",
    chosen: int | None = None,
) -> Comparison:
    """Compare candidates and choose one.

    Parameters
    ----------
    unit
        Unit of the scores: "sample" or "pair".
    settings
        Settings of the candidates, at least one, in increasing order if they have one.
    scores
        Held-out log-likelihood of each candidate, nats per unit; ties go to the first.
    subtract
        Returns the difference between two candidates, given their indices, with its standard error; None if only the
        scores are known.
    unconverged
        As in `ScoredCandidate`; 0 by default.
    rule
        Rule of the choice.
    chosen
        Index of the choice if a search has already applied the rule; None applies it here.

    References
    ----------
    Breiman, Friedman, Olshen and Stone (1984), Classification and Regression Trees, section 3.4.3, for the
    one-standard-error rule, applied here to paired differences.
    """
    top = max(range(len(scores)), key=lambda index: scores[index])
    points = []
    for index, (setting, score) in enumerate(zip(settings, scores, strict=True)):
        below, error = (scores[top] - score, None) if subtract is None else subtract(top, index)
        more = 0.0 if unconverged is None else unconverged[index]
        points.append(ScoredCandidate(setting, score, below, error, more))
    if chosen is None:
        chosen = _apply_rule(points, top, rule)
    comparison = Comparison(unit, tuple(points), points[top], points[chosen], rule, "")
    return replace(comparison, reason=_explain(comparison))


def _apply_rule(points: Sequence[ScoredCandidate], best: int, rule: ChoiceRule) -> int:
    """Return the index of the candidate to choose."""
    if rule == "best":
        return best
    near = [index for index, point in enumerate(points) if point.is_within_error or index == best]
    return near[-1] if rule == "largest" else near[0]


def label_settings(settings: Mapping[str, Setting], names: Sequence[str]) -> str:
    """Format a candidate by some of its settings, as in "rank 3, pseudo-count 0.1"."""
    return ", ".join(f"{name_setting(name)} {format_setting(settings[name])}" for name in names)


def name_setting(name: str) -> str:
    """Return the display name of a setting."""
    return name.replace("_", "-")


def format_setting(value: Setting) -> str:
    """Format the value of a setting."""
    return value if isinstance(value, str) else f"{value:g}"


def _explain(comparison: Comparison) -> str:
    """Explain the choice, with all scores if there are few."""
    best, chosen, names = comparison.best, comparison.chosen, comparison.varied
    measure = f"best held-out log-likelihood per {comparison.unit}"
    text = f"{label_settings(chosen.settings, names)}: "
    if chosen is best:
        text += measure
    elif chosen.error is None:
        text += f"{chosen.below_best:.2g} below the {measure}, of {_shorten(best, names)}"
    else:
        text += (
            f"{comparison.rule} within one standard error of the {measure}, {chosen.below_best:.2g} +- "
            f"{chosen.error:.2g} below that of {_shorten(best, names)}"
        )
        if chosen.unconverged > 0:
            text += f", not converged to within {chosen.unconverged:.2g}"
    if len(comparison.points) <= MAX_LISTED:
        scores = (f"{_shorten(each, names)}: {each.score:.5f}" for each in comparison.points)
        text += f" ({', '.join(scores)})"
    else:
        text += f" ({best.score:.5f})"
    index = comparison.points.index(chosen)
    if comparison.rule == "least" and index > 0 and chosen.error is not None:
        next_less = comparison.points[index - 1]
        text += (
            f"; {label_settings(next_less.settings, names)} is {next_less.below_best:.2g} +- "
            f"{next_less.error:.2g} below the best"
        )
    return text


def _shorten(point: ScoredCandidate, names: Sequence[str]) -> str:
    """Format a candidate by the values of its settings, without a name if only one setting varies."""
    if len(names) == 1:
        return format_setting(point.settings[names[0]])
    return label_settings(point.settings, names)
