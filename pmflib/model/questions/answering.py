"""Ask a model and the data that it was fitted to: parse, bind, count, weigh, measure, and say what stands behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pmflib.core.arrays import FLOOR, FloatArray, IntArray
from pmflib.core.errors import MemoryPlanError, PmfError
from pmflib.core.survey_design import SurveyDesign
from pmflib.core.texts import list_near
from pmflib.counting.conditional_tables import TableRequest
from pmflib.model.conditions import Conditions, describe_conditions
from pmflib.model.mixture import Mixture
from pmflib.model.questions.answers import Answer, AnswerRows, Source
from pmflib.model.questions.completions import find_most_likely
from pmflib.model.questions.equivalent_samples import (
    Comparison,
    PairTable,
    find_equivalent_samples,
    list_pairs,
)
from pmflib.model.questions.evidence import Evidence
from pmflib.model.questions.information import TablePMF, measure_answers
from pmflib.model.questions.posterior import Posterior, find_errors, find_mean_errors
from pmflib.model.questions.question import BoundQuestion, bind_question, parse_question
from pmflib.model.questions.support import (
    Homogeneity,
    Support,
    doubt_model,
    find_homogeneity,
    find_support,
    list_support_requests,
)

MAX_ROWS = 1 << 17
"""Rows of the largest answer: more are read by nobody, and `JointPMF.marginal` has them as an array."""
MAX_CELLS = 1 << 18
"""Cells of the largest table that counts and model are put together in: 2 MB."""
COUNTED_ROWS = 1.0
"""Rows that a uniform prior counts for where counts alone answer: that of Jeffreys for two levels."""


def ask(
    model: Mixture,
    question: str,
    data: object = None,
    *,
    top: int = 5,
    source: Source = "both",
    level: float = 0.95,
    design: SurveyDesign | None = None,
) -> Answer:
    """Answer a question in words, from a model and the data that it was fitted to.

    Parameters
    ----------
    model
        The model.
    question
        As for `pmflib.model.questions.question.parse_question`.
    data
        Samples that the model was fitted to, as a table or codes; or their co-occurrence counts, which know two
        variables of a question at most. None: the model alone answers.
    top
        Completions that argmax finds, at least 1.
    source
        "both", the default; "counts" or "model" alone.
    level
        Posterior probability that the interval of each number holds, in (0, 1).
    design
        How the samples in ``data`` were drawn: shares are weighted, and n is the number of independent samples whose
        shares would be as sure, table by table.

    Returns
    -------
    The answer.

    Raises
    ------
    QuestionError
        If the question cannot be read, or contradicts itself; the message shows the position.
    UnknownNameError
        If a variable or level is unknown; the message suggests the nearest.
    SchemaError
        If data and model are of different schemas, or a variable has no values or order that the measure needs.
    PmfError
        If nobody can meet the conditions: the model gives them probability 0, and no sample has them; if ``source`` is
        "counts" and nothing was counted; if the model was fitted with weights and ``data`` are samples without a
        ``design``; or an option is out of range.
    MemoryPlanError
        If there are too many combinations.

    Notes
    -----
    Of n samples that meet the conditions with shares q, and a model that says p and is worth m rows, the answer is the
    mean of a Dirichlet posterior, (n q + m p) / (n + m), over the table of the variables asked for; any measure is that
    of this table. m follows from the number of variables, and from how far counts of these variables depart from the
    model: `pmflib.model.questions.equivalent_samples`. Intervals are those of the posterior, so that they know the
    bias of the model as well as the spread over samples; those of probabilities, quantiles and odds are of its Beta
    marginals, others of draws, whose mean is moved to the answer. Variables given without a level have a posterior for
    each of their levels.

    References
    ----------
    Gelman et al. (2013), Bayesian Data Analysis, section 3.4: the multinomial with a Dirichlet prior.
    """
    bound = bind_question(parse_question(question), model.schema)
    evidence = None if data is None else Evidence.of(data, model, design)
    return answer_bound(model, bound, evidence, top=top, source=source, level=level)


def answer_bound(
    model: Mixture,
    bound: BoundQuestion,
    evidence: Evidence | None,
    *,
    top: int = 5,
    source: Source = "both",
    level: float = 0.95,
) -> Answer:
    """Do `ask` with a question whose names are found already."""
    if source not in ("both", "counts", "model"):
        raise PmfError(f"source is {source!r}; give 'both', 'counts' or 'model'")
    if not 0 < level < 1:
        raise PmfError(f"level is {level}; give a share between 0 and 1, as 0.95")
    if source == "counts" and evidence is None:
        raise PmfError("source is 'counts', and there are none; give the samples, or 'model'")
    weighed = _Weighed(model, bound, evidence, source, top)
    numbers = weighed.measure()
    if numbers.size > MAX_ROWS:
        raise MemoryPlanError(
            f"the answer has {numbers.size:,} rows, above {MAX_ROWS:,}; name fewer variables, or ask for argmax"
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
        weighed.counted[0] if len(weighed.counted) == 1 else None,
        weighed.measure_counts(),
        weighed.measure_model() if evidence is not None and source != "model" else None,
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
    """Model and counts of a question, put together for each set of conditions."""

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
        self.counted: list[IntArray | None] = [None] * len(bound.sides)
        if self.evidence is not None:
            self.evidence.count(list_requests(bound, source))
            if self.fits:
                positions = (*bound.by, *self.targets)
                self.counted = [
                    self.evidence.find(TableRequest(positions, tuple(each.items())))
                    for each in bound.sides
                ]
        is_counted = any(each is not None for each in self.counted)
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
        """Test whether shares in the counts are the same for all levels of the variables given."""
        (counts, *others), is_asked = self.counted, self.bound.question.measure == "P"
        if not is_asked or not self.bound.by or counts is None or shares is None or others:
            return None
        sizes = counts.reshape(len(shares), -1).sum(axis=1, keepdims=True)
        held = np.nan_to_num(shares) * sizes
        # of a single event, the rest is what it is compared with
        return find_homogeneity(np.hstack([held, sizes - held]) if held.shape[1] == 1 else held)

    def _refuse_uncounted(self) -> None:
        """Refuse what counts alone cannot answer."""
        if not self.fits:
            raise MemoryPlanError(
                f"source is 'counts', and {self.no_errors}; name fewer variables, or take 'both'"
            )
        for given, counts in zip(self.bound.sides, self.counted, strict=True):
            if counts is None:
                raise PmfError(
                    "source is 'counts', and nothing is counted that answers this: counts of pairs know two variables; "
                    "give the samples, or take 'both'"
                )
            if not counts.any():
                words = describe_conditions(self.bound.schema, given) or "values of these variables"
                raise PmfError(
                    f"source is 'counts', and no sample that holds what is asked for has {words}; name fewer "
                    "conditions, or take 'both'"
                )

    @property
    def equivalent_samples(self) -> tuple[float, ...]:
        """Rows that the model counts for, by set of conditions and combination of levels of the variables given."""
        return tuple(float(m) for each in self.weights for m in each)

    def _condition(self) -> tuple[list[Mixture | None], list[float]]:
        """The model given each set of conditions, None where it rules them out and counts do not; and their chance."""
        sides: list[Mixture | None] = []
        chances = []
        for given, counts in zip(self.bound.sides, self.counted, strict=True):
            try:
                side, chance = self.model.condition_codes(given)
            except PmfError:
                # the model rules them out: counts have the last word
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
        """Posterior of the table of a set of conditions, and the rows that the model counts for, (n_by,).

        Parameters
        ----------
        n
            Set of conditions.
        values
            Values of the levels of the one target, where its mean is asked for.
        """
        bound, counts, side = self.bound, self.counted[n], self.sides[n]
        conditions = bound.sides[n]
        sizes = [int(bound.schema.cardinalities[each]) for each in bound.by]
        n_by = math.prod(sizes)
        n_each = self.n_cells // n_by
        tables = np.zeros((n_by, n_each), np.int64) if counts is None else counts.reshape(n_by, -1)
        if side is None or self.source == "counts":
            # of no model: what counts alone leave open
            by = np.full(n_by, COUNTED_ROWS / n_by)
            heads = tables.sum(axis=1) + by if bound.by else np.ones(1)
            cells = np.asarray(tables + COUNTED_ROWS / n_each, np.float64)
            posterior = Posterior(bound.schema, bound.by, self.targets, heads, cells)
            return posterior, np.full(n_by, COUNTED_ROWS)
        positions = (*bound.by, *self.targets)
        chances = side.marginal(positions).reshape(n_by, n_each) if positions else np.ones((1, 1))
        by = chances.sum(axis=1)
        is_counted = counts is not None
        heads = np.ones(1)
        if bound.by:
            pairs = self._compare(bound.by, conditions) if is_counted else ()
            seen = tables.sum(axis=1) if is_counted else None
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
        return Posterior(bound.schema, bound.by, self.targets, heads, cells), rows

    def _weigh(self, question: Comparison) -> tuple[FloatArray, float]:
        """Parameters of the Dirichlet posterior of a table, and the rows that the model counts for."""
        worth = self.worth.weigh(question, self.model.n_parameters)
        parameters = worth.rows * question.chances
        if question.counts is not None:
            parameters = parameters + question.counts
        total = max(float(parameters.sum()), FLOOR)
        return parameters * (worth.total / total), worth.rows

    def _compare(self, targets: Sequence[int], given: Conditions) -> list[PairTable]:
        """Counts and probabilities of targets and conditions, pair by pair."""
        pairs = list_pairs(targets, given, self.bound.schema.cardinalities)
        return [PairTable(*self._find_pair(first, second), codes) for first, second, codes in pairs]

    def _find_pair(self, first: int, second: int) -> tuple[IntArray, FloatArray]:
        """Counts and probabilities of two variables."""
        assert self.evidence is not None
        key = (first, second)
        if key not in self.pairs:
            counts = self.evidence.find(TableRequest(key))
            # who can count the answer can count two of its variables
            assert counts is not None
            self.pairs[key] = counts, self.model.marginal(key)
        return self.pairs[key]

    def _find_combinations(self, top: int) -> None:
        """Combinations that argmax finds: by the posterior where its table is at hand, else by the model."""
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
        """Numbers of the answer: see `measure_answers`."""
        if self.source == "model":
            return self.measure_model()
        if self.source == "counts" and (counted := self.measure_counts()) is not None:
            return counted
        return self._measure_posterior()

    def _measure_posterior(self) -> FloatArray:
        """The same by the mean of the posterior."""
        means = [each.mean for each in self.posteriors]
        return measure_answers(means, self.bound, self.combinations)

    def measure_model(self) -> FloatArray:
        """The same by the model alone; NaN where it rules the conditions out."""
        sides = [each for each in self.sides if each is not None]
        if len(sides) < len(self.sides):
            return np.full_like(self._measure_posterior(), np.nan)
        return measure_answers(sides, self.bound, self.combinations)

    def measure_counts(self) -> FloatArray | None:
        """The same by counts alone, NaN where no sample meets the conditions; None where nothing was counted."""
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
        """Standard deviations of the posterior, of the shape of the numbers, and intervals, (..., 2)."""
        if not self.fits:
            return None, None
        # what counts alone never saw is possible in the posterior
        means = self._measure_posterior() if self.source == "counts" else numbers
        posteriors, combinations = self.posteriors, self.combinations
        return find_errors(self.bound, posteriors, combinations, numbers, means, level)

    def expect(self, numbers: FloatArray) -> tuple[float | None, float | None]:
        """Expected value of the one variable whose PMF the answer is, and its standard deviation."""
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
            # a mean has a weight of its own
            posterior, _ = self._make_posterior(0, values)
        means = posterior.mean.marginal(group)
        chances = means if self.source == "both" else numbers[0]
        return float(chances @ values), float(find_mean_errors(bound, posterior, means[None])[0])

    def doubt(self) -> list[str]:
        """Sentences where counts contradict the model clearly."""
        if self.source == "model":
            return []
        found: dict[str, None] = {}
        positions = (*self.bound.by, *self.targets)
        for given, counts, side in zip(self.bound.sides, self.counted, self.sides, strict=True):
            if counts is not None and side is not None and positions:
                chances = side.marginal(positions)
                doubts = doubt_model(self.bound.schema, positions, given, counts, chances)
                found |= dict.fromkeys(doubts)
        return list(found)


def list_requests(bound: BoundQuestion, source: str = "both") -> list[TableRequest]:
    """Tables that answer a question and say what stands behind it, whose counts one pass over samples gives."""
    sizes = bound.schema.cardinalities
    targets = tuple(each for each in bound.targets if each not in bound.by)
    positions = (*bound.by, *targets)
    tables = []
    if source != "model" and math.prod(int(sizes[each]) for each in positions) <= MAX_CELLS:
        # codes of what is given as a whole are of no matter here
        known: list[Conditions] = [dict.fromkeys(bound.by, ()) | dict(each) for each in bound.sides]
        pairs = [pair for each in known for pair in list_pairs(targets, each, sizes)]
        pairs += [pair for each in bound.sides for pair in list_pairs(bound.by, each, sizes)]
        tables = [TableRequest(positions, tuple(given.items())) for given in bound.sides]
        tables += [TableRequest(pair[:2]) for pair in pairs]
    return [*tables, *list_support_requests(bound)]


def _say_others(bound: BoundQuestion) -> Iterator[str]:
    """Sentences on levels that were named and that there are not."""
    for name, level in bound.as_other.items():
        variable = bound.schema[name]
        close = list_near(level, variable.levels)
        hint = f"; did you mean {close}?" if close else ""
        yield f"{level!r} is no level of {name!r} and counts as {variable.other!r}{hint}"
    for asked, answered in bound.moved_cuts.items():
        yield f"{asked} does not go by the edges of its bins: this answer is for {answered}"
