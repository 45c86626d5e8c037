"""Ask a model: parse, bind, measure, and add what stands behind the answer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmflib.arrays import FloatArray, IntArray
from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import PmfError
from pmflib.model import JointPMF
from pmflib.questions.answers import Answer
from pmflib.questions.binding import BoundQuestion, bind_question
from pmflib.questions.completions import find_most_likely
from pmflib.questions.conditions import condition, suggest
from pmflib.questions.evidence import Evidence
from pmflib.questions.levels_in_order import find_quantile, order_levels
from pmflib.questions.measuring import measure
from pmflib.questions.notation import parse_question
from pmflib.questions.support import find_support
from pmflib.schema import Schema

MAX_ERROR_CELLS = 1 << 20
"""Combinations of an answer up to which it is computed again for every fold."""

MOST_ERROR = 0.5
"""Largest standard deviation that a number in [0, 1] can have: a larger estimate is this."""

QUANTITIES = {
    "P": "probability",
    "E": "expected value",
    "median": "cumulative probability",
    "quantile": "cumulative probability",
    "argmax": "probability",
    "H": "entropy, nats",
    "MI": "mutual information, nats",
    "TV": "total variation",
    "odds": "odds",
    "OR": "odds ratio",
}
"""What the numbers of each measure are."""


def ask(
    model: JointPMF,
    question: str,
    counts: PairCounts | Evidence | None = None,
    *,
    top: int = 5,
) -> Answer:
    """Answer a question in words.

    Parameters
    ----------
    model
        The model.
    question
        As for `pmflib.questions.notation.parse_question`.
    counts
        Co-occurrence counts of the samples that the model was fitted to: the answer then says how many samples stand
        behind it, and has standard errors. None: it has neither.
    top
        Completions that argmax finds, at least 1.

    Returns
    -------
    The answer.

    Raises
    ------
    QuestionError
        If the question cannot be read, or contradicts itself; the message shows the place.
    UnknownNameError
        If a variable or level is unknown; the message suggests the nearest.
    SchemaError
        If counts and model are of different schemas, or a variable has no values or order that the measure needs.
    PmfError
        If conditions have probability 0: nobody can meet them.
    MemoryPlanError
        If there are too many combinations.

    Notes
    -----
    Standard errors are a jackknife over the folds of the counts: the model is fitted again without each fold, by the
    pairwise composite likelihood from where it is, and every number of the answer is computed for each of these fits.
    They hold the spread over samples. They do not hold the bias of a rank too small, nor another optimum, and a model
    that was refined by EM has errors that are smaller, if anything. Errors of odds and of ratios of odds are those of
    their logarithm times the value.

    References
    ----------
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 11: delete-a-group jackknife.
    """
    bound = bind_question(parse_question(question), model.schema)
    evidence = Evidence.of_counts(counts, model) if isinstance(counts, PairCounts) else counts
    return answer_bound(model, bound, evidence, top=top)


def answer_bound(
    model: JointPMF, bound: BoundQuestion, evidence: Evidence | None, *, top: int = 5
) -> Answer:
    """Do `ask` with a question whose names are found already."""
    combinations = None
    chances = [math.exp(condition(model, given)[1]) for given in bound.given]
    if bound.question.measure == "argmax":
        fixed = condition(model, bound.given[0])[0]
        combinations = find_most_likely(fixed, bound.groups[0], top)[0]
    numbers = measure(model, bound, combinations)
    support, doubts, cells = None, [*_say_others(bound)], None
    errors, refits, why = None, np.empty(0), "no counts were given"
    if evidence is not None:
        support, found, cells = find_support(bound, evidence, chances)
        doubts += found
        refits, why = _measure_refits(bound, evidence, combinations, numbers.shape)
        errors = None if why else _find_errors(bound, numbers, refits)
        doubts += _doubt_errors(bound, errors)
    parts = _Parts(bound, numbers, errors, combinations, cells, refits)
    expected, expected_error = _expect(bound, numbers, refits)
    impossible = int(np.isnan(numbers).any(axis=1).sum()) if bound.by else 0
    if impossible:
        names = ", ".join(bound.schema[place].name for place in bound.by)
        doubts.append(f"{impossible} combinations of {names} have probability 0 and are left out")
    rows = parts.list_rows()
    return Answer(
        bound.question.text,
        bound.question.measure,
        *rows,
        expected=expected,
        expected_error=expected_error,
        support=support,
        warnings=tuple(doubts),
        no_errors=why if evidence is not None else "",
        fold_numbers=parts.fold_numbers,
        as_other=bound.as_other,
    )


def _say_others(bound: BoundQuestion) -> Iterator[str]:
    for name, level in bound.as_other.items():
        variable = bound.schema[name]
        close = suggest(level, variable.levels)
        hint = f"; did you mean {close}?" if close else ""
        yield f"{level!r} is no level of {name!r} and counts as {variable.other!r}{hint}"


def _measure_refits(
    bound: BoundQuestion,
    evidence: Evidence,
    combinations: IntArray | None,
    shape: tuple[int, ...],
) -> tuple[FloatArray, str]:
    """Numbers of every fit without a fold, (n_folds, n_by, n_each); NaN where it rules the conditions out."""
    if math.prod(shape) > MAX_ERROR_CELLS:
        return np.empty(0), f"the answer has more than {MAX_ERROR_CELLS:,} numbers"
    models, why = evidence.refit()
    if why:
        return np.empty(0), why
    found = np.full((len(models), *shape), np.nan)
    for fold, refit in enumerate(models):
        try:
            found[fold] = measure(refit, bound, combinations)
        except PmfError:
            # without that fold nobody meets the conditions: no error is known
            continue
    return found, ""


def _find_errors(bound: BoundQuestion, numbers: FloatArray, refits: FloatArray) -> FloatArray:
    from pmflib.diagnosis.jackknife import measure_spread

    if bound.question.measure not in ("odds", "OR"):
        found = measure_spread(refits)
        # no share of anything varies more
        return np.minimum(found, MOST_ERROR) if _is_share(bound) else found
    with np.errstate(divide="ignore", invalid="ignore"):
        errors: FloatArray = measure_spread(np.log(refits)) * numbers
    return errors


def _is_share(bound: BoundQuestion) -> bool:
    return bound.question.measure in ("P", "argmax", "median", "quantile", "TV")


def _doubt_errors(bound: BoundQuestion, errors: FloatArray | None) -> list[str]:
    """Sentence where the data leave an answer open."""
    if errors is None:
        return []
    if np.isnan(errors).all():
        return [
            "without one fold or another the model gives no such answer: its error is not known"
        ]
    if _is_share(bound) and np.nanmax(errors) >= MOST_ERROR / 2:
        return ["the data do not determine this answer: see its standard errors"]
    return []


def _expect(
    bound: BoundQuestion, numbers: FloatArray, refits: FloatArray
) -> tuple[float | None, float | None]:
    """Find the expected value of the one variable whose PMF the answer is, and its error."""
    group = bound.groups[0]
    if bound.question.measure != "P" or len(group) != 1 or bound.events[0] or bound.by:
        return None, None
    variable = bound.schema[group[0]]
    if variable.values is None:
        return None, None
    from pmflib.diagnosis.jackknife import measure_spread

    values = variable.numeric_values()
    error = float(measure_spread(refits[:, 0] @ values)) if refits.size else math.nan
    return float(numbers[0] @ values), error if math.isfinite(error) else None


@dataclass(eq=False)
class _Parts:
    """Numbers and errors of shape (n_by, n_each), and what their labels are made of."""

    bound: BoundQuestion
    numbers: FloatArray
    errors: FloatArray | None
    combinations: IntArray | None
    cells: IntArray | None
    refits: FloatArray
    fold_numbers: FloatArray | None = None

    def list_rows(
        self,
    ) -> tuple[
        tuple[str, ...],
        list[tuple[str, ...]],
        str,
        FloatArray,
        FloatArray | None,
        Any,
        dict[str, list[Any]],
    ]:
        """Columns, labels, quantity, numbers, errors, value and further columns of an answer."""
        bound, name = self.bound, self.bound.question.measure
        schema = bound.schema
        by = list(_combine(schema, bound.by))
        more: dict[str, list[Any]] = {}
        if name in ("median", "quantile"):
            columns, rows, picks, more = self.find_quantiles(by)
        elif name == "argmax":
            assert self.combinations is not None
            columns = [schema[place].name for place in bound.groups[0]]
            rows = [_label(schema, bound.groups[0], codes) for codes in self.combinations.tolist()]
            picks = [(0, n) for n in range(len(rows))]
        elif name in ("P", "odds"):
            columns, rows, picks, more = self.find_cells(by)
        else:
            # a mean over the levels of the variables that are given has no row for each
            rows = [_label(schema, bound.by, codes) for codes in by] if name == "E" else [()]
            columns = [schema[place].name for place in bound.by] if name == "E" else []
            picks = [(n, 0) for n in range(len(rows))]
        kept = [
            n for n, pick in enumerate(picks) if not np.isnan(self.numbers[pick]) or name == "OR"
        ]
        picks, rows = [picks[n] for n in kept], [rows[n] for n in kept]
        more = {key: [each[n] for n in kept] for key, each in more.items()}
        numbers = np.array([self.numbers[pick] for pick in picks])
        errors = None
        if self.errors is not None:
            errors = np.array([self.errors[pick] for pick in picks])
            self.fold_numbers = np.array([self.refits[:, n, m] for n, m in picks]).T
        value = self.find_value(columns, rows, numbers)
        return tuple(columns), rows, QUANTITIES[name], numbers, errors, value, more

    def find_value(
        self, columns: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: FloatArray
    ) -> Any:
        """Take the answer out of its table."""
        bound, name = self.bound, self.bound.question.measure
        if name == "argmax":
            return dict(zip(columns, rows[0], strict=True)) if rows else {}
        if name in ("median", "quantile"):
            found = [_read_level(bound, row[-1]) for row in rows]
            if not bound.by:
                return found[0]
            return {_key(row[:-1]): each for row, each in zip(rows, found, strict=True)}
        if not bound.by and not (name == "P" and bound.groups[0]):
            return float(numbers[0])
        if name in ("H", "MI", "TV"):
            return float(numbers[0])
        fixed = len(bound.events[0])
        return {
            _key(row[: len(row) - fixed]): float(number)
            for row, number in zip(rows, numbers, strict=True)
        }

    def find_cells(
        self, by: Sequence[tuple[int, ...]]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[int, int]], dict[str, list[Any]]]:
        """Rows of probabilities: the most probable first, within each combination of what is given."""
        bound, schema = self.bound, self.bound.schema
        free, events = bound.groups[0], bound.events[0]
        each = list(_combine(schema, free))
        said = [_say_levels(schema, place, codes) for place, codes in events.items()]
        columns = [schema[place].name for place in (*bound.by, *free, *events)]
        rows, picks, samples = [], [], []
        for n, codes in enumerate(by):
            for m in np.argsort(-self.numbers[n], kind="stable").tolist():
                labels = (*_label(schema, bound.by, codes), *_label(schema, free, each[m]), *said)
                rows.append(labels)
                picks.append((n, m))
                levels = dict(zip((*bound.by, *free), (*codes, *each[m]), strict=True))
                samples.append(self.count_samples(levels))
        more = {} if self.cells is None else {"samples": samples}
        return columns, rows, picks, more

    def count_samples(self, levels: Mapping[int, int]) -> int:
        """Samples that have some levels, and the events and conditions of the question."""
        if self.cells is None:
            return 0
        picks = []
        for place in self.bound.involved:
            codes = set(range(self.bound.schema[place].cardinality))
            for known in (*self.bound.events, *self.bound.given):
                codes &= set(known.get(place, codes))
            codes &= {levels[place]} if place in levels else codes
            picks.append(sorted(codes))
        return int(self.cells[np.ix_(*picks)].sum())

    def find_quantiles(
        self, by: Sequence[tuple[int, ...]]
    ) -> tuple[list[str], list[tuple[str, ...]], list[tuple[int, int]], dict[str, list[Any]]]:
        """Rows of quantiles, with the levels that two standard errors of the cumulative probability reach."""
        bound, schema = self.bound, self.bound.schema
        target = bound.groups[0][0]
        order = order_levels(schema[target])
        share = 0.5 if bound.question.share is None else bound.question.share
        columns = [schema[place].name for place in (*bound.by, target)]
        rows, picks = [], []
        limits: dict[str, list[Any]] = {"from": [], "to": []}
        for n, codes in enumerate(by):
            if np.isnan(self.numbers[n]).any():
                continue
            place = find_quantile(self.numbers[n], share)
            level = schema[target].levels[order[place]]
            rows.append((*_label(schema, bound.by, codes), level))
            picks.append((n, place))
            if self.errors is not None:
                spread = 2 * np.nan_to_num(self.errors[n])
                for limit, moved in (("from", spread), ("to", -spread)):
                    # the last level reaches every share, whatever the errors
                    cumulated = np.maximum.accumulate(
                        np.append(self.numbers[n, :-1] + moved[:-1], 1.0)
                    )
                    found = order[find_quantile(cumulated, share)]
                    limits[limit].append(schema[target].levels[found])
        return columns, rows, picks, limits if self.errors is not None else {}


def _combine(schema: Schema, places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Combinations of the codes of some variables, the last fastest; one that is empty for none."""
    return itertools.product(*(range(schema[place].cardinality) for place in places))


def _label(schema: Schema, places: Sequence[int], codes: Sequence[int]) -> tuple[str, ...]:
    return tuple(schema[place].levels[code] for place, code in zip(places, codes, strict=True))


def _say_levels(schema: Schema, place: int, codes: Sequence[int]) -> str:
    return " or ".join(schema[place].levels[code] for code in codes)


def _key(labels: tuple[str, ...]) -> Any:
    return labels[0] if len(labels) == 1 else labels


def _read_level(bound: BoundQuestion, level: str) -> float | str:
    """Value of a level, or its label where it has none."""
    variable = bound.schema[bound.groups[0][0]]
    if variable.values is None:
        return level
    return variable.values[variable.levels.index(level)]
