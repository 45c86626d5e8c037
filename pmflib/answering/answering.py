"""Answer questions from a model and its data: parse, bind, count, combine, measure, and report the supporting data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from pmflib.answering.answers import Answer, AnswerRows, Source
from pmflib.answering.completions import find_most_likely
from pmflib.answering.conditional_tables import TableRequest
from pmflib.answering.equivalent_samples import (
    Comparison,
    PairTable,
    find_equivalent_samples,
    list_pairs,
)
from pmflib.answering.evidence import Evidence
from pmflib.answering.gaps import Standardised, describe_shift
from pmflib.answering.information import TablePMF, measure_answers
from pmflib.answering.posterior import (
    CURVED,
    CurvedEstimate,
    Posterior,
    estimate_curved,
    find_errors,
    find_mean_errors,
)
from pmflib.answering.question import BoundQuestion, bind_question, parse_question
from pmflib.answering.support import (
    Homogeneity,
    Support,
    doubt_model,
    find_homogeneity,
    find_support,
    list_support_requests,
)
from pmflib.base.arrays import FLOOR, FloatArray, IntArray
from pmflib.base.constraints import Interval, OneOf, check, check_size
from pmflib.base.errors import MemoryPlanError, PmfError
from pmflib.base.texts import list_near
from pmflib.base.variance import Variance
from pmflib.model.conditions import Conditions, describe_conditions
from pmflib.model.mixture import Mixture

MAX_ROWS = 1 << 17
"""Maximum number of rows of an answer; for more, `JointPMF.marginal` returns an array."""
MAX_CELLS = 1 << 18
"""Maximum number of cells of a table in which counts and model are combined: 2 MB."""
COUNTED_ROWS = 1.0
"""Equivalent sample size of the uniform prior if only counts are used: Jeffreys' prior for two levels."""


def ask(
    model: Mixture,
    question: str,
    data: object = None,
    *,
    top: int = 5,
    source: Source = "both",
    level: float = 0.95,
    design: Variance | None = None,
    shift: float | None = None,
) -> Answer:
    """Answer a question given as text, from a model and the data that it was fitted to.

    Parameters
    ----------
    model
        The model.
    question
        As for `pmflib.answering.question.parse_question`.
    data
        Samples that the model was fitted to, as a table or codes, or their co-occurrence counts, which cover at most
        two variables of a question. If None, only the model is used.
    top
        Number of completions that argmax returns, at least 1.
    source
        Source of the answer: "both", "counts" or "model".
    level
        Posterior probability of the interval of each number, in (0, 1).
    design
        Sampling design of ``data``: shares are weighted, and n is the effective sample size of each table.
    shift
        Largest change of a probability in the samples that lack a target, in [0, 1], because gaps depend on the answer
        itself. The columns "lowest" and "highest" have the range of each number. Only for P and E.

    Returns
    -------
    The answer.

    Raises
    ------
    QuestionError
        If the question cannot be parsed, or is contradictory; the message shows the position.
    UnknownNameError
        If a variable or level is unknown; the message suggests the nearest name.
    SchemaError
        If data and model have different schemas, or a variable lacks the values or the order that the measure needs.
    PmfError
        If the conditions are impossible: they have probability 0 under the model, and no sample meets them; if
        ``source`` is "counts" and there are no counts; if the model was fitted with weights, or raked, and ``data``
        are samples without a ``design``; or if an option is out of range.
    MemoryPlanError
        If there are too many combinations.

    Notes
    -----
    Let q be the shares among the n samples that meet the conditions, p the probabilities under the model, and m the
    equivalent sample size of the model. The answer is the mean of a Dirichlet posterior, (n q + m p) / (n + m), over
    the table of the target variables; measures are computed from this table. m depends on the number of variables
    and on the deviation of their counts from the model: `pmflib.answering.equivalent_samples`. Intervals are
    those of the posterior, so that they reflect the bias of the model as well as sampling error. For probabilities,
    quantiles and odds they come from the Beta marginals of the posterior, for means and odds ratios from draws.
    Entropy, mutual information and total variation of an estimated table are biased, and have estimates and errors of
    their own: `pmflib.answering.posterior.estimate_curved`. Variables given without a level have one posterior per
    level.

    References
    ----------
    Gelman et al. (2013), Bayesian Data Analysis, section 3.4: the multinomial with a Dirichlet prior.
    """
    bound = bind_question(parse_question(question), model.schema)
    evidence = None if data is None else Evidence.of(data, model, design)
    return answer_bound(model, bound, evidence, top=top, source=source, level=level, shift=shift)


def answer_bound(
    model: Mixture,
    bound: BoundQuestion,
    evidence: Evidence | None,
    *,
    top: int = 5,
    source: Source = "both",
    level: float = 0.95,
    shift: float | None = None,
) -> Answer:
    """Do `ask` for a question that is already bound to a schema."""
    check(OneOf(("both", "counts", "model")), source=source)
    check(Interval(0, 1, "neither", "as 0.95"), level=level)
    check(Interval(0, 1, hint="a change of probability, as 0.1", also=(None,)), shift=shift)
    if source == "counts" and evidence is None:
        raise PmfError("source is 'counts', and there are none; pass the samples, or 'model'")
    weighed = _Weighed(model, bound, evidence, source, top)
    numbers = weighed.measure()
    check_size(
        numbers.size, MAX_ROWS, "rows in the answer", "name fewer variables, or ask for argmax"
    )
    errors, intervals = weighed.find_errors(numbers, level)
    doubts = [*_say_others(bound), *weighed.doubts]
    support: Support | None = None
    if evidence is not None:
        support, found = find_support(bound, evidence, weighed.counted, weighed.chances)
        doubts += found
    if (impossible := int(np.isnan(numbers).any(axis=1).sum())) and bound.by:
        names = ", ".join(bound.schema[position].name for position in bound.by)
        doubts.append(f"{impossible} combinations of {names} have probability 0 and are left out")
    doubts += weighed.doubt()
    parts = AnswerRows(
        bound,
        numbers,
        errors,
        intervals,
        weighed.combinations,
        weighed.grouped[0] if len(weighed.grouped) == 1 else None,
        weighed.measure_counts(),
        weighed.measure_model() if evidence is not None and source != "model" else None,
        None if shift is None else weighed.find_ranges(numbers, shift),
    )
    expected, expected_error = weighed.expect(numbers)
    return Answer(
        bound.question.text,
        bound.question.measure,
        **parts.list_rows(),
        level=level,
        source=weighed.source,
        expected=expected,
        expected_error=expected_error,
        support=support,
        equivalent_samples=weighed.equivalent_samples,
        is_assumed=bool(weighed.equivalent_samples) and not weighed.worth.n_questions,
        warnings=tuple(doubts),
        no_errors="" if errors is not None else weighed.no_errors,
        as_other=bound.as_other,
        moved_cuts=bound.moved_cuts,
        homogeneity=weighed.test_groups(parts.counted),
    )


class _Weighed:
    """Model and counts of a question, combined for each set of conditions."""

    def __init__(
        self,
        model: Mixture,
        bound: BoundQuestion,
        evidence: Evidence | None,
        source: Source,
        top: int,
    ) -> None:
        self.model = model
        self.bound = bound
        self.evidence = None if source == "model" else evidence
        self.worth = find_equivalent_samples(model.origin)
        if evidence is not None and math.isinf(self.worth.n_fitted):
            self.worth = replace(self.worth, n_fitted=float(max(evidence.n_rows, 1)))
        self.doubts: list[str] = []
        self.pairs: dict[tuple[int, int], tuple[IntArray, FloatArray]] = {}
        self.combinations: IntArray | None = None
        schema = bound.schema
        self.targets = tuple(each for each in bound.targets if each not in bound.by)
        sizes = [int(schema.cardinalities[each]) for each in (*bound.by, *self.targets)]
        self.n_cells = math.prod(sizes)
        self.fits = self.n_cells <= MAX_CELLS
        self.no_errors = (
            f"its table has {self.n_cells:,} cells, above {MAX_CELLS:,}" if not self.fits else ""
        )
        # of all levels of the conditioning variables together, and of each with its own effective number of samples
        self.counted: list[IntArray | None] = [None] * len(bound.sides)
        self.grouped: list[IntArray | None] = [None] * len(bound.sides)
        self.standardised = self.standardised_groups = [Standardised(None)] * len(bound.sides)
        if self.evidence is not None:
            requests = list_requests(bound, source)
            # one pass for this table, the tables of its pairs, and those by which they are standardised
            self.evidence.count(self.evidence.expand(requests) if source == "both" else requests)
            if self.fits:
                own = list_tables(bound)
                groups = [replace(each, n_given=len(bound.by)) for each in own]
                self.counted = [self.evidence.find(each) for each in own]
                self.grouped = [self.evidence.find(each) for each in groups]
                if source == "both":
                    self.standardised = self.evidence.standardise(own)
                    self.standardised_groups = self.evidence.standardise(groups)
        is_counted = any(each is not None for each in self.counted)
        if is_counted and self.evidence is not None and self.evidence.count_samples is None:
            is_group = bool(bound.by) or any(bound.sides)
            if is_group and self.evidence.are_effective:
                self.doubts.append(
                    "weighted counts of pairs know the effective number of all samples and not of a group, which may "
                    "be far from its share of it; pass the samples"
                )
        self.source: Source = source if is_counted else "model"
        if source == "counts":
            self._refuse_uncounted()
        self.sides, self.chances = self._condition()
        self.posteriors: list[Posterior] = []
        self.weights: list[FloatArray] = []
        if self.fits:
            is_mean = bound.question.measure == "E"
            values = schema[self.targets[0]].numeric_values() if is_mean else None
            for n in range(len(self.sides)):
                posterior, rows = self._make_posterior(n, values)
                self.posteriors.append(posterior)
                self.weights.append(np.zeros(0) if self.source == "counts" else rows)
        if bound.question.measure == "argmax":
            self._find_combinations(top)

    def test_groups(self, shares: FloatArray | None) -> Homogeneity | None:
        """Test whether shares in the counts are equal for all levels of the conditioning variables."""
        (counts, *others), is_asked = self.grouped, self.bound.question.measure == "P"
        if not is_asked or not self.bound.by or counts is None or shares is None or others:
            return None
        sizes = counts.reshape(len(shares), -1).sum(axis=1, keepdims=True)
        held = np.nan_to_num(shares) * sizes
        # a single event is compared with its complement
        return find_homogeneity(np.hstack([held, sizes - held]) if held.shape[1] == 1 else held)

    def _refuse_uncounted(self) -> None:
        """Raise an error for questions that counts alone cannot answer."""
        if not self.fits:
            raise MemoryPlanError(
                f"source is 'counts', and {self.no_errors}; name fewer variables, or take 'both'"
            )
        for given, counts in zip(self.bound.sides, self.counted, strict=True):
            if counts is None:
                raise PmfError(
                    "source is 'counts', and nothing is counted that answers this: counts of pairs know two variables; "
                    "pass the samples, or take 'both'"
                )
            if not counts.any():
                words = describe_conditions(self.bound.schema, given) or "values of these variables"
                raise PmfError(
                    f"source is 'counts', and no sample that holds what is asked for has {words}; name fewer "
                    "conditions, or take 'both'"
                )

    @property
    def equivalent_samples(self) -> tuple[float, ...]:
        """Equivalent sample size of the model, by set of conditions and levels of the conditioning variables."""
        return tuple(float(m) for each in self.weights for m in each)

    def _condition(self) -> tuple[list[Mixture | None], list[float]]:
        """Condition the model on each set of conditions (None if only counts allow it); also return probabilities."""
        sides: list[Mixture | None] = []
        chances = []
        for given, counts in zip(self.bound.sides, self.counted, strict=True):
            try:
                side, chance = self.model.condition_codes(given)
            except PmfError:
                # impossible under the model: only counts can answer
                if counts is None or not counts.any():
                    raise
                words = describe_conditions(self.bound.schema, given)
                self.doubts.append(
                    f"the model gives {words} probability 0, and samples have it: counts alone answer, and a row that "
                    "is spread evenly"
                )
                sides.append(None)
                chances.append(0.0)
                continue
            sides.append(side)
            chances.append(math.exp(chance))
        return sides, chances

    def _make_posterior(
        self, n: int, values: FloatArray | None = None
    ) -> tuple[Posterior, FloatArray]:
        """Return the posterior of the table for a set of conditions, and the model's equivalent sample size, (n_by,).

        Parameters
        ----------
        n
            Index of the set of conditions.
        values
            Values of the levels of the single target, if its mean is requested.
        """
        bound, side = self.bound, self.sides[n]
        joint, counts = self.counted[n], self.grouped[n]
        if self.source != "counts":
            joint, counts = (x[n].counts for x in (self.standardised, self.standardised_groups))
        conditions = bound.sides[n]
        sizes = [int(bound.schema.cardinalities[each]) for each in bound.by]
        n_by = math.prod(sizes)
        n_each = self.n_cells // n_by
        tables = np.zeros((n_by, n_each)) if counts is None else counts.reshape(n_by, -1)
        is_counted = counts is not None
        seen_by: Any = np.zeros(n_by) if joint is None else joint.reshape(n_by, -1).sum(axis=1)
        if side is None or self.source == "counts":
            # no model: a weak prior on the counts
            by = np.full(n_by, COUNTED_ROWS / n_by)
            heads = seen_by + by if bound.by else np.ones(1)
            cells = np.asarray(tables + COUNTED_ROWS / n_each, np.float64)
            counted = (seen_by, tables) if is_counted else ()
            posterior = Posterior(bound.schema, bound.by, self.targets, heads, cells, *counted)
            return posterior, np.full(n_by, COUNTED_ROWS)
        positions = (*bound.by, *self.targets)
        chances = side.marginal(positions).reshape(n_by, n_each) if positions else np.ones((1, 1))
        by = chances.sum(axis=1)
        heads = np.ones(1)
        if bound.by:
            pairs = self._compare(bound.by, conditions) if is_counted else ()
            seen = seen_by if is_counted else None
            n_variables = len({*bound.by, *conditions})
            heads, _ = self._weigh(Comparison(n_variables, by, seen, pairs))
        n_variables = max(len({*self.targets, *bound.by, *conditions}), 1)
        cells, rows = np.empty(chances.shape), np.empty(n_by)
        for row, levels in enumerate(np.ndindex(*sizes)):
            known = dict(conditions) | {
                each: (code,) for each, code in zip(bound.by, levels, strict=True)
            }
            pairs = self._compare(self.targets, known) if is_counted else ()
            given = chances[row] / max(float(by[row]), FLOOR)
            seen = tables[row] if is_counted else None
            cells[row], rows[row] = self._weigh(Comparison(n_variables, given, seen, pairs, values))
        counted = (seen_by, tables) if is_counted else ()
        return Posterior(bound.schema, bound.by, self.targets, heads, cells, *counted), rows

    def _weigh(self, question: Comparison) -> tuple[FloatArray, float]:
        """Return the parameters of the Dirichlet posterior of a table, and the model's equivalent sample size."""
        worth = self.worth.weigh(question)
        parameters = worth.rows * question.chances
        if question.counts is not None:
            parameters = parameters + question.counts
        total = max(float(parameters.sum()), FLOOR)
        return parameters * (worth.total / total), worth.rows

    def _compare(self, targets: Sequence[int], given: Conditions) -> list[PairTable]:
        """Return counts and probabilities of targets and conditions, pair by pair."""
        pairs = list_pairs(targets, given, self.bound.schema.cardinalities)
        return [PairTable(*self._find_pair(first, second), codes) for first, second, codes in pairs]

    def _find_pair(self, first: int, second: int) -> tuple[IntArray, FloatArray]:
        """Return counts and probabilities of two variables."""
        assert self.evidence is not None
        key = (first, second)
        if key not in self.pairs:
            counts = self.evidence.standardise([TableRequest(key)])[0].counts
            # if the answer can be counted, so can any two of its variables
            assert counts is not None
            self.pairs[key] = counts, self.model.marginal(key)
        return self.pairs[key]

    def _find_combinations(self, top: int) -> None:
        """Find the combinations for argmax, from the posterior if its table is available, else from the model."""
        group = self.bound.groups[0]
        if self.fits:
            table = self.posteriors[0].mean.marginal(group)
            order = np.argsort(-table.ravel(), kind="stable")[:top]
            order = order[table.ravel()[order] > 0]
            self.combinations = np.stack(np.unravel_index(order, table.shape), axis=1)
            return
        side = self.sides[0]
        assert side is not None
        self.combinations = find_most_likely(side, group, top)[0]

    def measure(self) -> FloatArray:
        """Compute the numbers of the answer: see `measure_answers`."""
        if self.source == "model":
            return self.measure_model()
        if self.curved is not None:
            return np.array([[self.curved.number]])
        if self.source == "counts" and (counted := self.measure_counts()) is not None:
            return counted
        return self._measure_posterior()

    @cached_property
    def curved(self) -> CurvedEstimate | None:
        """Estimate of a measure that is not linear in the table; None for others, and without counts or a model."""
        if self.bound.question.measure not in CURVED or not self.fits or self.source == "counts":
            return None
        if any(each.counted is None for each in self.posteriors):
            return None
        return estimate_curved(self.bound, self.posteriors)

    def _measure_posterior(self) -> FloatArray:
        """Compute the numbers from the posterior mean."""
        means = [each.mean for each in self.posteriors]
        return measure_answers(means, self.bound, self.combinations)

    def measure_model(self) -> FloatArray:
        """Compute the numbers from the model alone; NaN if the conditions are impossible under it."""
        sides = [each for each in self.sides if each is not None]
        if len(sides) < len(self.sides):
            return np.full_like(self._measure_posterior(), np.nan)
        return measure_answers(sides, self.bound, self.combinations)

    def measure_counts(self) -> FloatArray | None:
        """Compute the numbers from counts alone, NaN if no sample meets the conditions; None without counts."""
        tables = []
        for counts in self.counted:
            if counts is None:
                return None
            if not counts.any():
                return np.full_like(self._measure_posterior(), np.nan)
            positions = (*self.bound.by, *self.targets)
            tables.append(TablePMF(self.bound.schema, positions, counts / counts.sum()))
        return measure_answers(tables, self.bound, self.combinations)

    def find_errors(
        self, numbers: FloatArray, level: float
    ) -> tuple[FloatArray | None, FloatArray | None]:
        """Return posterior standard deviations, of the shape of the numbers, and intervals, (..., 2)."""
        if not self.fits:
            return None, None
        if self.curved is not None:
            return np.array([[self.curved.error]]), self.curved.find_interval(self.bound, level)
        # combinations with count 0 are possible under the posterior
        means = self._measure_posterior() if self.source == "counts" else numbers
        posteriors, combinations = self.posteriors, self.combinations
        return find_errors(self.bound, posteriors, combinations, numbers, means, level)

    def expect(self, numbers: FloatArray) -> tuple[float | None, float | None]:
        """Return the expected value of the single variable whose PMF is the answer, and its standard deviation."""
        bound, group = self.bound, self.bound.groups[0]
        if bound.question.measure != "P" or len(group) != 1 or bound.events[0] or bound.by:
            return None, None
        variable = bound.schema[group[0]]
        if variable.values is None or np.isnan(numbers).any():
            return None, None
        values = variable.numeric_values()
        if not self.fits:
            return float(numbers[0] @ values), None
        posterior = self.posteriors[0]
        if self.source != "counts" and self.sides[0] is not None:
            # a mean has its own equivalent sample size
            posterior, _ = self._make_posterior(0, values)
        means = posterior.mean.marginal(group)
        chances = means if self.source == "both" else numbers[0]
        return float(chances @ values), float(find_mean_errors(bound, posterior, means[None])[0])

    def find_ranges(self, numbers: FloatArray, shift: float) -> FloatArray:
        """Return the range of each number, (..., 2), if probabilities in samples without a target change by a shift."""
        bound, name, counts = self.bound, self.bound.question.measure, self.counted[0]
        if name not in ("P", "E") or self.evidence is None or counts is None:
            raise PmfError(
                f"shift is {shift}, and the answer is no P or E of counted samples; ask for one, and give the samples "
                "that the model was fitted to"
            )
        every = self.evidence.find(TableRequest(bound.by, tuple(bound.sides[0].items())))
        assert every is not None
        lacking = 1 - counts.reshape(every.size, -1).sum(axis=1) / np.maximum(every.ravel(), 1)
        low, high = 0.0, 1.0
        if name == "E":
            values = bound.schema[self.targets[0]].numeric_values()
            low, high = float(values.min()), float(values.max())
        moved = (lacking * shift * (high - low)).reshape(-1, 1)
        ranges: FloatArray = np.clip(
            np.stack([numbers - moved, numbers + moved], axis=-1), low, high
        )
        return ranges

    def doubt(self) -> list[str]:
        """Return a warning for each clear contradiction between counts and model."""
        if self.source == "model":
            return []
        found: dict[str, None] = {}
        schema, positions = self.bound.schema, (*self.bound.by, *self.targets)
        rows = zip(self.bound.sides, self.counted, self.standardised, self.sides, strict=True)
        for given, counts, standardised, side in rows:
            if counts is None or not positions:
                continue
            if standardised.by:
                found[describe_shift(schema, positions, given, counts, standardised)] = None
                counts = standardised.counts
            if side is not None:
                chances = side.marginal(positions)
                doubts = doubt_model(schema, positions, given, counts, chances)
                found |= dict.fromkeys(doubts)
        return list(found)


def list_requests(bound: BoundQuestion, source: str = "both") -> list[TableRequest]:
    """List the count tables for a question and for its supporting data; one pass over the samples counts them."""
    sizes = bound.schema.cardinalities
    targets = tuple(each for each in bound.targets if each not in bound.by)
    positions = (*bound.by, *targets)
    tables = []
    if source != "model" and math.prod(int(sizes[each]) for each in positions) <= MAX_CELLS:
        # the codes of variables given without a level do not matter here
        known: list[Conditions] = [dict.fromkeys(bound.by, ()) | dict(each) for each in bound.sides]
        pairs = [pair for each in known for pair in list_pairs(targets, each, sizes)]
        pairs += [pair for each in bound.sides for pair in list_pairs(bound.by, each, sizes)]
        tables = list_tables(bound)
        tables += [replace(each, n_given=len(bound.by)) for each in tables]
        tables += [TableRequest(pair[:2]) for pair in pairs]
    return [*tables, *list_support_requests(bound)]


def list_tables(bound: BoundQuestion) -> list[TableRequest]:
    """List the tables of a question, one for each set of conditions."""
    targets = (each for each in bound.targets if each not in bound.by)
    positions = (*bound.by, *targets)
    return [TableRequest(positions, tuple(given.items())) for given in bound.sides]


def _say_others(bound: BoundQuestion) -> Iterator[str]:
    """Yield a sentence for each variable with named levels that it does not have."""
    for name, level in bound.as_other.items():
        variable = bound.schema[name]
        close = list_near(level, variable.levels)
        hint = f"; did you mean {close}?" if close else ""
        yield f"{level!r} is no level of {name!r} and counts as {variable.other!r}{hint}"
    for asked, answered in bound.moved_cuts.items():
        yield f"{asked} does not go by the edges of its bins: this answer is for {answered}"
