"""Ask a model: parse, bind, measure, and add what stands behind the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pmflib.counting.pair_counts import PairCounts
from pmflib.errors import MemoryPlanError
from pmflib.model import JointPMF
from pmflib.near_names import list_near
from pmflib.questions.answer_errors import (
    doubt_errors,
    expect,
    find_errors,
    measure_refits,
    raise_unseen,
)
from pmflib.questions.answer_rows import AnswerRows
from pmflib.questions.answers import Answer
from pmflib.questions.binding import BoundQuestion, bind_question
from pmflib.questions.completions import find_most_likely
from pmflib.questions.conditions import condition
from pmflib.questions.evidence import Evidence
from pmflib.questions.measuring import measure
from pmflib.questions.notation import parse_question
from pmflib.questions.pair_fit import doubt_fit
from pmflib.questions.support import find_support

MAX_ROWS = 1 << 17
"""Rows of the largest answer: more are read by nobody, and `JointPMF.marginal` has them as an array."""


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
    their logarithm times the value. Where every fit says that a level of one variable has probability 0, or 1, none of
    n samples showed otherwise, and the error is 1 / (n + 2), the standard deviation of the posterior after n such
    samples from a uniform prior.

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
    if numbers.size > MAX_ROWS:
        raise MemoryPlanError(
            f"the answer has {numbers.size:,} rows, above {MAX_ROWS:,}; name fewer variables, or ask for argmax"
        )
    support, doubts, cells = None, [*_say_others(bound)], None
    errors, refits, why = None, np.empty(0), "no counts were given"
    if evidence is not None:
        support, found, cells = find_support(bound, evidence, chances)
        doubts += found
        refits, why = measure_refits(bound, evidence, combinations, numbers.shape)
        errors = None if why else find_errors(bound, numbers, refits)
        if errors is not None:
            errors = raise_unseen(bound, support, refits, errors)
        doubts += doubt_errors(bound, errors)
    parts = AnswerRows(bound, numbers, errors, combinations, cells, refits)
    expected, expected_error = expect(bound, numbers, refits)
    impossible = int(np.isnan(numbers).any(axis=1).sum()) if bound.by else 0
    if impossible:
        names = ", ".join(bound.schema[place].name for place in bound.by)
        doubts.append(f"{impossible} combinations of {names} have probability 0 and are left out")
    if cells is not None:
        doubts += doubt_fit(model, bound, cells)
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
        close = list_near(level, variable.levels)
        hint = f"; did you mean {close}?" if close else ""
        yield f"{level!r} is no level of {name!r} and counts as {variable.other!r}{hint}"
